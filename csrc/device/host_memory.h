// What the host can back: the emulated HBM is host memory, and a laptop has less of it than the chip.
#pragma once
#include <cstdint>
#include <string>

namespace neuron::device {

struct HostMemory {
  uint64_t total = 0;      // bytes: RAM, or the limit of the control group where that is lower
  uint64_t available = 0;  // bytes that can still be used without swapping or hitting that limit
};

// Reads /proc/meminfo and the control groups (v1 and v2) of this process. A host without them has no limit: both
// fields are then UINT64_MAX. `root` is prepended to every path; tests give a directory of their own.
HostMemory host_memory(const std::string& root = "");

std::string format_bytes(uint64_t bytes);  // "2.00 GiB", in the words of PyTorch's out-of-memory errors

}  // namespace neuron::device
