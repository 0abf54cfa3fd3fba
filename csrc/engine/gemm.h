// Which library of the host multiplies matrices. Decided once per process by timing both, at the first product that is
// big enough to matter; TORCH_NEURONX_GEMM=auto|mkl|onednn overrides the float32 choice.
#pragma once
#include <ATen/core/Tensor.h>

namespace neuron::engine {

// The tensors of all functions are CPU tensors (aliases of device memory). 2-D operands unless said otherwise.

// True where products of this 16-bit type run faster as float32 with one rounding of the result: on CPUs without
// bfloat16 (float16) instructions the library's own kernel is 20 to 40 times slower than float32.
bool widen(at::ScalarType type);

// out = a @ b in float32 (out is overwritten), by oneDNN where that is faster and present; false: use ATen.
bool onednn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta, float alpha);

}  // namespace neuron::engine
