// Which chip is emulated, how many logical cores this process sees, and which of them is current.
// Parsed once, at first use, from NEURON_* environment variables; a bad value throws std::invalid_argument
// that names the variable, the value, what is allowed and the remedy.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace neuron::device {

struct ChipSpec;  // chip.h: numbers of one chip generation, generated from src/torch_neuronx/chips

struct Topology {
  std::string instance;             // "trn2.3xlarge", ...
  const ChipSpec* chip = nullptr;   //
  int chips = 0;                    // chips in the instance
  int lnc = 0;                      // physical cores that make one logical core (1 or 2)
  int logical_cores = 0;            // logical cores of the whole instance
  std::vector<int> visible;         // ids of those this process sees: device index -> logical core id
  uint64_t hbm_bytes_per_core = 0;  // bytes of HBM of one logical core
  int initial_core = 0;             // device index a thread starts with: LOCAL_RANK modulo the visible cores
};

constexpr int kMaxVisibleCores = 127;  // a device index of PyTorch has 8 bits

const Topology& topology();
inline int core_count() { return static_cast<int>(topology().visible.size()); }

// The calling thread's current core (device index, 0-based among the visible ones). set_current_core does not check.
int current_core() noexcept;
void set_current_core(int core) noexcept;

}  // namespace neuron::device
