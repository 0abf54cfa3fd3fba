// The second derivative of attention. PyTorch's formula for the backward of a fused attention is "not implemented";
// where a graph of the backward is wanted, the gradients are composed of differentiable operators instead.
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>

#include "aten/kernel.h"
#include "engine/blas.h"
#include "engine/random.h"

namespace neuron::aten {
namespace {

using at::Tensor;
using Backward = at::_ops::_scaled_dot_product_fused_attention_overrideable_backward;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Repeats the heads of keys or values for the queries that share them.
Tensor spread(const Tensor& t, int64_t heads) {
  return t.size(-3) == heads ? t : t.repeat_interleave(heads / t.size(-3), -3);
}
// The gradient of what was spread: the sum over the group.
Tensor gather(const Tensor& grad, int64_t heads) {
  if (grad.size(-3) == heads) return grad;
  auto sizes = grad.sizes().vec();
  sizes[sizes.size() - 3] /= sizes[sizes.size() - 3] / heads;
  sizes.insert(sizes.end() - 2, grad.size(-3) / heads);
  return grad.reshape(sizes).sum(-3);
}

// keep / (1 - p) for every score: the numbers that the forward pass dropped by. A constant of the graph.
Tensor dropout_factors(const Tensor& scores, double p, const Tensor& seed, const Tensor& offset) {
  at::NoGradGuard constant;
  const at::Device device = scores.device();
  CoreGuard guard(device.index());
  const engine::Source source{static_cast<uint64_t>(seed.item<int64_t>()),
                              static_cast<uint64_t>(offset.item<int64_t>()), engine::host_threads()};
  KernelScope scope("dropout_factors", device);
  const Tensor factors = at::ones(scores.sizes(), at::TensorOptions().dtype(scores.dtype()));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, factors.scalar_type(), "dropout_factors", [&] {
    scalar_t* data = factors.mutable_data_ptr<scalar_t>();
    engine::dropout(data, data, nullptr, factors.numel(), p, source);
  });
  scope.work() = {.kind = device::Kind::kVector,
                  .element_bytes = static_cast<uint8_t>(factors.element_size()),
                  .write_bytes = factors.nbytes(),
                  .elements = static_cast<uint64_t>(factors.numel())};
  return adopt(factors, device);
}

Gradients composed(const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
                   const Tensor& bias, std::array<bool, 4> wanted, double dropout_p, bool is_causal, const Tensor& seed,
                   const Tensor& offset, std::optional<double> scale) {
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  const int64_t heads = query.size(-3);
  const Tensor k = spread(key, heads), v = spread(value, heads);
  Tensor scores = at::matmul(query * factor, k.mT());
  if (bias.defined()) scores = scores + bias;
  if (is_causal) {
    const double hidden = -std::numeric_limits<double>::infinity();
    scores = scores + at::full({query.size(-2), key.size(-2)}, hidden, query.options()).triu(1);
  }
  const Tensor p = at::_safe_softmax(scores, -1);
  Tensor grad_p = at::matmul(grad_out, v.mT()), dropped = p;
  if (dropout_p > 0.0) {
    const Tensor factors = dropout_factors(scores, dropout_p, seed, offset);
    grad_p = grad_p * factors;
    dropped = p * factors;
  }
  const Tensor grad_scores = p * (grad_p - (grad_p * p).sum(-1, /*keepdim=*/true));
  Tensor grad_bias;
  if (wanted[3] && bias.defined()) grad_bias = grad_scores.sum_to_size(bias.sizes());
  return {at::matmul(grad_scores, k) * factor, gather(at::matmul(grad_scores.mT(), query) * factor, key.size(-3)),
          gather(at::matmul(dropped.mT(), grad_out), value.size(-3)), grad_bias};
}

Gradients backward(c10::DispatchKeySet keys, const Tensor& grad_out, const Tensor& query, const Tensor& key,
                   const Tensor& value, const Tensor& bias, std::array<bool, 4> wanted, const Tensor& out,
                   const Tensor& sums, const Tensor& cum_seq_q, const Tensor& cum_seq_k, c10::SymInt max_q,
                   c10::SymInt max_k, double dropout_p, bool is_causal, const Tensor& seed, const Tensor& offset,
                   std::optional<double> scale) {
  const auto differentiable = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool graph =
      at::GradMode::is_enabled() && (differentiable(grad_out) || differentiable(query) || differentiable(key) ||
                                     differentiable(value) || differentiable(bias));
  if (graph && grad_out.defined()) {
    return composed(grad_out, query, key, value, bias, wanted, dropout_p, is_causal, seed, offset, scale);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return Backward::redispatch(keys & c10::after_autograd_keyset, grad_out, query, key, value, bias, wanted, out, sums,
                              cum_seq_q, cum_seq_k, std::move(max_q), std::move(max_k), dropout_p, is_causal, seed,
                              offset, scale);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", backward);
}

}  // namespace neuron::aten
