// Attention, forward and backward, with all that scaled_dot_product_attention takes: masks and their gradient, dropout,
// grouped queries, values of another width than the keys. flash.h has the quick form for float32.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace neuron::engine {

// CPU tensors (aliases of device memory) of one floating dtype, last dimension dense:
//   q (batch, heads, L, E); k (batch, heads / group, S, E); v (batch, heads / group, S, Ev);
//   mask: added to the scores, broadcasts to (batch, heads, L, S); undefined for none.
// Element i of the (batch, heads, L, S) dropout mask depends on (seed, offset, i) alone.
struct Attention {
  at::Tensor q, k, v, mask;
  bool causal = false;
  std::optional<double> scale;  // default 1 / sqrt(E)
  double dropout = 0.0;
  uint64_t seed = 0, offset = 0;
};

// By blocks of batched products of the CPU library, for float64 and for hosts whose BLAS cannot be called from a loop.
// (output (batch, heads, L, Ev), logarithm of each row's sum of exponentials (batch, heads, L)).
// A row whose scores are all -inf gives zeros.
std::tuple<at::Tensor, at::Tensor> attention_forward(const Attention& a);

// Gradients of q, k, v, and of the scores (batch, heads, L, S) where `want_mask`, else undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(const Attention& a,
                                                                              const at::Tensor& grad_out,
                                                                              bool want_mask);

}  // namespace neuron::engine
