// Vector programs on AVX2, FMA and F16C. Compiled with the flags that CMakeLists.txt gives this file.
#define NEURON_LANES 8
#define NEURON_MACHINE "avx2"
#include "engine/vector/handlers.inc"

namespace neuron::engine::vector {

const Machine& avx2_machine() {
  static const Machine m = make();
  return m;
}

}  // namespace neuron::engine::vector
