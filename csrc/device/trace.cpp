#include "device/trace.h"

#include <algorithm>

#include "device/clock.h"
#include "device/environment.h"

namespace neuron::device {
namespace {

constexpr uint64_t kDefaultLength = 65536;
constexpr uint64_t kMaxLength = 1u << 24;  // about 3.5 GB of records

uint64_t oldest(const Ring& ring) {
  const uint64_t held = std::min(ring.next, ring.capacity);
  return std::max(ring.first, ring.next - held);
}

}  // namespace

std::vector<LaunchRecord> trace_snapshot() {
  Clock& c = clock();
  std::vector<LaunchRecord> records;
  std::lock_guard<std::mutex> lock(c.mutex);
  records.reserve(c.ring.next - oldest(c.ring));
  for (uint64_t i = oldest(c.ring); i < c.ring.next; ++i) records.push_back(c.ring.slots[i % c.ring.capacity]);
  return records;
}

void trace_clear() {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.ring.first = c.ring.next;
}

uint64_t trace_dropped() {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return oldest(c.ring) - c.ring.first;
}

uint64_t trace_capacity() {
  static const uint64_t length =
      environment_number("TORCH_NEURONX_TRACE_LENGTH", 1, kMaxLength).value_or(kDefaultLength);
  return length;
}

}  // namespace neuron::device
