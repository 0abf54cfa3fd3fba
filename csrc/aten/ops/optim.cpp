// Fused optimizer steps: one launch over a list of parameters.
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/item.h>

#include "aten/boundary.h"
#include "aten/kernel.h"

namespace neuron::aten {
namespace {

using enum device::Kind;
using OptionalTensor = std::optional<at::Tensor>;

// float32 copies of 16-bit tensors on device memory, written back when the step is done.
class Widened {
 public:
  explicit Widened(at::TensorList tensors) {
    for (const at::Tensor& t : tensors) {
      narrow_.push_back(aten::alias(t));
      wide_.push_back(narrow_.back().element_size() == 2 ? narrow_.back().to(at::kFloat) : narrow_.back());
    }
  }
  at::TensorList tensors() const { return wide_; }
  void write_back() {
    for (size_t i = 0; i < wide_.size(); ++i) {
      if (!wide_[i].is_same(narrow_[i])) narrow_[i].copy_(wide_[i]);
    }
  }

 private:
  std::vector<at::Tensor> narrow_, wide_;
};

// The CPU library's fused SGD reads past what it has loaded when a 16-bit tensor's size is no multiple of its vector,
// so the step is computed in float32 and rounded once.
void fused_sgd(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffers, double weight_decay,
               double momentum, double lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
               const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (self.empty()) return;
  const at::Device device = check_same_device("_fused_sgd_", {self[0], grads[0]});
  CoreGuard guard(device.index());
  {
    KernelScope scope("_fused_sgd_", device);
    Widened p(self), g(grads), m(momentum_buffers);
    const auto lower = [](const OptionalTensor& t) {
      return t.has_value() ? OptionalTensor(aten::alias(*t)) : OptionalTensor();
    };
    at::_fused_sgd_(p.tensors(), g.tensors(), m.tensors(), weight_decay, momentum, lr, dampening, nesterov, maximize,
                    is_first_step, lower(grad_scale), lower(found_inf));
    p.write_back();
    g.write_back();  // a grad_scale unscales the gradients in place
    m.write_back();
    device::Work& work = scope.work();
    work.kind = kVector;
    work.passes = 3;
    for (const at::Tensor& t : self) {
      work.read_bytes += 3 * t.nbytes();
      work.write_bytes += 2 * t.nbytes();
      work.elements += static_cast<uint64_t>(t.numel());
      work.element_bytes = static_cast<uint8_t>(t.element_size());
    }
  }
  for (const at::Tensor& t : self) t.unsafeGetTensorImpl()->bump_version();
  for (const at::Tensor& t : momentum_buffers) t.unsafeGetTensorImpl()->bump_version();
}

void fused_sgd_tensor_lr(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffers,
                         double weight_decay, double momentum, const at::Tensor& lr, double dampening, bool nesterov,
                         bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
                         const OptionalTensor& found_inf) {
  fused_sgd(self, grads, momentum_buffers, weight_decay, momentum, lr.item<double>(), dampening, nesterov, maximize,
            is_first_step, grad_scale, found_inf);
}

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_fused_adam_ _fused_adam_.tensor_lr", kVector, 6},
    {"_fused_adamw_ _fused_adamw_.tensor_lr", kVector, 6},
    {"_fused_adagrad_ _fused_adagrad_.tensor_lr", kVector, 4},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native(m, "optim", kTable);
  m.impl("_fused_sgd_", fused_sgd);
  m.impl("_fused_sgd_.tensor_lr", fused_sgd_tensor_lr);
  note_native("optim", "_fused_sgd_", kVector);
  note_native("optim", "_fused_sgd_.tensor_lr", kVector);
}

}  // namespace neuron::aten
