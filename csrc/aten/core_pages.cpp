// The rare path: pages of HBM for the pools, back to the host, and what happens when there are none.
#include <algorithm>
#include <cmath>

#include "aten/allocator_config.h"
#include "aten/core_allocator.h"
#include "aten/out_of_memory.h"
#include "device/stream.h"

namespace neuron::aten {
namespace {

constexpr uint64_t kPage = device::Heap::kPage;
constexpr uint64_t kHugePage = device::Heap::kHugePage;
uint64_t align_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
uint64_t align_down(uint64_t bytes, uint64_t unit) { return bytes / unit * unit; }
uint64_t page_up(uint64_t bytes) { return align_up(bytes, kPage); }
bool mapped_for(const Block* block, device::StreamId stream) {
  return block != nullptr && block->state != Block::State::kGap && block->stream == stream;
}

}  // namespace

uint64_t CoreAllocator::limit() const { return static_cast<uint64_t>(fraction_ * heap_.capacity()); }

// A free block of at least `size` bytes that find() did not have. Throws when there is none to be had.
Block* CoreAllocator::grow(size_t size, device::StreamId stream, size_t requested, Lock& lock) {
  bool retried = false;
  std::string host_error;
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      if (Block* const block = try_grow(size, stream, retried)) return block;
      fail(requested, "", lock);
    } catch (const device::HostMemoryError& error) {
      host_error = error.what();
    }
    // Cached pages, of any core, are host memory too.
    if (!retried) ++stats_.num_alloc_retries;
    retried = true;
    lock.unlock();
    release_all_caches();
    lock.lock();
  }
  fail(requested, host_error, lock);
}

Block* CoreAllocator::try_grow(size_t size, device::StreamId stream, bool& retried) {
  const bool small = size < kSmallLimit;
  if (size > limit()) return nullptr;  // giving back the whole cache would not help
  bool collected = false;
  for (;;) {
    if (Block* const block = find(size, stream)) return block;
    Place place = small ? Place{nullptr, nullptr, false, kSegment} : find_place(size, stream);
    const uint64_t mapped = heap_.mapped();
    if (!small && place.gap == nullptr) {
      // Addresses are in pieces: giving back free blocks joins the gaps around them.
      if (!make_room(heap_.capacity(), nullptr, retried)) return nullptr;
      continue;
    }
    const double threshold = allocator_config().collection_threshold;
    const auto wanted = static_cast<uint64_t>(threshold * limit());
    if (threshold > 0 && !collected && mapped + place.bytes > wanted) {
      collected = true;
      if (release(mapped + place.bytes - wanted, place.block) > 0) continue;
    }
    const uint64_t room = limit() - std::min(limit(), mapped);
    if (place.bytes <= room) {
      if (!small) place.bytes = std::min(whole_huge_pages(place), align_down(room, kPage));
      Block* const block = small ? map_segment(stream) : map_arena(place, size, stream);
      if (block != nullptr) return block;
    }
    if (!make_room(place.bytes - std::min(room, place.bytes - kPage), place.block, retried)) return nullptr;
  }
}

// Gives back at least a page, or completes frees that wait for streams. False: neither is left to do.
bool CoreAllocator::make_room(uint64_t bytes, const Block* spare_last, bool& retried) {
  if (!retried) ++stats_.num_alloc_retries;
  retried = true;
  if (release(bytes, spare_last) > 0) return true;
  if (waiting_.empty()) return false;
  synchronize_events();
  return true;
}

CoreAllocator::Place CoreAllocator::find_place(size_t size, device::StreamId stream) const {
  Place place;
  // Growing a free block in place maps the least. Blocks kept whole (max_split_size) do not grow.
  constexpr int kCandidates = 16;
  if (max_split_size() == SIZE_MAX) {
    int seen = 0;
    large_.largest_first(stream, [&](Block* block) {
      for (Block* gap : {block->next, block->prev}) {
        if (gap == nullptr || gap->state != Block::State::kGap || block->size + gap->size < size) continue;
        place = {block, gap, gap == block->prev, page_up(size - block->size)};
        return true;
      }
      return ++seen == kCandidates;
    });
  }
  if (place.gap == nullptr) place = {nullptr, large_.best_fit(kNoStream, page_up(size)), false, page_up(size)};
  return place;
}

// Bytes to map so that huge pages can back them: up to the next border of one, as far as the gap goes.
uint64_t CoreAllocator::whole_huge_pages(const Place& place) const {
  const auto gap = static_cast<uint64_t>(place.gap->ptr - arena_), gap_end = gap + place.gap->size;
  if (place.downwards) return gap_end - std::max(gap, align_down(gap_end - place.bytes, kHugePage));
  return std::min(gap_end, align_up(gap + place.bytes, kHugePage)) - gap;
}

void CoreAllocator::count_map(bool small, int64_t segments, uint64_t bytes) {
  counters_.reserved_bytes.up(small, bytes);
  counters_.segment.change(small, segments);
  ++stats_.num_device_alloc;
}

void CoreAllocator::count_unmap(bool small, int64_t segments, uint64_t bytes) {
  counters_.reserved_bytes.down(small, bytes);
  counters_.segment.change(small, segments);
  ++stats_.num_device_free;
}

// Maps pages of a gap and joins them with the free blocks around; nullptr: over capacity.
Block* CoreAllocator::map_arena(const Place& place, size_t size, device::StreamId stream) {
  Block* const gap = place.gap;
  char* const start = place.downwards ? gap->ptr + gap->size - place.bytes : gap->ptr;
  if (!heap_.map(start, place.bytes)) return nullptr;
  large_.remove(gap);
  Block* block = gap;
  if (gap->size > place.bytes) {
    block = store_.make(start, place.bytes, stream, Block::State::kFree);
    gap->size -= place.bytes;
    if (place.downwards) {
      link_after(block, gap);
    } else {
      gap->ptr += place.bytes;
      link_before(block, gap);
    }
    large_.insert(gap);
  } else {
    block->stream = stream;
    block->state = Block::State::kFree;
  }
  block->freed_at = ++tick_;
  count_map(/*small=*/false, 1 - mapped_for(block->prev, stream) - mapped_for(block->next, stream), place.bytes);
  if (size >= max_split_size()) stats_.oversize_segments.increase(1);
  note(Action::SEGMENT_MAP, start, place.bytes, stream, nullptr);
  block = merge(block);
  insert_free(block);
  return block;
}

Block* CoreAllocator::map_segment(device::StreamId stream) {
  const size_t i = spare_segments_.empty() ? segments_.size() : spare_segments_.back();
  char* const start = heap_.base() + i * kSegment;
  if (!heap_.map(start, kSegment)) return nullptr;
  if (spare_segments_.empty()) {
    segments_.emplace_back();
  } else {
    spare_segments_.pop_back();
  }
  Block* const block = store_.make(start, kSegment, stream, Block::State::kFree, &small_index(stream));
  block->freed_at = ++tick_;
  segments_[i] = std::make_unique<Segment>();
  segments_[i]->first = block;
  count_map(/*small=*/true, 1, kSegment);
  note(Action::SEGMENT_ALLOC, start, kSegment, stream, nullptr);
  insert_free(block);
  return block;
}

void CoreAllocator::release_cache() {
  Lock lock(mutex_);
  if (!waiting_.empty()) synchronize_events();
  release(heap_.capacity(), nullptr);
}

// Unmaps at least `bytes` of free pages, the least recently used first; returns how many it could. What splits huge
// pages comes last.
uint64_t CoreAllocator::release(uint64_t bytes, const Block* spare_last) {
  settle_recent();
  uint64_t released = release_pass(bytes, spare_last, kHugePage);
  if (released < bytes) released += release_pass(bytes - released, spare_last, kPage);
  return released;
}

uint64_t CoreAllocator::release_pass(uint64_t bytes, const Block* spare_last, uint64_t granularity) {
  std::vector<Block*> candidates;
  for (Block* block = arena_first_; block != nullptr; block = block->next) {
    if (block->state == Block::State::kFree) candidates.push_back(block);
  }
  for (const auto& segment : segments_) {
    if (segment && segment->first->state == Block::State::kFree && !segment->first->split()) {
      candidates.push_back(segment->first);
    }
  }
  std::sort(candidates.begin(), candidates.end(), [&](const Block* a, const Block* b) {
    return std::pair(a == spare_last, a->freed_at) < std::pair(b == spare_last, b->freed_at);
  });
  uint64_t released = 0;
  for (Block* const block : candidates) {
    if (released >= bytes) break;
    released += block->small() ? unmap_segment(block) : unmap_arena(block, bytes - released, granularity);
  }
  return released;
}

uint64_t CoreAllocator::unmap_segment(Block* block) {
  remove_free(block);
  heap_.unmap(block->ptr, kSegment);
  count_unmap(/*small=*/true, -1, kSegment);
  note(Action::SEGMENT_FREE, block->ptr, kSegment, block->stream, nullptr);
  const size_t i = (block->ptr - heap_.base()) / kSegment;
  segments_[i].reset();
  spare_segments_.push_back(static_cast<uint32_t>(i));
  store_.recycle(block);
  return kSegment;
}

// Unmaps up to `bytes` (rounded up to the granularity) of a free block, from its end; what shares such a unit with a
// neighbour stays.
uint64_t CoreAllocator::unmap_arena(Block* block, uint64_t bytes, uint64_t granularity) {
  const auto base = static_cast<uint64_t>(block->ptr - arena_);
  const uint64_t first = align_up(base, granularity), last = align_down(base + block->size, granularity);
  if (first >= last) return 0;
  const uint64_t freed = std::min(last - first, align_up(bytes, granularity));
  char* const start = arena_ + last - freed;
  char* const end = arena_ + last;
  const device::StreamId stream = block->stream;
  if (block->size >= max_split_size()) stats_.oversize_segments.decrease(1);
  remove_free(block);
  if (block->ptr < start) {
    Block* const left = store_.make(block->ptr, start - block->ptr, stream, Block::State::kFree);
    left->freed_at = block->freed_at;
    link_before(left, block);
    insert_free(left);
  }
  if (char* const block_end = block->ptr + block->size; end < block_end) {
    Block* const right = store_.make(end, block_end - end, stream, Block::State::kFree);
    right->freed_at = block->freed_at;
    link_after(right, block);
    insert_free(right);
  }
  heap_.unmap(start, freed);
  count_unmap(/*small=*/false, mapped_for(block->prev, stream) + mapped_for(block->next, stream) - 1, freed);
  note(Action::SEGMENT_UNMAP, start, freed, stream, nullptr);

  block->ptr = start;
  block->size = freed;
  block->stream = kNoStream;
  block->state = Block::State::kGap;
  for (Block* other : {block->prev, block->next}) {
    if (other == nullptr || other->state != Block::State::kGap) continue;
    large_.remove(other);
    block->ptr = std::min(block->ptr, other->ptr);
    block->size += other->size;
    unlink(other);
    store_.recycle(other);
  }
  large_.insert(block);
  return freed;
}

// Leaves with the error that tells the user what holds the memory.
void CoreAllocator::fail(size_t requested, const std::string& host_error, Lock& lock) {
  ++stats_.num_ooms;
  const int64_t allocated = counters_.allocated_bytes.current();
  const int64_t reserved = counters_.reserved_bytes.current();
  OutOfMemory report;
  report.core = core_;
  report.requested = requested;
  report.capacity = heap_.capacity();
  report.free = heap_.capacity() - heap_.mapped();
  report.limit = fraction_ < 1.0 ? limit() : 0;
  report.allocated = allocated;
  report.reserved = reserved;
  report.host_error = host_error;
  const auto visit = [&](const Block* block) {
    if (block->state == Block::State::kUsed) report.add_holder(block->size, block->op);
  };
  for (const Block* block = arena_first_; block != nullptr; block = block->next) visit(block);
  for (const auto& segment : segments_) {
    for (const Block* block = segment ? segment->first : nullptr; block != nullptr; block = block->next) visit(block);
  }
  note(Action::OOM, reinterpret_cast<const char*>(report.free), requested, device::current_stream(core_), nullptr);
  lock.unlock();
  c10::reportOutOfMemoryToProfiler(requested, allocated, reserved, c10::Device(kNeuron, core_));
  TORCH_CHECK_WITH(OutOfMemoryError, false, report.message());
}

}  // namespace neuron::aten
