// The caching allocator of one logical core. Thread-safe: one mutex, held for tens of nanoseconds on the usual path.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/allocator.h"
#include "aten/block.h"
#include "aten/memory_counters.h"
#include "aten/memory_history.h"
#include "device/heap.h"
#include "device/stream.h"

namespace neuron::aten {

class CoreAllocator {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;
  using SegmentInfo = c10::CachingDeviceAllocator::SegmentInfo;
  using TraceEntry = c10::CachingDeviceAllocator::TraceEntry;

  explicit CoreAllocator(int core);

  void* allocate(size_t bytes, device::StreamId stream);  // throws c10::OutOfMemoryError
  void free(void* ptr);
  void record_stream(void* ptr, int stream_core, device::StreamId stream);
  void release_cache();  // waits for streams that hold freed blocks, and gives every free page back to the host

  void set_fraction(double fraction);
  double fraction() const;
  Stats stats() const;
  void reset_accumulated();
  void reset_peak();
  std::vector<PoolReport> pools() const;

  std::vector<SegmentInfo> segments() const;  // for snapshots, in address order
  std::vector<TraceEntry> trace() const;      // history, oldest first
  void clear_trace();
  void note_snapshot();  // marks this moment in the history

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Action = TraceEntry::Action;
  using Context = std::shared_ptr<c10::GatheredContext>;

  // Where a large block can be put: a free block that grows into the gap beside it, or the start of a gap.
  struct Place {
    Block* block = nullptr;  // to grow, or nullptr
    Block* gap = nullptr;
    bool downwards = false;  // the gap is below the block
    uint64_t bytes = 0;      // to map, at the least
  };
  struct Segment {  // of the small pool
    Block* first = nullptr;
    Block* at[kSegment / kGranule] = {};  // blocks in use, by their first granule
  };
  struct Recent {  // size 0: empty
    size_t size = 0;
    device::StreamId stream = 0;
    Block* block = nullptr;
  };
  struct Waiting {
    device::Event event;
    Block* block;
  };

  // core_allocator.cpp: the usual path
  Block* find(size_t size, device::StreamId stream);
  void use(Block* block, size_t size, size_t requested);
  void finish_free(Block* block);
  Block* merge(Block* block);
  void settle(Block* block);
  bool settle_recent();
  SmallIndex& small_index(device::StreamId stream);
  Block*& used_at(const char* ptr);
  [[noreturn]] void fail_pointer(const void* ptr) const;
  void insert_free(Block* block);
  void remove_free(Block* block);
  void link_before(Block* block, Block* next);
  void link_after(Block* block, Block* prev);
  void unlink(Block* block);
  void process_events();
  void synchronize_events();
  void note(Action action, const char* addr, size_t size, device::StreamId stream, const Context& context) {
    if (C10_UNLIKELY(recording_history())) add_to_trace(action, addr, size, stream, context);
  }
  void add_to_trace(Action action, const char* addr, size_t size, device::StreamId stream, const Context& context);

  // core_pages.cpp: pages of HBM
  uint64_t limit() const;
  Block* grow(size_t size, device::StreamId stream, size_t requested, Lock& lock);
  Block* try_grow(size_t size, device::StreamId stream, bool& retried);
  bool make_room(uint64_t bytes, const Block* spare_last, bool& retried);
  Place find_place(size_t size, device::StreamId stream) const;
  uint64_t whole_huge_pages(const Place& place) const;
  Block* map_arena(const Place& place, size_t size, device::StreamId stream);
  Block* map_segment(device::StreamId stream);
  void count_map(bool small, int64_t segments, uint64_t bytes);
  void count_unmap(bool small, int64_t segments, uint64_t bytes);
  uint64_t release(uint64_t bytes, const Block* spare_last);
  uint64_t release_pass(uint64_t bytes, const Block* spare_last, uint64_t granularity);
  uint64_t unmap_arena(Block* block, uint64_t bytes, uint64_t granularity);
  uint64_t unmap_segment(Block* block);
  [[noreturn]] void fail(size_t requested, const std::string& host_error, Lock& lock);

  const int core_;
  device::Heap& heap_;
  char* const arena_;  // large pool: the window above the small pool's pages
  mutable std::mutex mutex_;

  BlockStore store_;
  std::unordered_map<device::StreamId, std::unique_ptr<SmallIndex>> small_;
  std::pair<device::StreamId, SmallIndex*> last_small_{kNoStream, nullptr};
  Recent recent_[8];
  uint32_t recent_next_ = 0;
  LargeIndex large_;
  Block* arena_first_ = nullptr;
  std::vector<std::unique_ptr<Segment>> segments_;  // of the small pool, in address order; nullptr: not mapped
  std::vector<uint32_t> spare_segments_;            // indices into segments_ that the next segments take
  Block** const used_large_;                        // by MiB of the arena: blocks in use are at least that large

  std::map<std::pair<int, device::StreamId>, std::deque<Waiting>> waiting_;
  uint64_t tick_ = 0;
  double fraction_ = 1.0;
  MemoryCounters counters_;
  Stats stats_;  // the ones that have no counter
  TraceRing trace_;
};

CoreAllocator& core_allocator(int core);                    // made at first use
CoreAllocator* existing_core_allocator(int core) noexcept;  // nullptr: not used yet
void release_all_caches();                                  // of every core that has been used

}  // namespace neuron::aten
