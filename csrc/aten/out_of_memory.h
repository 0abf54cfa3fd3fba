// What an out-of-memory error says.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace neuron::aten {

struct OutOfMemory {
  int core = 0;
  uint64_t requested = 0;  // bytes, as all below
  uint64_t capacity = 0;
  uint64_t free = 0;   // not mapped
  uint64_t limit = 0;  // set_memory_fraction(), or 0
  int64_t allocated = 0, reserved = 0;
  std::string host_error;  // the host could not back the memory: its message; empty otherwise

  void add_holder(uint64_t size, const char* op) { ++holders_[{size, op == nullptr ? "" : op}]; }
  std::string message() const;  // close to CUDA's, then the largest holders and the remedies

 private:
  std::map<std::pair<uint64_t, std::string>, uint64_t> holders_;  // (block size, operator) -> blocks
};

}  // namespace neuron::aten
