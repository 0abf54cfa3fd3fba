#include "aten/out_of_memory.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "device/host_memory.h"

namespace neuron::aten {

std::string OutOfMemory::message() const {
  using device::format_bytes;
  std::ostringstream text;
  if (!host_error.empty()) {
    text << host_error << " neuron:" << core << " was asked for " << format_bytes(requested) << " and holds "
         << format_bytes(allocated) << " allocated by PyTorch.";
  } else {
    text << "NEURON out of memory. Tried to allocate " << format_bytes(requested) << ". neuron:" << core
         << " has a total capacity of " << format_bytes(capacity) << " of which " << format_bytes(free) << " is free. ";
    if (limit > 0) text << format_bytes(limit) << " allowed; ";
    text << "Of the allocated memory " << format_bytes(allocated) << " is allocated by PyTorch, and "
         << format_bytes(reserved - std::min(reserved, allocated)) << " is reserved by PyTorch but unallocated.";
  }
  std::vector<std::pair<std::pair<uint64_t, std::string>, uint64_t>> rows(holders_.begin(), holders_.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first.first * a.second > b.first.first * b.second; });
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const auto& [key, count] = rows[i];
    text << (i == 0 ? " Largest holders: " : ", ") << count << " x " << format_bytes(key.first);
    if (!key.second.empty()) text << " from " << key.second;
  }
  if (!rows.empty()) text << (rows.size() > kShown ? ", ..." : ".");
  if (host_error.empty()) {
    text << " Use a smaller batch or model, activation checkpointing or bfloat16; drop references to tensors that are "
            "no longer needed";
    if (limit > 0) text << "; or raise torch.neuron.set_per_process_memory_fraction";
    text << ". torch.neuron.memory_summary() and torch.neuron.memory._dump_snapshot() show who holds what.";
  }
  return text.str();
}

}  // namespace neuron::aten
