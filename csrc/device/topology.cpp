#include "device/topology.h"

#include <algorithm>
#include <stdexcept>

#include "device/chip.h"
#include "device/environment.h"
#include "device/trace.h"

namespace neuron::device {
namespace {

constexpr const char* kInstanceVariable = "TORCH_NEURONX_INSTANCE_TYPE";
constexpr const char* kChipVariable = "NEURON_PLATFORM_TARGET_OVERRIDE";
constexpr const char* kLncVariable = "NEURON_LOGICAL_NC_CONFIG";
constexpr const char* kOldLncVariable = "NEURON_RT_VIRTUAL_CORE_SIZE";
constexpr const char* kVisibleVariable = "NEURON_RT_VISIBLE_CORES";
constexpr const char* kCountVariable = "NEURON_RT_NUM_CORES";
constexpr const char* kRankVariable = "LOCAL_RANK";

template <typename T>
std::string names(std::span<const T> table) {
  std::string text = "one of ";
  for (size_t i = 0; i < table.size(); ++i) text += (i == 0 ? "" : ", ") + std::string(table[i].name);
  return text;
}

const InstanceType& read_instance() {
  if (const auto name = environment(kInstanceVariable)) {
    if (const InstanceType* instance = find_instance(*name)) return *instance;
    bad_value(kInstanceVariable, *name, names(instances()));
  }
  if (const auto chip = environment(kChipVariable)) {
    if (const InstanceType* instance = smallest_instance(*chip)) return *instance;
    bad_value(kChipVariable, *chip, names(chips()));
  }
  return *find_instance(default_instance());
}

int read_lnc() {
  const auto lnc = environment_number(kLncVariable, 1, 2);
  const auto old = environment_number(kOldLncVariable, 1, 2);
  if (lnc && old && *lnc != *old) {
    bad_value(kOldLncVariable, std::to_string(*old),
              std::to_string(*lnc) + ", the value of " + kLncVariable + ", of which it is the older spelling",
              "Unset it.");
  }
  return static_cast<int>(lnc.value_or(old.value_or(2)));
}

// "0-2,5" -> 0, 1, 2, 5, in this order.
std::vector<int> read_visible(const std::string& text, int logical_cores, const std::string& machine) {
  const std::string allowed = "core numbers and ranges from 0 to " + std::to_string(logical_cores - 1) +
                              " without repetition, as in 0-2,5 (" + machine + ")";
  std::vector<int> visible;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    std::string part = text.substr(start, comma - start);
    std::erase(part, ' ');
    start = comma + 1;
    const size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_number(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= static_cast<uint64_t>(logical_cores)) {
      bad_value(kVisibleVariable, text, allowed);
    }
    for (int core = static_cast<int>(*first); core <= static_cast<int>(*last); ++core) {
      if (std::find(visible.begin(), visible.end(), core) != visible.end()) bad_value(kVisibleVariable, text, allowed);
      visible.push_back(core);
    }
  }
  return visible;
}

Topology read_topology() {
  const InstanceType& instance = read_instance();
  Topology t;
  t.instance = instance.name;
  t.chip = find_chip(instance.chip);
  t.chips = static_cast<int>(instance.chips);
  t.lnc = read_lnc();
  const int per_chip = static_cast<int>(t.chip->cores) / t.lnc;
  t.logical_cores = t.chips * per_chip;
  t.hbm_bytes_per_core = t.chip->hbm_bytes / static_cast<uint64_t>(per_chip);

  const std::string machine =
      t.instance + " has " + std::to_string(t.logical_cores) + " logical cores at LNC " + std::to_string(t.lnc);
  if (const auto text = environment(kVisibleVariable)) {
    t.visible = read_visible(*text, t.logical_cores, machine);
  } else {
    const auto count = environment_number(kCountVariable, 0, static_cast<uint64_t>(t.logical_cores)).value_or(0);
    t.visible.resize(count == 0 ? static_cast<size_t>(t.logical_cores) : count);
    for (size_t i = 0; i < t.visible.size(); ++i) t.visible[i] = static_cast<int>(i);
  }
  if (t.visible.size() > static_cast<size_t>(kMaxVisibleCores)) {
    throw std::invalid_argument("This process would see " + std::to_string(t.visible.size()) + " logical cores (" +
                                machine + "), and a device index goes to " + std::to_string(kMaxVisibleCores - 1) +
                                ". Set " + kCountVariable + " or " + kVisibleVariable + " to use at most " +
                                std::to_string(kMaxVisibleCores) + " of them, or " + kLncVariable + "=2.");
  }
  // A launcher's rank chooses among the cores: libraries that count on that never set a device (accelerate).
  t.initial_core = static_cast<int>(environment_number(kRankVariable, 0, INT32_MAX).value_or(0) % t.visible.size());

  trace_capacity();  // throws for a bad value here, where it can be reported; a launch has nobody to tell
  return t;
}

thread_local int current = -1;  // -1: this thread has not chosen

}  // namespace

const Topology& topology() {
  static const Topology t = read_topology();
  return t;
}

int current_core() noexcept {
  if (current >= 0) [[likely]] {
    return current;
  }
  try {
    return current = topology().initial_core;
  } catch (...) {
    return 0;  // the first use of the device reports what is wrong
  }
}

void set_current_core(int core) noexcept { current = core; }

}  // namespace neuron::device
