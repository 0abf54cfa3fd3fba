// Which library of the host multiplies matrices. Decided once per process by timing both, at the first product that is
// big enough to matter; TORCH_NEURONX_GEMM=auto|mkl|onednn overrides the float32 choice.
#pragma once
#include <ATen/core/Tensor.h>

namespace neuron::engine {

// The tensors are CPU tensors (aliases of device memory) where nothing else is said.

// True where products of this 16-bit type run faster as float32 with one rounding of the result: on CPUs without
// bfloat16 (float16) instructions the library's own kernel is 20 to 40 times slower than float32.
bool widen(at::ScalarType type);

// True where a float32 product of these sizes is big enough to matter and oneDNN is present, usable and faster.
bool onednn_worthwhile(int64_t m, int64_t n, int64_t k);
// out = alpha * (a @ b) + beta * out for 2-D float32 tensors, where onednn_worthwhile(). beta = 0 ignores what is in
// out.
void onednn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta, float alpha);

// True for products so small that the calls around the product decide.
inline bool is_small(int64_t m, int64_t n, int64_t k) { return m * n * k < 64 * 64 * 64; }
// out = a @ b for small 2-D float32 tensors (of any device); out is dense, row-major. false: not of this kind, nothing
// was written.
bool small_matmul(const at::Tensor& a, const at::Tensor& b, float* out);

// out = alpha * (a @ b) + beta * c for a few rows `a` and a matrix `b` whose columns are dense (a weight of
// nn.Linear, seen transposed), reading b once: such a product costs the memory traffic of b. 2-D tensors of one dtype
// (float32, bfloat16, float16), `out` dense; c is undefined or broadcasts to out. Sums in float32, rounds once.
// false: the shapes are not of this kind, use ATen.
bool few_rows_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& out, float beta,
                     float alpha);

}  // namespace neuron::engine
