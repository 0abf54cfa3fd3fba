// The pieces of the caching allocator that know nothing of devices: blocks and the indices that find free ones.
#pragma once
#include <c10/core/Allocator.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <set>
#include <utility>
#include <vector>

#include "device/stream.h"

namespace neuron::aten {

constexpr size_t kGranule = 512;          // bytes: alignment and rounding of every block
constexpr size_t kSmallLimit = 1u << 20;  // requests below come from the small pool, as TorchNeuron and CUDA do
constexpr device::StreamId kNoStream = std::numeric_limits<device::StreamId>::min();

// A range of HBM addresses. Blocks of one segment (small pool) or of the arena (large pool) are linked in address
// order and cover it without holes.
struct Block {
  enum class State : uint8_t {
    kGap,      // addresses without memory (arena only); belongs to no stream
    kFree,     // mapped, in an index
    kUsed,     // held by a tensor
    kWaiting,  // freed, but work on other streams may still use it
  };
  char* ptr = nullptr;
  size_t size = 0;       // bytes
  size_t requested = 0;  // bytes the program asked for
  device::StreamId stream = 0;
  Block* prev = nullptr;  // neighbours in address order
  Block* next = nullptr;
  Block* list_prev = nullptr;  // neighbours in a list of SmallIndex
  Block* list_next = nullptr;
  const char* op = nullptr;  // operator that allocated it, or nullptr
  uint64_t freed_at = 0;     // tick of the allocator: the least recently freed is given back first
  uint32_t events = 0;       // kWaiting: events still to complete
  State state = State::kGap;
  bool small = false;
  std::vector<std::pair<int, device::StreamId>> uses;  // record_stream: (core, stream)
  std::shared_ptr<c10::GatheredContext> context;       // stack of the allocation, while history is recorded

  bool split() const { return prev != nullptr || next != nullptr; }
};

// Blocks come and go with every allocation; recycling them keeps malloc out of that path.
class BlockStore {
 public:
  Block* make(char* ptr, size_t size, device::StreamId stream, Block::State state, bool small);
  void recycle(Block* block);

 private:
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* spare_ = nullptr;  // linked by `next`
};

// Free blocks of one stream's small pool. All sizes are multiples of the granule up to one page, so a list per size
// and a bitmap of the lists that are not empty give the best fit in constant time.
class SmallIndex {
 public:
  static constexpr size_t kSizes = 4096;  // 512 bytes ... 2 MiB
  void insert(Block* block);
  void remove(Block* block);
  Block* best_fit(size_t size) const;  // smallest block of at least `size` bytes, or nullptr

 private:
  uint64_t lists_ = 0;  // bit i: some bit of words_[i] is set
  uint64_t words_[kSizes / 64] = {};
  Block* heads_[kSizes] = {};
};

// Blocks of the arena by (stream, size, address): free ones, and gaps under kNoStream.
class LargeIndex {
 public:
  void insert(Block* block) { blocks_.insert(block); }
  void remove(Block* block) { blocks_.erase(block); }
  Block* best_fit(device::StreamId stream, size_t size) const;  // smallest and then lowest, or nullptr
  // Calls f(block) from the largest of the stream downwards until f returns true.
  template <typename F>
  void largest_first(device::StreamId stream, F&& f) const {
    Block probe;
    probe.stream = stream;
    probe.size = std::numeric_limits<size_t>::max();
    for (auto it = blocks_.upper_bound(&probe); it != blocks_.begin();) {
      --it;
      if ((*it)->stream != stream || f(*it)) return;
    }
  }

 private:
  struct Order {
    bool operator()(const Block* a, const Block* b) const {
      if (a->stream != b->stream) return a->stream < b->stream;
      if (a->size != b->size) return a->size < b->size;
      return a->ptr < b->ptr;
    }
  };
  std::pmr::unsynchronized_pool_resource nodes_;  // recycles the nodes of the set
  std::pmr::set<Block*, Order> blocks_{&nodes_};
};

}  // namespace neuron::aten
