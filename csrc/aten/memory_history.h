// What the memory history records: settings shared by all cores, and one core's ring of the latest events.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace neuron::aten {

struct HistorySettings {
  using TraceEntry = c10::CachingDeviceAllocator::TraceEntry;
  bool events = false;      // keep alloc/free events, not only the stacks of live blocks
  bool cpp_stacks = false;  // C++ frames beside those of Python
  c10::CachingDeviceAllocator::RecordContext context = c10::CachingDeviceAllocator::RecordContext::NEVER;
  size_t max_entries = 0;  // per core
  uint32_t skipped = 0;    // bit i: TraceEntry::Action(i) is not recorded
};

// Starts or stops recording. The settings are read by every thread without a lock.
void set_history(const HistorySettings& settings);
HistorySettings history();

namespace detail {
extern std::atomic<bool> recording;
}
inline bool recording_history() noexcept { return detail::recording.load(std::memory_order_relaxed); }

// The stack of the calling thread if recording asks for stacks at `level`, else nullptr. Takes the GIL, so it must not
// be called while a core's allocator is locked.
std::shared_ptr<c10::GatheredContext> gather_stack_now(c10::CachingDeviceAllocator::RecordContext level);
inline std::shared_ptr<c10::GatheredContext> gather_stack(c10::CachingDeviceAllocator::RecordContext level) {
  return C10_UNLIKELY(recording_history()) ? gather_stack_now(level) : nullptr;
}

// The latest events of one core. Not thread-safe: the core's allocator guards it.
class TraceRing {
 public:
  using TraceEntry = c10::CachingDeviceAllocator::TraceEntry;
  void add(TraceEntry entry, size_t max_entries);
  void clear();
  std::vector<TraceEntry> entries() const;  // oldest first

 private:
  std::vector<TraceEntry> ring_;
  size_t next_ = 0;
};

}  // namespace neuron::aten
