// The host's BLAS, and the threads that kernels use.
#pragma once
#include <cstdint>

namespace neuron::engine {

// Threads for a loop of this thread: PyTorch's setting, or 1 inside a loop that is parallel already.
int host_threads();

// Column-major single precision product, by the Fortran interface. Integers go as 64 bits, of which a BLAS with 32-bit
// integers reads the low half; sizes stay below 2^31.
using Sgemm = void (*)(const char* transa, const char* transb, const int64_t* m, const int64_t* n, const int64_t* k,
                       const float* alpha, const float* a, const int64_t* lda, const float* b, const int64_t* ldb,
                       const float* beta, float* c, const int64_t* ldc);

// The sgemm inside libtorch_cpu (MKL, or OpenBLAS on aarch64), or nullptr where it is not exported. Another BLAS of the
// process is not taken: it may sum in another order.
Sgemm sgemm();

// While alive, BLAS calls of this thread stay in it: the loop around them is what is parallel.
class SerialBlas {
 public:
  SerialBlas();
  ~SerialBlas();
  SerialBlas(const SerialBlas&) = delete;
  SerialBlas& operator=(const SerialBlas&) = delete;

 private:
  int previous_;
};

// The same for loops of the host library that OpenMP would divide.
class SerialOpenMp {
 public:
  SerialOpenMp();
  ~SerialOpenMp();
  SerialOpenMp(const SerialOpenMp&) = delete;
  SerialOpenMp& operator=(const SerialOpenMp&) = delete;

 private:
  int previous_;
};

}  // namespace neuron::engine
