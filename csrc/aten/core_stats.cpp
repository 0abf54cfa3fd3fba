// What the allocator of a core tells about itself.
#include <algorithm>

#include "aten/allocator_config.h"
#include "aten/core_allocator.h"

namespace neuron::aten {

namespace {

// Where each counter goes in PyTorch's structure.
constexpr std::pair<PoolCounter MemoryCounters::*, c10::CachingAllocator::StatArray CoreAllocator::Stats::*> kPlaces[] =
    {{&MemoryCounters::allocation, &CoreAllocator::Stats::allocation},
     {&MemoryCounters::segment, &CoreAllocator::Stats::segment},
     {&MemoryCounters::active, &CoreAllocator::Stats::active},
     {&MemoryCounters::inactive_split, &CoreAllocator::Stats::inactive_split},
     {&MemoryCounters::allocated_bytes, &CoreAllocator::Stats::allocated_bytes},
     {&MemoryCounters::reserved_bytes, &CoreAllocator::Stats::reserved_bytes},
     {&MemoryCounters::active_bytes, &CoreAllocator::Stats::active_bytes},
     {&MemoryCounters::inactive_split_bytes, &CoreAllocator::Stats::inactive_split_bytes},
     {&MemoryCounters::requested_bytes, &CoreAllocator::Stats::requested_bytes}};

}  // namespace

void CoreAllocator::set_fraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "invalid fraction: ", fraction, ". It has to be in [0, 1].");
  Lock lock(mutex_);
  fraction_ = fraction;
}

double CoreAllocator::fraction() const {
  Lock lock(mutex_);
  return fraction_;
}

CoreAllocator::Stats CoreAllocator::stats() const {
  Lock lock(mutex_);
  Stats stats = stats_;
  for (const auto& [counter, array] : kPlaces) stats.*array = (counters_.*counter).stats();
  stats.max_split_size = static_cast<int64_t>(std::min<size_t>(allocator_config().max_split_size, INT64_MAX));
  return stats;
}

void CoreAllocator::reset_accumulated() {
  Lock lock(mutex_);
  for (const auto& place : kPlaces) (counters_.*place.first).reset_accumulated();
  stats_.oversize_allocations.reset_accumulated();
  stats_.oversize_segments.reset_accumulated();
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

void CoreAllocator::reset_peak() {
  Lock lock(mutex_);
  for (const auto& place : kPlaces) (counters_.*place.first).reset_peak();
  stats_.oversize_allocations.reset_peak();
  stats_.oversize_segments.reset_peak();
}

std::vector<CoreAllocator::SegmentInfo> CoreAllocator::segments() const {
  Lock lock(mutex_);
  std::vector<SegmentInfo> result;
  const auto begin = [&](const Block* block) {
    SegmentInfo segment;
    segment.device = static_cast<c10::DeviceIndex>(core_);
    segment.address = reinterpret_cast<size_t>(block->ptr);
    segment.stream = reinterpret_cast<void*>(block->stream);
    segment.is_large = segment.is_expandable = !block->small();
    result.push_back(std::move(segment));
  };
  const auto add = [&](const Block* block) {
    SegmentInfo& segment = result.back();
    c10::CachingDeviceAllocator::BlockInfo info;
    info.size = block->size;
    info.allocated = block->state == Block::State::kUsed;
    info.active = !block->free();
    info.requested_size = info.active ? block->requested : 0;
    info.context_when_allocated = block->context;
    segment.total_size += info.size;
    if (info.allocated) segment.allocated_size += info.size;
    if (info.active) segment.active_size += info.size;
    segment.requested_size += info.requested_size;
    segment.blocks.push_back(std::move(info));
  };
  for (const auto& segment : segments_) {
    if (!segment) continue;
    begin(segment->first);
    for (const Block* block = segment->first; block != nullptr; block = block->next) add(block);
  }
  // A segment of the arena is a run of mapped addresses of one stream.
  for (const Block* block = arena_first_; block != nullptr; block = block->next) {
    if (block->state == Block::State::kGap) continue;
    const Block* const prev = block->prev;
    if (prev == nullptr || prev->state == Block::State::kGap || prev->stream != block->stream) begin(block);
    add(block);
  }
  return result;
}

std::vector<CoreAllocator::TraceEntry> CoreAllocator::trace() const {
  Lock lock(mutex_);
  return trace_.entries();
}

void CoreAllocator::clear_trace() {
  Lock lock(mutex_);
  trace_.clear();
}

void CoreAllocator::note_snapshot() {
  Lock lock(mutex_);
  note(Action::SNAPSHOT, nullptr, 0, 0, nullptr);
}

std::vector<PoolReport> CoreAllocator::pools() const {
  constexpr uint64_t kPage = device::Heap::kPage;
  Lock lock(mutex_);
  std::map<std::pair<bool, int64_t>, PoolReport> pools;
  const auto add = [&](const Block* block, uint64_t releasable) {
    PoolReport& pool = pools[{!block->small(), block->stream}];
    pool.reserved += block->size;
    if (block->state == Block::State::kUsed) pool.allocated += block->size;
    if (block->state == Block::State::kWaiting) pool.waiting += block->size;
    if (!block->free()) return;
    pool.free += block->size;
    pool.free_blocks += 1;
    pool.largest_free = std::max<uint64_t>(pool.largest_free, block->size);
    pool.pinned += block->size - releasable;
  };
  for (const auto& segment : segments_) {
    if (!segment) continue;
    const Block* const first = segment->first;
    for (const Block* block = first; block != nullptr; block = block->next) add(block, block->split() ? 0 : kSegment);
    pools[{false, first->stream}].segments += 1;
  }
  for (const Block* block = arena_first_; block != nullptr; block = block->next) {
    if (block->state == Block::State::kGap) continue;
    const auto start = static_cast<uint64_t>(block->ptr - arena_);
    const uint64_t first = (start + kPage - 1) / kPage, last = (start + block->size) / kPage;
    add(block, last > first ? (last - first) * kPage : 0);
    const Block* const prev = block->prev;
    if (prev == nullptr || prev->state == Block::State::kGap || prev->stream != block->stream) {
      pools[{true, block->stream}].segments += 1;
    }
  }
  std::vector<PoolReport> rows;
  for (auto& [key, pool] : pools) {
    pool.large = key.first;
    pool.stream = key.second;
    rows.push_back(pool);
  }
  return rows;
}

}  // namespace neuron::aten
