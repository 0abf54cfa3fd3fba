// Vector programs on any processor: SSE2 on x86-64, NEON on aarch64. Compiled with the flags that CMakeLists.txt gives
// this file.
#define NEURON_LANES 4
#define NEURON_MACHINE "portable"
#include "engine/vector/handlers.inc"

namespace neuron::engine::vector {

const Machine& portable_machine() {
  static const Machine m = make();
  return m;
}

}  // namespace neuron::engine::vector
