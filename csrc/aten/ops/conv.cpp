// Convolutions: PyTorch sends all of them, forward and backward, to the overrideable pair.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <initializer_list>

#include "aten/boundary.h"
#include "aten/kernel.h"

namespace neuron::aten {
namespace {

// Multiply-accumulates of one convolution: every output element sums over the kernel window and the channels of its
// group; a transposed convolution does the same work seen from the input.
uint64_t macs(const at::Tensor& input, const at::Tensor& weight, uint64_t output_elements, bool transposed) {
  uint64_t window = 1;
  for (int64_t d = 2; d < weight.dim(); ++d) window *= weight.size(d);
  const uint64_t per_element = window * weight.size(1);
  return (transposed ? static_cast<uint64_t>(input.numel()) : output_elements) * per_element;
}

// PyTorch gives float16 convolutions to oneDNN only on CPUs with float16 instructions, and there the kernels of oneDNN
// in PyTorch 2.13 give wrong values, even NaN, for dilated and even-sized windows (they read memory that nobody wrote).
// So such a CPU computes them in float32 and rounds once.
bool wrong_on_host(at::ScalarType type) {
#if defined(__x86_64__)
  static const bool has_float16 = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1U << 23)) != 0;  // leaf 7: EDX bit 23, AVX512-FP16
  }();
  return type == at::kHalf && has_float16;
#else
  return false;
#endif
}

// How the host sees the operands of one convolution: as they are, or in float32 where its own kernels are wrong. Types
// that differ stay as they are, for PyTorch's own error.
class Operands {
 public:
  Operands(std::initializer_list<const at::Tensor*> all)
      : wide_(std::all_of(all.begin(), all.end(),
                          [](const at::Tensor* t) { return !t->defined() || wrong_on_host(t->scalar_type()); })) {}
  at::Tensor operator()(const at::Tensor& t) const {
    if (!t.defined()) return t;
    return wide_ ? alias(t).to(at::kFloat) : alias(t);
  }

 private:
  const bool wide_;
};

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const at::Tensor b = bias.value_or(at::Tensor());
  const at::Device device = check_same_device("convolution", {input, weight, b});
  CoreGuard guard(device.index());
  if (lacks_hardware(input.scalar_type())) note_dtype("convolution_overrideable", input.scalar_type(), input.nbytes());
  KernelScope scope("convolution_overrideable", device);
  const Operands operand{&input, &weight, &b};
  at::Tensor out =
      at::convolution(operand(input), operand(weight), b.defined() ? std::make_optional(operand(b)) : std::nullopt,
                      stride, padding, dilation, transposed, output_padding, groups)
          .to(input.scalar_type());
  scope.work() = {.kind = device::Kind::kTensor,
                  .element_bytes = static_cast<uint8_t>(input.element_size()),
                  .float32_matmul = input.scalar_type() == at::kFloat,
                  .read_bytes = touched_bytes(input) + touched_bytes(weight),
                  .write_bytes = touched_bytes(out),
                  .elements = static_cast<uint64_t>(out.numel()),
                  .macs = macs(input, weight, out.numel(), transposed)};
  return adopt(out, device);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output,
                                                                    const at::Tensor& input, const at::Tensor& weight,
                                                                    at::IntArrayRef stride, at::IntArrayRef padding,
                                                                    at::IntArrayRef dilation, bool transposed,
                                                                    at::IntArrayRef output_padding, int64_t groups,
                                                                    std::array<bool, 3> output_mask) {
  const at::Device device = check_same_device("convolution_backward", {grad_output, input, weight});
  CoreGuard guard(device.index());
  if (lacks_hardware(input.scalar_type())) {
    note_dtype("convolution_backward_overrideable", input.scalar_type(), input.nbytes());
  }
  KernelScope scope("convolution_backward_overrideable", device);
  const int64_t bias_size = transposed ? weight.size(1) * groups : weight.size(0);
  const Operands operand{&grad_output, &input, &weight};
  auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
      operand(grad_output), operand(input), operand(weight), at::OptionalIntArrayRef({bias_size}), stride, padding,
      dilation, transposed, output_padding, groups, output_mask);
  for (at::Tensor* result : {&grad_input, &grad_weight, &grad_bias}) {
    if (result->defined()) *result = result->to(input.scalar_type());
  }
  const uint64_t one = macs(input, weight, grad_output.numel(), transposed);
  scope.work() = {.kind = device::Kind::kTensor,
                  .element_bytes = static_cast<uint8_t>(input.element_size()),
                  .float32_matmul = input.scalar_type() == at::kFloat,
                  .read_bytes = touched_bytes(grad_output) + touched_bytes(input) + touched_bytes(weight),
                  .write_bytes = touched_bytes(grad_input) + touched_bytes(grad_weight),
                  .elements = static_cast<uint64_t>(grad_output.numel()),
                  .macs = one * (uint64_t{output_mask[0]} + uint64_t{output_mask[1]})};
  return {adopt(grad_input, device), adopt(grad_weight, device), adopt(grad_bias, device)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  note_native("conv", "convolution_overrideable", device::Kind::kTensor);
  note_native("conv", "convolution_backward_overrideable", device::Kind::kTensor);
}

}  // namespace neuron::aten
