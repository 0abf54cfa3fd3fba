// Vector programs on AVX-512 (F, BW, DQ, VL). Compiled with the flags that CMakeLists.txt gives this file.
#define NEURON_LANES 16
#define NEURON_MACHINE "avx512"
#include "engine/vector/handlers.inc"

namespace neuron::engine::vector {

const Machine& avx512_machine() {
  static const Machine m = make();
  return m;
}

}  // namespace neuron::engine::vector
