// The usual path: blocks out of the cache and back into it.
#include "aten/core_allocator.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "aten/allocator_config.h"
#include "aten/kernel.h"

namespace neuron::aten {

using c10::CachingDeviceAllocator::RecordContext;

// The small pool's segments come first, as many as could ever be mapped; the arena has the rest of the window.
CoreAllocator::CoreAllocator(int core)
    : core_(core),
      heap_(device::heap(core)),
      arena_(heap_.base() + (heap_.capacity() + kSegment - 1) / kSegment * kSegment),
      used_large_(
          static_cast<Block**>(std::calloc((heap_.base() + heap_.window() - arena_) / kSmallLimit, sizeof(Block*)))) {
  const auto bytes = static_cast<size_t>(heap_.base() + heap_.window() - arena_);
  arena_first_ = store_.make(arena_, bytes, kNoStream, Block::State::kGap);
  large_.insert(arena_first_);
}

void CoreAllocator::fail_pointer(const void* ptr) const {
  TORCH_CHECK(false, "invalid device pointer: ", ptr, " is not the start of a block of neuron:", core_,
              " that is in use");
}

SmallIndex& CoreAllocator::small_index(device::StreamId stream) {
  if (last_small_.first != stream) {
    auto& index = small_[stream];
    if (!index) index = std::make_unique<SmallIndex>();
    last_small_ = {stream, index.get()};
  }
  return *last_small_.second;
}

// Where the block in use that starts at `ptr` is written down.
Block*& CoreAllocator::used_at(const char* ptr) {
  const size_t offset = ptr - heap_.base();
  if (ptr >= arena_) return used_large_[(ptr - arena_) / kSmallLimit];
  const size_t i = offset / kSegment;
  if (C10_UNLIKELY(i >= segments_.size() || !segments_[i])) fail_pointer(ptr);
  return segments_[i]->at[offset % kSegment / kGranule];
}

void CoreAllocator::insert_free(Block* block) {
  block->index != nullptr ? block->index->insert(block) : large_.insert(block);
}
void CoreAllocator::remove_free(Block* block) {
  block->index != nullptr ? block->index->remove(block) : large_.remove(block);
}

void CoreAllocator::link_after(Block* block, Block* prev) {
  block->prev = prev;
  block->next = prev->next;
  if (prev->next != nullptr) prev->next->prev = block;
  prev->next = block;
}
void CoreAllocator::link_before(Block* block, Block* next) {
  block->next = next;
  block->prev = next->prev;
  if (next->prev != nullptr) next->prev->next = block;
  next->prev = block;
  if (arena_first_ == next) arena_first_ = block;
}
void CoreAllocator::unlink(Block* block) {
  if (block->prev != nullptr) block->prev->next = block->next;
  if (block->next != nullptr) block->next->prev = block->prev;
  if (arena_first_ == block) arena_first_ = block->next;
}

Block* CoreAllocator::find(size_t size, device::StreamId stream) {
  if (size < kSmallLimit) {
    for (Recent& recent : recent_) {
      if (recent.size == size && recent.stream == stream) {
        recent.size = 0;
        return recent.block;
      }
    }
    SmallIndex& index = small_index(stream);
    Block* const block = index.best_fit(size);
    return block != nullptr || !settle_recent() ? block : index.best_fit(size);
  }
  Block* const block = large_.best_fit(stream, size);
  if (block == nullptr) return nullptr;
  const size_t whole = max_split_size();
  if (block->size < whole) return block;
  const bool close = size >= whole && block->size - size < allocator_config().max_non_split_rounding;
  return close ? block : nullptr;
}

// Joins the blocks that were freed a moment ago with their neighbours. False: there were none.
bool CoreAllocator::settle_recent() {
  bool any = false;
  for (Recent& recent : recent_) {
    if (recent.size != 0) settle(recent.block);
    any |= recent.size != 0;
    recent.size = 0;
  }
  return any;
}

void CoreAllocator::settle(Block* block) {
  counters_.inactive_split.down(/*small=*/true, 1);  // merge() counts what comes of it
  counters_.inactive_split_bytes.down(/*small=*/true, block->size);
  block->state = Block::State::kFree;
  insert_free(merge(block));
}

void CoreAllocator::use(Block* block, size_t size, size_t requested) {
  if (block->state == Block::State::kFree) remove_free(block);
  const bool small = block->small();
  const bool oversize = !small && size >= max_split_size();
  const bool was_split = block->split();
  if (block->size > size && !oversize) {
    Block* const rest =
        store_.make(block->ptr + size, block->size - size, block->stream, Block::State::kFree, block->index);
    rest->freed_at = block->freed_at;
    block->size = size;
    link_after(rest, block);
    insert_free(rest);
    if (small) {
      if (!was_split) counters_.inactive_split.up(small, 1);
      counters_.inactive_split_bytes.change(small,
                                            was_split ? -static_cast<int64_t>(size) : static_cast<int64_t>(rest->size));
    }
  } else if (small) {
    counters_.inactive_split.down(small, 1);
    counters_.inactive_split_bytes.down(small, block->size);
  }
  block->state = Block::State::kUsed;
  block->requested = requested;
  block->op = current_op();
  used_at(block->ptr) = block;
  counters_.allocation.up(small, 1);
  counters_.allocated_bytes.up(small, block->size);
  counters_.active.up(small, 1);
  counters_.active_bytes.up(small, block->size);
  counters_.requested_bytes.up(small, requested);
  if (oversize) stats_.oversize_allocations.increase(1);
}

// Joins a free block that is in no index with its free neighbours; returns the joined block, in no index either.
Block* CoreAllocator::merge(Block* block) {
  const size_t largest = block->small() ? SIZE_MAX : max_split_size();
  int64_t pieces = 0, bytes = 0;
  const auto joins = [&](const Block* other) {
    return other != nullptr && other->state == Block::State::kFree && other->stream == block->stream &&
           (largest == SIZE_MAX || block->size + other->size < largest);
  };
  if (Block* const prev = block->prev; joins(prev)) {
    remove_free(prev);
    --pieces;
    bytes -= static_cast<int64_t>(prev->size);
    prev->size += block->size;
    prev->freed_at = block->freed_at;
    unlink(block);
    store_.recycle(block);
    block = prev;
  }
  if (Block* const next = block->next; joins(next)) {
    remove_free(next);
    --pieces;
    bytes -= static_cast<int64_t>(next->size);
    block->size += next->size;
    unlink(next);
    store_.recycle(next);
  }
  if (block->small()) {
    counters_.inactive_split.change(block->small(), pieces + (block->split() ? 1 : 0));
    counters_.inactive_split_bytes.change(block->small(),
                                          bytes + (block->split() ? static_cast<int64_t>(block->size) : 0));
  }
  return block;
}

void CoreAllocator::finish_free(Block* block) {
  note(Action::FREE_COMPLETED, block->ptr, block->requested, block->stream, block->context);
  block->context.reset();
  block->freed_at = ++tick_;
  counters_.active.down(block->small(), 1);
  counters_.active_bytes.down(block->small(), block->size);
  counters_.requested_bytes.down(block->small(), block->requested);
  if (block->small()) {
    // The next allocation of this size is often near: splitting and joining can be spared then.
    block->state = Block::State::kRecent;
    counters_.inactive_split.up(/*small=*/true, 1);
    counters_.inactive_split_bytes.up(/*small=*/true, block->size);
    Recent& slot = recent_[recent_next_++ % std::size(recent_)];
    if (slot.size != 0) settle(slot.block);
    slot = {block->size, block->stream, block};
    return;
  }
  if (block->size >= max_split_size()) stats_.oversize_allocations.decrease(1);
  block->state = Block::State::kFree;
  insert_free(merge(block));
}

void* CoreAllocator::allocate(size_t bytes, device::StreamId stream) {
  constexpr size_t kExa = size_t{1} << 60;
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kExa, "NEURON out of memory. Tried to allocate more than 1EB memory.");
  const size_t size = round_size(bytes);
  Context context = gather_stack(RecordContext::STATE);
  Lock lock(mutex_);
  if (!waiting_.empty()) process_events();
  Block* block = find(size, stream);
  if (block == nullptr) block = grow(size, stream, bytes, lock);
  use(block, size, bytes);
  note(Action::ALLOC, block->ptr, bytes, stream, context);
  block->context = std::move(context);
  char* const ptr = block->ptr;
  const int64_t taken = static_cast<int64_t>(block->size);
  const int64_t allocated = counters_.allocated_bytes.current();
  const int64_t reserved = counters_.reserved_bytes.current();
  lock.unlock();
  c10::reportMemoryUsageToProfiler(ptr, taken, allocated, reserved, c10::Device(kNeuron, core_));
  return ptr;
}

void CoreAllocator::free(void* pointer) {
  Context context = gather_stack(RecordContext::ALL);
  Lock lock(mutex_);
  char* const ptr = static_cast<char*>(pointer);
  Block*& slot = used_at(ptr);
  Block* const block = slot;
  if (C10_UNLIKELY(block == nullptr || block->ptr != ptr)) fail_pointer(pointer);
  slot = nullptr;
  const int64_t size = static_cast<int64_t>(block->size);
  counters_.allocation.down(block->small(), 1);
  counters_.allocated_bytes.down(block->small(), size);
  note(Action::FREE_REQUESTED, ptr, block->requested, block->stream, context ? context : block->context);
  if (block->uses.empty()) {
    finish_free(block);
  } else {
    block->state = Block::State::kWaiting;
    for (const auto& use : block->uses) {
      Waiting waiting{{}, block};
      device::record(waiting.event, use.first, use.second);
      waiting_[use].push_back(std::move(waiting));
      ++block->events;
    }
    block->uses.clear();
  }
  const int64_t allocated = counters_.allocated_bytes.current();
  const int64_t reserved = counters_.reserved_bytes.current();
  lock.unlock();
  c10::reportMemoryUsageToProfiler(pointer, -size, allocated, reserved, c10::Device(kNeuron, core_));
}

void CoreAllocator::record_stream(void* ptr, int stream_core, device::StreamId stream) {
  Lock lock(mutex_);
  Block* const block = used_at(static_cast<char*>(ptr));
  if (block == nullptr || block->ptr != ptr) fail_pointer(ptr);
  if (stream_core == core_ && stream == block->stream) return;
  const std::pair use{stream_core, stream};
  if (std::find(block->uses.begin(), block->uses.end(), use) == block->uses.end()) block->uses.push_back(use);
}

void CoreAllocator::process_events() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& queue = it->second;
    while (!queue.empty() && device::passed(queue.front().event)) {
      Block* const block = queue.front().block;
      queue.pop_front();
      if (--block->events == 0) finish_free(block);
    }
    it = queue.empty() ? waiting_.erase(it) : std::next(it);
  }
}

void CoreAllocator::synchronize_events() {
  ++stats_.num_sync_all_streams;
  for (const auto& [stream, queue] : waiting_) device::synchronize(queue.back().event);
  process_events();
}

void CoreAllocator::add_to_trace(Action action, const char* addr, size_t size, device::StreamId stream,
                                 const Context& context) {
  const HistorySettings settings = history();
  if (!settings.events || (settings.skipped >> action & 1) != 0) return;
  const bool with_stack = settings.context >= RecordContext::ALLOC;
  trace_.add(
      TraceEntry(action, static_cast<c10::DeviceIndex>(core_), reinterpret_cast<size_t>(addr), size,
                 reinterpret_cast<void*>(stream), {0, 0}, c10::getApproximateTime(), with_stack ? context : nullptr),
      settings.max_entries);
}

}  // namespace neuron::aten
