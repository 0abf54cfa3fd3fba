// Fused cells of LSTM and GRU. PyTorch sends every recurrent layer of an out-of-tree device to them; on the chip one is
// a vector program over the gates that the two matrix products before it have made.
#include <ATen/ATen.h>

#include "aten/boundary.h"
#include "aten/kernel.h"

namespace neuron::aten {
namespace {

using enum device::Kind;
using OptionalTensor = std::optional<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  const at::Tensor g = aten::alias(gates);
  return bias.has_value() && bias->defined() ? g + aten::alias(*bias) : g;
}

device::Work vector_work(const at::Tensor& gates, uint32_t passes) {
  return {.kind = kScalar,
          .element_bytes = static_cast<uint8_t>(gates.element_size()),
          .read_bytes = 2 * touched_bytes(gates),
          .write_bytes = touched_bytes(gates),
          .elements = static_cast<uint64_t>(gates.numel()),
          .passes = passes};
}

// Gates in PyTorch's order: input, forget, cell, output. The workspace keeps the activated gates for backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  const at::Device device = check_same_device("_thnn_fused_lstm_cell", {input_gates, hidden_gates, cx});
  CoreGuard guard(device.index());
  KernelScope scope("_thnn_fused_lstm_cell", device);
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const at::Tensor i = at::sigmoid(gates[0]), f = at::sigmoid(gates[1]), g = at::tanh(gates[2]),
                   o = at::sigmoid(gates[3]);
  const at::Tensor cy = f * aten::alias(cx) + i * g;
  const at::Tensor hy = o * at::tanh(cy);
  scope.work() = vector_work(input_gates, 4);
  return {adopt(hy, device), adopt(cy, device), adopt(at::cat({i, f, g, o}, 1), device)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                                  const OptionalTensor& grad_cy, const at::Tensor& cx,
                                                                  const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  const bool any = (grad_hy.has_value() && grad_hy->defined()) || (grad_cy.has_value() && grad_cy->defined());
  if (!any) return {};
  const at::Device device = check_same_device("_thnn_fused_lstm_cell_backward", {cx, cy, workspace});
  CoreGuard guard(device.index());
  KernelScope scope("_thnn_fused_lstm_cell_backward", device);
  const auto gates = aten::alias(workspace).chunk(4, 1);
  const at::Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const at::Tensor tanh_cy = at::tanh(aten::alias(cy));
  const bool from_h = grad_hy.has_value() && grad_hy->defined();
  at::Tensor grad_o, grad_c;
  if (from_h) {
    const at::Tensor gh = aten::alias(*grad_hy);
    grad_o = gh * tanh_cy * o * (1 - o);
    grad_c = gh * o * (1 - tanh_cy * tanh_cy);
  } else {
    grad_o = o * 0;
  }
  if (grad_cy.has_value() && grad_cy->defined()) {
    const at::Tensor gc = aten::alias(*grad_cy);
    grad_c = grad_c.defined() ? grad_c + gc : gc;
  }
  const at::Tensor grad_gates =
      at::cat({grad_c * g * i * (1 - i), grad_c * aten::alias(cx) * f * (1 - f), grad_c * i * (1 - g * g), grad_o}, 1);
  const at::Tensor grad_cx = grad_c * f;
  scope.work() = vector_work(workspace, 6);
  at::Tensor grad_bias = has_bias ? adopt(grad_gates.sum(0), device) : at::Tensor();
  at::Tensor cx_home = adopt(grad_cx, device);
  return {adopt(grad_gates, device), cx_home, grad_bias};
}

// Gates in PyTorch's order: reset, update, new. The workspace keeps (r, z, n, hx, hidden part of n), as autograd's
// formula expects five parts.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  const at::Device device = check_same_device("_thnn_fused_gru_cell", {input_gates, hidden_gates, hx});
  CoreGuard guard(device.index());
  KernelScope scope("_thnn_fused_gru_cell", device);
  const auto in = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor r = at::sigmoid(in[0] + hidden[0]), z = at::sigmoid(in[1] + hidden[1]);
  const at::Tensor n = at::tanh(in[2] + r * hidden[2]);
  const at::Tensor h = aten::alias(hx);
  const at::Tensor hy = (h - n) * z + n;
  scope.work() = vector_work(input_gates, 4);
  return {adopt(hy, device), adopt(at::cat({r, z, n, h, hidden[2]}, 1), device)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const at::Device device = check_same_device("_thnn_fused_gru_cell_backward", {grad_hy, workspace});
  CoreGuard guard(device.index());
  KernelScope scope("_thnn_fused_gru_cell_backward", device);
  const auto parts = aten::alias(workspace).chunk(5, 1);
  const at::Tensor &r = parts[0], &z = parts[1], &n = parts[2], &h = parts[3], &hidden_n = parts[4];
  const at::Tensor g = aten::alias(grad_hy);
  const at::Tensor grad_n = g * (1 - z) * (1 - n * n);
  const at::Tensor grad_z = g * (h - n) * z * (1 - z);
  const at::Tensor grad_r = grad_n * hidden_n * r * (1 - r);
  const at::Tensor grad_input = at::cat({grad_r, grad_z, grad_n}, 1);
  const at::Tensor grad_hidden = at::cat({grad_r, grad_z, grad_n * r}, 1);
  const at::Tensor grad_hx = g * z;
  scope.work() = vector_work(workspace, 6);
  at::Tensor input_bias, hidden_bias;
  if (has_bias) {
    input_bias = adopt(grad_input.sum(0), device);
    hidden_bias = adopt(grad_hidden.sum(0), device);
  }
  return {adopt(grad_input, device), adopt(grad_hidden, device), adopt(grad_hx, device), input_bias, hidden_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER(name, kernel) \
  m.impl(name, kernel);        \
  note_native("rnn", name, kScalar)
  REGISTER("_thnn_fused_lstm_cell", lstm_cell);
  REGISTER("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  REGISTER("_thnn_fused_gru_cell", gru_cell);
  REGISTER("_thnn_fused_gru_cell_backward", gru_cell_backward);
#undef REGISTER
}

}  // namespace neuron::aten
