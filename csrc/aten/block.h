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
constexpr size_t kSegment = 2u << 20;     // bytes: one segment of the small pool
constexpr size_t kSmallLimit = 1u << 20;  // requests below come from the small pool, as TorchNeuron and CUDA do
constexpr device::StreamId kNoStream = std::numeric_limits<device::StreamId>::min();

class SmallIndex;

// A range of HBM addresses. Blocks of one segment (small pool) or of the arena (large pool) are linked in address
// order and cover it without holes.
struct Block {
  enum class State : uint8_t {
    kGap,      // addresses without memory (arena only); belongs to no stream
    kFree,     // mapped, in an index
    kRecent,   // as kFree, but in no index and not joined with its neighbours (small pool only)
    kUsed,     // held by a tensor
    kWaiting,  // freed, but work on other streams may still use it
  };
  char* ptr = nullptr;
  size_t size = 0;        // bytes
  Block* prev = nullptr;  // neighbours in address order
  Block* next = nullptr;
  Block* list_prev = nullptr;  // neighbours in a list of `index`
  Block* list_next = nullptr;
  SmallIndex* index = nullptr;  // where the block goes when it is free; nullptr: a block of the arena
  device::StreamId stream = 0;
  size_t requested = 0;      // bytes the program asked for
  const char* op = nullptr;  // operator that allocated it, or nullptr
  uint64_t freed_at = 0;     // tick of the allocator: the least recently freed is given back first
  uint32_t events = 0;       // kWaiting: events still to complete
  State state = State::kGap;
  std::vector<std::pair<int, device::StreamId>> uses;  // record_stream: (core, stream)
  std::shared_ptr<c10::GatheredContext> context;       // stack of the allocation, while history is recorded

  bool small() const { return index != nullptr; }
  bool free() const { return state == State::kFree || state == State::kRecent; }
  bool split() const { return prev != nullptr || next != nullptr; }
};

// Blocks come and go with every allocation; recycling them keeps malloc out of that path.
class BlockStore {
 public:
  Block* make(char* ptr, size_t size, device::StreamId stream, Block::State state, SmallIndex* index = nullptr);
  void recycle(Block* block);

 private:
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* spare_ = nullptr;  // linked by `next`
};

// Free blocks of one stream's small pool. All sizes are multiples of the granule up to one segment, so a list per size
// and a bitmap of the lists that are not empty give the best fit in constant time.
class SmallIndex {
 public:
  static constexpr size_t kSizes = kSegment / kGranule;
  void insert(Block* block);
  void remove(Block* block);
  Block* best_fit(size_t size) const;  // smallest block of at least `size` bytes, or nullptr

 private:
  uint64_t lists_ = 0;  // bit i: some bit of words_[i] is set
  uint64_t words_[kSizes / 64] = {};
  Block* heads_[kSizes] = {};
};

inline void SmallIndex::insert(Block* block) {
  const size_t i = block->size / kGranule - 1;
  block->list_prev = nullptr;
  block->list_next = heads_[i];
  if (heads_[i] != nullptr) heads_[i]->list_prev = block;
  heads_[i] = block;
  words_[i / 64] |= uint64_t{1} << (i % 64);
  lists_ |= uint64_t{1} << (i / 64);
}

inline void SmallIndex::remove(Block* block) {
  const size_t i = block->size / kGranule - 1;
  if (block->list_next != nullptr) block->list_next->list_prev = block->list_prev;
  if (block->list_prev != nullptr) {
    block->list_prev->list_next = block->list_next;
  } else if ((heads_[i] = block->list_next) == nullptr) {
    words_[i / 64] &= ~(uint64_t{1} << (i % 64));
    if (words_[i / 64] == 0) lists_ &= ~(uint64_t{1} << (i / 64));
  }
}

inline Block* SmallIndex::best_fit(size_t size) const {
  const size_t i = size / kGranule - 1;
  size_t word = i / 64;
  uint64_t bits = words_[word] & (~uint64_t{0} << (i % 64));
  if (bits == 0) {
    const uint64_t above = word == 63 ? 0 : lists_ & (~uint64_t{0} << (word + 1));
    if (above == 0) return nullptr;
    word = std::countr_zero(above);
    bits = words_[word];
  }
  return heads_[word * 64 + std::countr_zero(bits)];
}

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
