#include "engine/vector/machine.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace neuron::engine::vector {

const Machine& portable_machine();
#if defined(__x86_64__)
const Machine& avx2_machine();
const Machine& avx512_machine();
#endif

const Machine* find_machine(const char* name) {
#if defined(__x86_64__)
  if (std::strcmp(name, "avx512") == 0) {
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return has ? &avx512_machine() : nullptr;
  }
  if (std::strcmp(name, "avx2") == 0) {
    const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    return has ? &avx2_machine() : nullptr;
  }
#endif
  return std::strcmp(name, "portable") == 0 ? &portable_machine() : nullptr;
}

const Machine& machine() {
  static const Machine& best = []() -> const Machine& {
    const char* asked = std::getenv("TORCH_NEURONX_VECTOR_ISA");
    if (asked != nullptr) {
      if (const Machine* m = find_machine(asked)) return *m;
    }
    for (const char* name : {"avx512", "avx2"}) {
      if (const Machine* m = find_machine(name)) return *m;
    }
    return portable_machine();
  }();
  return best;
}

}  // namespace neuron::engine::vector
