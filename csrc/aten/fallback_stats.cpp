#include "aten/fallback_stats.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <set>

#include "aten/boundary.h"

namespace neuron::aten {
namespace {

struct Stats {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::pair<uint64_t, uint64_t>> rows;  // (op, kind) -> (count, bytes)
  std::set<std::string> warned;
};
Stats& stats() {
  static auto* s = new Stats();
  return *s;
}

Policy policy_from_environment() {
  const char* value = std::getenv("TORCH_NEURONX_FALLBACK");
  const std::string text = value == nullptr ? "warn" : value;
  if (text == "allow") return Policy::kAllow;
  if (text == "warn" || text.empty()) return Policy::kWarn;
  if (text == "raise") return Policy::kRaise;
  TORCH_CHECK_VALUE(false, "TORCH_NEURONX_FALLBACK=", text, " is not one of allow, warn, raise");
}

std::atomic<int> policy{-1};

// True the first time for this key.
bool first_time(const std::string& key) {
  std::lock_guard<std::mutex> lock(stats().mutex);
  return stats().warned.insert(key).second;
}

void count(const char* op, const char* kind, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(stats().mutex);
  auto& row = stats().rows[{op, kind}];
  row.first += 1;
  row.second += bytes;
}

}  // namespace

Policy fallback_policy() {
  int p = policy.load(std::memory_order_relaxed);
  if (p < 0) {
    p = static_cast<int>(policy_from_environment());
    policy.store(p);
  }
  return static_cast<Policy>(p);
}

void set_fallback_policy(Policy p) { policy.store(static_cast<int>(p)); }

void before_fallback(const char* op_name) {
  switch (fallback_policy()) {
    case Policy::kRaise:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "The operator '", op_name,
          "' is not implemented for the neuron device, and TORCH_NEURONX_FALLBACK=raise forbids "
          "running it on the CPU. Replace the operator, or set TORCH_NEURONX_FALLBACK=warn.");
    case Policy::kWarn:
      if (first_time(op_name)) {
        TORCH_WARN(
            "The operator '", op_name,
            "' is not implemented for the neuron device and falls back to the CPU: its tensors are copied to the "
            "host and back. torch_neuronx.fallbacks() counts such calls; TORCH_NEURONX_FALLBACK=raise forbids "
            "them.");
      }
      break;
    case Policy::kAllow:
      break;
  }
}

void count_fallback(const char* op_name, uint64_t bytes) { count(op_name, "operator", bytes); }

void note_dtype(const char* op_name, at::ScalarType dtype, uint64_t bytes) {
  if (fallback_policy() == Policy::kRaise) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "'", op_name, "' was called with ", dtype,
        ", a type that Trainium does not compute in, and TORCH_NEURONX_FALLBACK=raise forbids it. "
        "Use float32, or set TORCH_NEURONX_FALLBACK=warn.");
  }
  count(op_name, "dtype", bytes);
  if (fallback_policy() == Policy::kWarn && first_time(std::string("dtype ") + c10::toString(dtype))) {
    TORCH_WARN(
        "'", op_name, "' computes in ", dtype,
        ", which Trainium does not have. The result is right, but this would not run natively there. Further uses "
        "are counted in torch_neuronx.fallbacks() without a warning.");
  }
}

std::vector<FallbackRow> fallback_stats() {
  std::lock_guard<std::mutex> lock(stats().mutex);
  std::vector<FallbackRow> rows;
  for (const auto& [key, value] : stats().rows) rows.push_back({key.first, key.second, value.first, value.second});
  return rows;
}

void reset_fallbacks() {
  std::lock_guard<std::mutex> lock(stats().mutex);
  stats().rows.clear();
}

}  // namespace neuron::aten
