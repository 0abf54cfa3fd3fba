// Attention in float32 by blocks of rows whose scores stay in the cache; above a causal diagonal nothing is computed.
#pragma once
#include "engine/attention.h"

namespace neuron::engine {

// True where the host's BLAS can be called from inside a thread of a loop: the functions below need it.
bool flash_present();

// As attention_forward() and attention_backward(), for float32. The output's memory is in the order of q's
// dimensions. Backward makes the probabilities again from `sums`, the forward pass's second result.
std::tuple<at::Tensor, at::Tensor> flash_forward(const Attention& a);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_backward(const Attention& a,
                                                                          const at::Tensor& grad_out,
                                                                          const at::Tensor& sums, bool want_mask);

}  // namespace neuron::engine
