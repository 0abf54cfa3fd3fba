// Matrix products. float32 goes to the faster of the host's libraries; 16-bit floats are multiplied as float32 and
// rounded once where the host has no instructions for them; a few rows times a weight have a kernel of their own; other
// types run the CPU library's kernels.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "aten/launch.h"
#include "engine/gemm.h"

namespace neuron::aten {
namespace {

using enum device::Kind;
using at::Scalar;
using at::Tensor;

// One launch: result = beta * c + alpha * (a @ b), where a, b have two dimensions or three (a batch of products).
class Product {
 public:
  // `target` is where the result goes (an out= argument, or c itself), or undefined for a new tensor.
  Product(const char* name, const Tensor& a, const Tensor& b, const Tensor& c = {}, const Tensor& target = {})
      : device_(check_same_device(name, {a, b, c, target}, /*cpu_scalars=*/false)),
        guard_(device_.index()),
        dtype_(a.scalar_type()),
        // What the library would refuse is left to it as it is, so that its message names the caller's types.
        one_type_(b.scalar_type() == dtype_ && (!c.defined() || c.scalar_type() == dtype_)),
        widened_(one_type_ && engine::widen(dtype_)),
        scope_(name, device_),
        a_(aten::alias(a)),
        b_(aten::alias(b)),
        c_(aten::alias(c)),
        target_(target) {
    if (lacks_hardware(dtype_)) note_dtype(name, dtype_, a.nbytes() + b.nbytes());
    scope_.work() = {.kind = kTensor,
                     .element_bytes = static_cast<uint8_t>(a.element_size()),
                     .float32_matmul = dtype_ == at::kFloat,
                     .read_bytes = touched_bytes(a) + touched_bytes(b) + touched_bytes(c),
                     .macs = static_cast<uint64_t>(a.numel()) * static_cast<uint64_t>(b.dim() > 0 ? b.size(-1) : 1)};
  }

  Tensor mm() {
    if (const Tensor out = quick(0, 1); out.defined()) return out;
    return at::cpu::mm(wide(a_), wide(b_));
  }
  Tensor addmm(const Scalar& beta, const Scalar& alpha) {
    if (!beta.isComplex() && !alpha.isComplex()) {
      if (const Tensor out = quick(beta.to<double>(), alpha.to<double>()); out.defined()) return out;
    }
    return at::cpu::addmm(wide(c_), wide(a_), wide(b_), beta, alpha);
  }
  Tensor bmm() { return at::cpu::bmm(wide(a_), wide(b_)); }
  Tensor baddbmm(const Scalar& beta, const Scalar& alpha) {
    return at::cpu::baddbmm(wide(c_), wide(a_), wide(b_), beta, alpha);
  }

  // The result as a new neuron tensor.
  Tensor fresh(const Tensor& result) {
    const Tensor narrow = widened_ && result.scalar_type() == at::kFloat ? result.to(dtype_) : result;
    measure(narrow);
    return adopt(narrow, device_);
  }
  // The result in `target`, which is resized as out= arguments are.
  void put(const Tensor& result) {
    TORCH_CHECK(target_.scalar_type() == dtype_, "Expected out tensor to have dtype ",
                caffe2::TypeMeta::fromScalarType(dtype_), ", but got ", target_.dtype(), " instead");
    at::native::resize_output(target_, result.sizes());
    aten::alias(target_).copy_(result);
    measure(result);
  }

 private:
  Tensor wide(const Tensor& t) const { return widened_ ? t.to(at::kFloat) : t; }

  // The kernels that are ours: undefined where none applies.
  Tensor quick(double beta, double alpha) {
    if (!one_type_ || a_.dim() != 2 || b_.dim() != 2 || a_.size(1) != b_.size(0)) return {};
    const int64_t m = a_.size(0), n = b_.size(1);
    if (c_.defined() && (c_.dim() > 2 || !at::is_expandable_to(c_.sizes(), at::IntArrayRef{m, n}))) return {};
    const float b = static_cast<float>(beta), s = static_cast<float>(alpha);
    if (m <= 4) {
      Tensor out = at::empty({m, n}, a_.options());
      if (engine::few_rows_matmul(a_, b_, c_, out, b, s)) return out;
    }
    if (dtype_ != at::kFloat || !engine::onednn_worthwhile(m, n, a_.size(1))) return {};
    Tensor out = at::empty({m, n}, a_.options());
    if (c_.defined() && b != 0.0f) out.copy_(c_.expand({m, n}));
    engine::onednn_matmul(a_, b_, out, c_.defined() ? b : 0.0f, s);
    return out;
  }
  void measure(const Tensor& result) {
    scope_.work().write_bytes = static_cast<uint64_t>(result.numel()) * at::elementSize(dtype_);
    scope_.work().elements = static_cast<uint64_t>(result.numel());
  }

  const at::Device device_;
  CoreGuard guard_;
  const at::ScalarType dtype_;
  const bool one_type_, widened_;
  KernelScope scope_;
  const Tensor a_, b_, c_;
  const Tensor target_;
};

// Small float32 products without aliases and the walk of a Product; undefined when it is not one.
Tensor small_mm(const Tensor& a, const Tensor& b) {
  if (!ready(a) || !ready(b) || a.device() != b.device() || a.scalar_type() != at::kFloat ||
      b.scalar_type() != at::kFloat || a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0) ||
      !engine::is_small(a.size(0), b.size(1), a.size(1))) {
    return {};
  }
  Launch launch("mm", a, kTensor);
  Tensor out = make_out(a, {a.size(0), b.size(1)}, at::kFloat);
  if (!engine::small_matmul(a, b, static_cast<float*>(out.mutable_data_ptr()))) return {};
  launch.reads(a);
  launch.reads(b);
  launch.work().float32_matmul = true;
  launch.work().macs = static_cast<uint64_t>(a.numel() * b.size(1));
  launch.done(out);
  return out;
}

Tensor mm(const Tensor& self, const Tensor& mat2) {
  if (Tensor out = small_mm(self, mat2); out.defined()) return out;
  Product p("mm", self, mat2);
  return p.fresh(p.mm());
}
Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  Product p("mm.out", self, mat2, {}, out);
  p.put(p.mm());
  return out;
}
Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Product p("bmm", self, mat2);
  return p.fresh(p.bmm());
}
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  Product p("bmm.out", self, mat2, {}, out);
  p.put(p.bmm());
  return out;
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  Product p("addmm", mat1, mat2, self);
  return p.fresh(p.addmm(beta, alpha));
}
Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  Product p("addmm.out", mat1, mat2, self, out);
  p.put(p.addmm(beta, alpha));
  return out;
}
Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha) {
  Product p("baddbmm", batch1, batch2, self);
  return p.fresh(p.baddbmm(beta, alpha));
}
Tensor& baddbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                    const Scalar& alpha, Tensor& out) {
  Product p("baddbmm.out", batch1, batch2, self, out);
  p.put(p.baddbmm(beta, alpha));
  return out;
}

// In place the sum may not grow.
void check_shape(const Tensor& self, const Tensor& result) {
  TORCH_CHECK(self.sizes() == result.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
              " and output tensor size ", result.sizes(), " should match");
}
Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  Product p("addmm_", mat1, mat2, self, self);
  const Tensor result = p.addmm(beta, alpha);
  check_shape(self, result);
  p.put(result);
  return self;
}
Tensor& baddbmm_(Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  Product p("baddbmm_", batch1, batch2, self, self);
  const Tensor result = p.baddbmm(beta, alpha);
  check_shape(self, result);
  p.put(result);
  return self;
}

// Not in a table: the library tells a sum in place from others by `self` and `out` being one tensor object.
Tensor& addr_(Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  const at::Device device = check_same_device("addr_", {self, vec1, vec2});
  CoreGuard guard(device.index());
  if (lacks_hardware(self.scalar_type())) note_dtype("addr_", self.scalar_type(), self.nbytes());
  KernelScope scope("addr_", device);
  aten::alias(self).addr_(aten::alias(vec1), aten::alias(vec2), beta, alpha);
  scope.work() = {.kind = kVector,
                  .element_bytes = static_cast<uint8_t>(self.element_size()),
                  .read_bytes = touched_bytes(self) + touched_bytes(vec1) + touched_bytes(vec2),
                  .write_bytes = touched_bytes(self),
                  .elements = static_cast<uint64_t>(self.numel())};
  return self;
}

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"addmv addmv.out addmv_", kVector},
    {"dot vdot", kVector},
    {"_addmm_activation _addmm_activation.out", kTensor},
    // The CPU library rounds a 16-bit sum of products after every batch, so its own kernel is kept for the same
    // numbers.
    {"addbmm addbmm.out addbmm_", kTensor},
    {"_int_mm _int_mm.out", kTensor},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native(m, "matmul", kTable);
#define REGISTER(name, kernel) \
  m.impl(name, kernel);        \
  note_native("matmul", name, kTensor)
  REGISTER("mm", mm);
  REGISTER("mm.out", mm_out);
  REGISTER("bmm", bmm);
  REGISTER("bmm.out", bmm_out);
  REGISTER("addmm", addmm);
  REGISTER("addmm.out", addmm_out);
  REGISTER("addmm_", addmm_);
  REGISTER("baddbmm", baddbmm);
  REGISTER("baddbmm.out", baddbmm_out);
  REGISTER("baddbmm_", baddbmm_);
  m.impl("addr_", addr_);
  note_native("matmul", "addr_", kVector);
#undef REGISTER
}

}  // namespace neuron::aten
