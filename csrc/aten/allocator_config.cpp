#include "aten/allocator_config.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "aten/block.h"

namespace neuron::aten {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr const char* kVariable = "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG";

struct SegmentConfig {
  std::optional<size_t> max_split_size, max_non_split_rounding;
};

// "kMaxSplitSizeBytes=268435456,kMaxNonSplitRoundingBytes=67108864"
SegmentConfig parse(const std::string& text) {
  SegmentConfig config;
  const struct {
    const char* name;
    std::optional<size_t>& value;
  } options[] = {{"kMaxSplitSizeBytes", config.max_split_size},
                 {"kMaxNonSplitRoundingBytes", config.max_non_split_rounding}};
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const size_t equals = pair.find('=');
    const std::string name = pair.substr(0, equals);
    bool known = false;
    for (const auto& option : options) {
      if (name != option.name) continue;
      known = true;
      const std::string number = equals == std::string::npos ? "" : pair.substr(equals + 1);
      size_t value = 0;
      const char* end = number.data() + number.size();
      const auto [stop, error] = std::from_chars(number.data(), end, value);
      TORCH_CHECK_VALUE(error == std::errc() && stop == end, kVariable, "=", text, " is not valid: ", name, " takes a ",
                        "number of bytes, but got '", number, "'.");
      option.value = value;
    }
    TORCH_CHECK_VALUE(known, kVariable, "=", text, " is not valid: there is no option '", name, "'. It takes ",
                      "kMaxSplitSizeBytes=<bytes> and kMaxNonSplitRoundingBytes=<bytes>, separated by a comma.");
  }
  TORCH_CHECK_VALUE(!config.max_split_size || *config.max_split_size >= kSmallLimit, kVariable, "=", text,
                    " is not valid: kMaxSplitSizeBytes has to be at least ", kSmallLimit, " (1 MiB).");
  return config;
}

const SegmentConfig& own_config() {
  static const SegmentConfig config = [] {
    const char* text = std::getenv(kVariable);
    return parse(text == nullptr ? "" : text);
  }();
  return config;
}

}  // namespace

size_t max_split_size() {
  const auto& own = own_config().max_split_size;
  return own ? *own : AcceleratorAllocatorConfig::max_split_size();
}

AllocatorConfig allocator_config() {
  const auto rounding = own_config().max_non_split_rounding;
  return {max_split_size(), rounding ? *rounding : AcceleratorAllocatorConfig::max_non_split_rounding_size(),
          AcceleratorAllocatorConfig::garbage_collection_threshold()};
}

size_t round_size(size_t bytes) {
  if (bytes < kGranule) return kGranule;
  // One number for each power of two from 1 MiB to 64 GiB. AcceleratorAllocatorConfig has a function for this, which
  // costs as much as the rest of a small allocation.
  static const std::vector<size_t>& intervals = AcceleratorAllocatorConfig::roundup_power2_divisions();
  constexpr size_t kFirst = 20;
  const size_t log = std::bit_width(bytes) - 1;
  const size_t interval = std::min(log < kFirst ? 0 : log - kFirst, intervals.size() - 1);
  const size_t divisions = intervals.empty() ? 0 : intervals[interval];
  if (divisions > 1 && bytes > kGranule * divisions) {
    // The next of `divisions` equal steps between two powers of two; each step is a multiple of the granule here.
    const size_t step = std::bit_floor(bytes) / std::bit_floor(divisions);
    return (bytes + step - 1) / step * step;
  }
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace neuron::aten
