// Scaled dot product attention: one launch forward and one backward. On the chip it is a chain of TensorE products
// whose scores stay in SBUF. On the host, the common case runs the CPU library's flash kernel; dropout, a mask that
// wants a gradient and values of another width than the keys run blocks of products (engine/attention.h).
#include "engine/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "aten/philox_generator.h"
#include "engine/flash.h"
#include "engine/gemm.h"

// After the headers above: it declares the stub that F.scaled_dot_product_attention asks.
#include <ATen/native/transformers/attention.h>

namespace neuron::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool given(const OptionalTensor& t) { return t.has_value() && t->defined(); }

bool broadcasts(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  if (mask.dim() < 2 || mask.dim() > query.dim()) return false;
  const auto fits = [&](int64_t dim, const c10::SymInt& size) {
    return mask.sym_size(dim) == 1 || mask.sym_size(dim) == size;
  };
  if (!fits(-1, key.sym_size(-2)) || !fits(-2, query.sym_size(-2))) return false;
  for (int64_t dim = 3; dim <= mask.dim(); ++dim) {
    if (!fits(-dim, query.sym_size(-dim))) return false;
  }
  return true;
}

// What the fused kernels compute; everything else is composed of products and a softmax by PyTorch.
bool fused_applies(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& mask,
                   bool is_causal, bool grouped) {
  const int64_t dims = query.dim();
  if ((dims != 3 && dims != 4) || key.dim() != dims || value.dim() != dims) return false;
  for (const at::Tensor* t : {&query, &key, &value}) {
    if (t->is_nested() || t->layout() != at::kStrided || !on_neuron(*t)) return false;
    for (const auto& size : t->sym_sizes()) {
      if (size == 0) return false;
    }
  }
  if (!at::isFloatingType(query.scalar_type()) || key.scalar_type() != query.scalar_type() ||
      value.scalar_type() != query.scalar_type()) {
    return false;
  }
  if (query.sym_size(-1) != key.sym_size(-1) || key.sym_size(-2) != value.sym_size(-2)) return false;
  if (dims == 4 && (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0))) return false;
  const auto heads = query.sym_size(-3), key_heads = key.sym_size(-3);
  if (key_heads != value.sym_size(-3)) return false;
  if (grouped ? heads % key_heads != 0 : heads != key_heads) return false;
  return !given(mask) || (!is_causal && broadcasts(*mask, query, key));
}

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& mask,
               double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  // The kernel is a flash attention, so whoever allows any of the fused backends gets it.
  const at::Context& context = at::globalContext();
  const bool fused = context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
                     context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
  if (fused && fused_applies(query, key, value, mask, is_causal, enable_gqa)) {
    return static_cast<int64_t>(at::SDPBackend::overrideable);
  }
  if (context.userEnabledMathSDP()) return static_cast<int64_t>(at::SDPBackend::math);
  TORCH_CHECK(false,
              "No available kernel. Aborting execution. The fused attention of neuron takes dense query, key and ",
              "value of 3 or 4 dimensions with one floating dtype, and a mask that broadcasts to the scores; query is ",
              query.sizes(), ", key ", key.sizes(), ", value ", value.sizes(),
              ". Allow torch.nn.attention.SDPBackend.MATH for other cases.");
}

int64_t choose_operator(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const OptionalTensor& mask, double dropout_p, bool is_causal, std::optional<double> scale,
                        bool enable_gqa) {
  return choose(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

// One attention's operands on the host: (batch, heads, sequence, width), widened where 16-bit products are slow.
class Operands {
 public:
  Operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias)
      : widened_(engine::widen(query.scalar_type())), flat_(query.dim() == 3), q(in(query)), k(in(key)), v(in(value)) {
    if (given(bias)) {
      mask = in(*bias);
      while (mask.dim() < 4) mask = mask.unsqueeze(0);
    }
  }
  at::Tensor in(const at::Tensor& t) const {
    at::Tensor cpu = aten::alias(t);
    if (flat_) cpu = cpu.unsqueeze(0);
    if (widened_) cpu = cpu.to(at::kFloat);
    return cpu.stride(-1) == 1 ? cpu : cpu.contiguous();
  }
  // A result in the dtype and rank of the operands.
  at::Tensor out(const at::Tensor& t, const at::Tensor& like) const {
    if (!t.defined()) return t;
    return adopt((flat_ ? t.squeeze(0) : t).to(like.scalar_type()), like.device());
  }
  bool flash() const { return q.scalar_type() == at::kFloat && engine::flash_present(); }
  // The CPU library's flash kernel wants values as wide as keys, and a mask without a gradient.
  bool library(double dropout_p) const { return dropout_p == 0.0 && q.size(-1) == v.size(-1); }
  OptionalTensor optional_mask() const { return mask.defined() ? OptionalTensor(mask) : std::nullopt; }

 private:
  const bool widened_, flat_;

 public:
  const at::Tensor q, k, v;
  at::Tensor mask;
};

device::Work attention_work(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const OptionalTensor& mask, bool is_causal, uint64_t products) {
  const uint64_t scores = static_cast<uint64_t>(query.numel() / query.size(-1)) * static_cast<uint64_t>(key.size(-2));
  const uint64_t width = static_cast<uint64_t>(query.size(-1) + value.size(-1));
  return {.kind = device::Kind::kTensor,
          .element_bytes = static_cast<uint8_t>(query.element_size()),
          .float32_matmul = query.scalar_type() == at::kFloat,
          .read_bytes = touched_bytes(query) + touched_bytes(key) + touched_bytes(value) +
                        (given(mask) ? touched_bytes(*mask) : 0),
          .elements = scores,
          // Blocks of scores above the diagonal are skipped.
          .macs = scores * width * products / 2 / (is_causal ? 2 : 1)};
}

at::Tensor host_number(uint64_t x) {
  return at::scalar_tensor(static_cast<int64_t>(x), at::TensorOptions().dtype(at::kLong).device(at::kCPU));
}
uint64_t number(const at::Tensor& t) { return t.defined() ? static_cast<uint64_t>(t.item<int64_t>()) : 0; }

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;

Forward attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias,
                  double dropout_p, bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  constexpr const char* kName = "_scaled_dot_product_fused_attention_overrideable";
  TORCH_CHECK(dropout_p >= 0.0 && dropout_p <= 1.0, "dropout probability has to be between 0 and 1, but got ",
              dropout_p);
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask, kName, ": return_debug_mask=True is not there on neuron.");
  const at::Device device = check_same_device(kName, {query, key, value, given(bias) ? *bias : at::Tensor()});
  TORCH_CHECK(fused_applies(query, key, value, bias, is_causal, /*grouped=*/true), kName, ": query ", query.sizes(),
              ", key ", key.sizes(), " and value ", value.sizes(), " of ", query.dtype(),
              " are not operands of one attention.");
  CoreGuard guard(device.index());
  if (lacks_hardware(query.scalar_type())) note_dtype(kName, query.scalar_type(), query.nbytes());
  std::pair<uint64_t, uint64_t> random{0, 0};
  if (dropout_p > 0.0) random = philox_generator(std::nullopt, device).take(4);
  const at::Tensor seed = host_number(random.first), offset = host_number(random.second);
  KernelScope scope(kName, device);
  const Operands on(query, key, value, bias);
  at::Tensor out, sums;
  const engine::Attention a{on.q, on.k, on.v, on.mask, is_causal, scale, dropout_p, random.first, random.second};
  if (on.flash()) {
    std::tie(out, sums) = engine::flash_forward(a);
  } else if (on.library(dropout_p)) {
    std::tie(out, sums) =
        at::_scaled_dot_product_flash_attention_for_cpu(on.q, on.k, on.v, 0.0, is_causal, on.optional_mask(), scale);
  } else {
    std::tie(out, sums) = engine::attention_forward(a);
  }
  scope.work() = attention_work(query, key, value, bias, is_causal, 2);
  at::Tensor result = on.out(out, query);
  scope.work().write_bytes = touched_bytes(result) + touched_bytes(sums);
  return {result, adopt(sums, device), {}, {}, query.size(-2), key.size(-2), seed, offset, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, std::array<bool, 4> wanted, const at::Tensor& out, const at::Tensor& sums,
    const at::Tensor& cum_seq_q, const at::Tensor& cum_seq_k, c10::SymInt max_q, c10::SymInt max_k, double dropout_p,
    bool is_causal, const at::Tensor& seed, const at::Tensor& offset, std::optional<double> scale) {
  constexpr const char* kName = "_scaled_dot_product_fused_attention_overrideable_backward";
  if (!grad_out.defined()) return {};
  const at::Device device = check_same_device(kName, {grad_out, query, key, value, bias, out, sums});
  CoreGuard guard(device.index());
  if (lacks_hardware(query.scalar_type())) note_dtype(kName, query.scalar_type(), query.nbytes());
  KernelScope scope(kName, device);
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  const Operands on(query, key, value, mask);
  const at::Tensor grad = on.in(grad_out);
  at::Tensor grad_q, grad_k, grad_v, grad_mask;
  const bool want_mask = wanted[3] && bias.defined();
  const engine::Attention a{on.q, on.k, on.v, on.mask, is_causal, scale, dropout_p, number(seed), number(offset)};
  if (on.flash()) {
    std::tie(grad_q, grad_k, grad_v, grad_mask) = engine::flash_backward(a, grad, aten::alias(sums), want_mask);
  } else if (on.library(dropout_p) && !want_mask) {
    std::tie(grad_q, grad_k, grad_v) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad, on.q, on.k, on.v, on.in(out), aten::alias(sums), 0.0, is_causal, on.optional_mask(), scale);
  } else {
    std::tie(grad_q, grad_k, grad_v, grad_mask) = engine::attention_backward(a, grad, want_mask);
  }
  scope.work() = attention_work(query, key, value, mask, is_causal, 5);
  scope.work().read_bytes += touched_bytes(grad_out) + touched_bytes(out);
  scope.work().write_bytes = touched_bytes(query) + touched_bytes(key) + touched_bytes(value);
  at::Tensor grad_bias;
  if (grad_mask.defined()) {
    grad_bias = adopt(grad_mask.sum_to_size(on.mask.sizes()).reshape(bias.sizes()).to(bias.scalar_type()), device);
  }
  return {on.out(grad_q, query), on.out(grad_k, key), on.out(grad_v, value), grad_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER(name, kernel) \
  m.impl(name, kernel);        \
  note_native("attention", name, device::Kind::kTensor)
  REGISTER("_fused_sdp_choice", choose_operator);
  REGISTER("_scaled_dot_product_fused_attention_overrideable", attention);
  REGISTER("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
#undef REGISTER
}

}  // namespace neuron::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::aten::choose)
}  // namespace at::native
