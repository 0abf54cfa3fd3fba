#include "aten/memory_history.h"

#include <torch/csrc/profiler/combined_traceback.h>

namespace neuron::aten {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {

std::mutex settings_mutex;
HistorySettings settings;

}  // namespace

void set_history(const HistorySettings& value) {
  std::lock_guard<std::mutex> lock(settings_mutex);
  settings = value;
  detail::recording.store(value.events || value.context != c10::CachingDeviceAllocator::RecordContext::NEVER);
}

HistorySettings history() {
  std::lock_guard<std::mutex> lock(settings_mutex);
  return settings;
}

std::shared_ptr<c10::GatheredContext> gather_stack_now(c10::CachingDeviceAllocator::RecordContext level) {
  const HistorySettings now = history();
  if (now.context < level) return nullptr;
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, now.cpp_stacks);
}

void TraceRing::add(TraceEntry entry, size_t max_entries) {
  if (ring_.size() < max_entries) {
    ring_.push_back(std::move(entry));
  } else if (!ring_.empty()) {
    if (next_ >= ring_.size()) next_ = 0;
    ring_[next_++] = std::move(entry);
  }
}

void TraceRing::clear() {
  ring_.clear();
  next_ = 0;
}

std::vector<TraceRing::TraceEntry> TraceRing::entries() const {
  std::vector<TraceEntry> result;
  result.reserve(ring_.size());
  for (size_t i = 0; i < ring_.size(); ++i) result.push_back(ring_[(next_ + i) % ring_.size()]);
  return result;
}

}  // namespace neuron::aten
