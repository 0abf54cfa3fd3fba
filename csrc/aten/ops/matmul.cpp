// Matrix products. float32 goes to the faster of the host's libraries; 16-bit floats are multiplied as float32 and
// rounded once where the host has no instructions for them; other types run the CPU library's kernels.
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "engine/gemm.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

// One product [batch x] m x k x n; `c` is what is added, or undefined.
class Product {
 public:
  Product(const char* name, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c = {})
      : device_(check_same_device(name, {a, b, c}, /*cpu_scalars=*/c.defined())),
        guard_(device_.index()),
        widened_(a.scalar_type() == b.scalar_type() && a.dim() >= 2 && engine::widen(a.scalar_type())),
        dtype_(a.scalar_type()),
        scope_(name, device_) {
    if (lacks_hardware(dtype_)) note_dtype(name, dtype_, a.nbytes() + b.nbytes());
    scope_.work() = {.kind = kTensor,
                     .element_bytes = static_cast<uint8_t>(a.element_size()),
                     .float32_matmul = dtype_ == at::kFloat,
                     .read_bytes = touched_bytes(a) + touched_bytes(b) + touched_bytes(c),
                     .macs = static_cast<uint64_t>(a.numel()) * static_cast<uint64_t>(b.dim() > 0 ? b.size(-1) : 1)};
  }
  at::Tensor in(const at::Tensor& t) const {
    at::Tensor cpu = aten::alias(t);
    // The sum's operand may be of another type than the product; only what would be 16-bit is widened.
    return widened_ && cpu.scalar_type() == dtype_ ? cpu.to(at::kFloat) : cpu;
  }
  at::Tensor out(const at::Tensor& result) {
    at::Tensor narrow = widened_ && result.scalar_type() == at::kFloat ? result.to(dtype_) : result;
    scope_.work().write_bytes = touched_bytes(narrow);
    scope_.work().elements = static_cast<uint64_t>(narrow.numel());
    return adopt(narrow, device_);
  }

 private:
  const at::Device device_;
  CoreGuard guard_;
  const bool widened_;
  const at::ScalarType dtype_;
  KernelScope scope_;
};

bool plain_2d(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat &&
         a.size(1) == b.size(0);
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& other) {
  Product product("mm", self, other);
  const at::Tensor a = product.in(self), b = product.in(other);
  if (plain_2d(a, b)) {
    at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
    if (engine::onednn_matmul(a, b, out, 0.0f, 1.0f)) return product.out(out);
  }
  return product.out(at::mm(a, b));
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  Product product("addmm", mat1, mat2, self);
  const at::Tensor a = product.in(mat1), b = product.in(mat2), c = product.in(self);
  if (plain_2d(a, b) && c.scalar_type() == at::kFloat && c.dim() == 1 && c.size(0) == b.size(1) && !beta.isComplex()) {
    at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
    out.copy_(c.expand_as(out));
    if (engine::onednn_matmul(a, b, out, beta.to<float>(), alpha.to<float>())) return product.out(out);
  }
  return product.out(at::addmm(c, a, b, beta, alpha));
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  Product product("bmm", self, mat2);
  return product.out(at::bmm(product.in(self), product.in(mat2)));
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  Product product("baddbmm", batch1, batch2, self);
  return product.out(at::baddbmm(product.in(self), product.in(batch1), product.in(batch2), beta, alpha));
}

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"mm.out bmm.out addmm.out addmm_ baddbmm.out baddbmm_", kTensor},
    {"addmv addmv.out addmv_", kVector},
    {"addbmm addbmm.out addbmm_", kTensor},
    {"dot vdot", kVector},
    {"_addmm_activation _addmm_activation.out", kTensor},
    {"_int_mm _int_mm.out", kTensor},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native(m, "matmul", kTable);
#define REGISTER(name, kernel) \
  m.impl(name, kernel);        \
  note_native("matmul", name, kTensor)
  REGISTER("mm", mm);
  REGISTER("addmm", addmm);
  REGISTER("bmm", bmm);
  REGISTER("baddbmm", baddbmm);
#undef REGISTER
}

}  // namespace neuron::aten
