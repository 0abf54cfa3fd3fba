// Short ways for the elementwise operators that programs call most. Where all tensors have one dtype, the iterator of
// the CPU library is built on the neuron tensors themselves and its vector kernel runs on them: no alias, no second
// tensor, less time than the same call on the CPU. Every other case (mixed dtypes, types Trainium lacks) goes to the
// Direct form of the same operator. Numbers are the CPU's to the last bit.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Fill.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/zero_ops.h>

#include <functional>
#include <type_traits>

#include "aten/direct.h"
#include "aten/launch.h"
#include "engine/streaming.h"

namespace neuron::aten {
namespace {

using device::Kind;

bool is_float(at::ScalarType t) { return t == at::kFloat || t == at::kBFloat16 || t == at::kHalf; }
bool is_number(at::ScalarType t) { return is_float(t) || t == at::kLong || t == at::kInt; }

// The result of an elementwise operation on a (and b): made here when the layout is plain, left to the iterator (which
// knows the rules of broadcasting and memory formats) when it is not.
at::Tensor plain_out(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  const bool plain = a.is_contiguous() && (b.dim() == 0 || (b.sizes() == a.sizes() && b.is_contiguous()));
  return plain ? make_out(a, a.sizes(), dtype) : at::Tensor();
}

// `number` as a 0-dim CPU tensor of this dtype; undefined when the operation would not compute in that dtype.
at::Tensor as_operand(const at::Scalar& number, at::ScalarType dtype) {
  if (number.isComplex() || number.isSymbolic() || (!is_float(dtype) && number.isFloatingPoint())) return {};
  at::Tensor t(at::detail::empty_cpu({}, dtype, false));
  void* data = t.mutable_data_ptr();
  switch (dtype) {
    case at::kFloat:
      *static_cast<float*>(data) = number.to<float>();
      break;
    case at::kBFloat16:
      *static_cast<c10::BFloat16*>(data) = number.to<c10::BFloat16>();
      break;
    case at::kHalf:
      *static_cast<c10::Half*>(data) = number.to<c10::Half>();
      break;
    case at::kLong:
      *static_cast<int64_t*>(data) = number.to<int64_t>();
      break;
    default:
      *static_cast<int32_t*>(data) = number.to<int32_t>();
  }
  return t;
}

// b as an operand beside a: itself when it is a neuron tensor of a's dtype on a's core, a number of a's dtype when it
// is a Python number; undefined when the long way must be taken.
at::Tensor operand_beside(const at::Tensor& a, const at::Tensor& b) {
  if (!ready(a)) return {};
  if (ready(b)) return b.scalar_type() == a.scalar_type() && b.device() == a.device() ? b : at::Tensor();
  // The CPU library multiplies 16-bit tensors by a number of float32 precision, so that number must not be rounded
  // here.
  if (!b.device().is_cpu() || !b.unsafeGetTensorImpl()->is_wrapped_number() || a.element_size() < 4) return {};
  return as_operand(b.item(), a.scalar_type());
}

// A CPU tensor on a piece of the memory of a contiguous neuron tensor.
at::Tensor piece_of(void* data, int64_t begin, int64_t count, at::ScalarType dtype) {
  return at::from_blob(static_cast<char*>(data) + begin * static_cast<int64_t>(at::elementSize(dtype)), {count}, dtype);
}

// The kernel piece by piece, where the operands are plain and the result is larger than the caches; false where they
// are not. b: undefined, a scalar, or of a's shape.
template <typename Kernel>
bool streamed(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Kernel& kernel) {
  if (!out.defined() || out.nbytes() < engine::kStreamed || out.dim() == 0) return false;
  const bool whole = b.defined() && b.dim() > 0;
  // A 0-dim neuron tensor would have to be read as a host scalar is: left to the iterator.
  if (b.defined() && !whole && on_neuron(b)) return false;
  struct Call {
    const at::Tensor &out, &a, &b;
    bool whole;
    Kernel& kernel;
  } call{out, a, b, whole, kernel};
  engine::stream_out(
      out.mutable_data_ptr(), out.numel(), out.element_size(),
      [](void* context, int64_t begin, int64_t count, void* buffer) {
        const Call& c = *static_cast<const Call*>(context);
        c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
        at::TensorIteratorConfig config;
        config.set_check_mem_overlap(false).resize_outputs(false).check_all_same_dtype(false).allow_cpu_scalars(true);
        config.add_owned_output(piece_of(buffer, 0, count, c.out.scalar_type()));
        config.add_owned_const_input(piece_of(c.a.data_ptr(), begin, count, c.a.scalar_type()));
        if (c.whole) config.add_owned_const_input(piece_of(c.b.data_ptr(), begin, count, c.b.scalar_type()));
        if (c.b.defined() && !c.whole) config.add_owned_const_input(c.b);
        at::TensorIterator iter = config.build();
        c.kernel(iter);
      },
      &call);
  return true;
}

// a op b for float32 tensors of one shape that are too small for an iterator to be worth building. These operations are
// exact to the last bit however they are computed; false where it is not such a call.
template <typename Op, typename F>
at::Tensor tiny(const at::Tensor& a, const at::Tensor& b, F&& f) {
  constexpr int64_t kTiny = 2048;
  if (!ready(a) || !ready(b) || a.device() != b.device() || a.scalar_type() != at::kFloat ||
      b.scalar_type() != at::kFloat || a.numel() > kTiny || a.sizes() != b.sizes() || !a.is_contiguous() ||
      !b.is_contiguous()) {
    return {};
  }
  Launch launch(direct::name<Op>(), a, Kind::kVector);
  launch.reads(a);
  launch.reads(b);
  at::Tensor out = make_out(a, a.sizes(), at::kFloat);
  const auto* x = static_cast<const float*>(a.const_data_ptr());
  const auto* y = static_cast<const float*>(b.const_data_ptr());
  auto* z = static_cast<float*>(out.mutable_data_ptr());
  for (int64_t i = 0, n = a.numel(); i < n; ++i) z[i] = f(x[i], y[i]);
  launch.done(out);
  return out;
}
struct NoTiny {};  // operators whose result depends on how it is computed

// --- the three shapes of a call ---
using Dtypes = bool (*)(at::ScalarType);

template <typename Op, Kind kind, typename Kernel>
at::Tensor binary(const at::Tensor& a, const at::Tensor& b, std::optional<at::ScalarType> out_dtype, Kernel&& kernel) {
  Launch launch(direct::name<Op>(), a, kind);
  launch.reads(a);
  if (on_neuron(b)) launch.reads(b);
  at::TensorIteratorConfig config;
  at::Tensor out = plain_out(a, b, out_dtype.value_or(a.scalar_type()));
  if (streamed(out, a, b, kernel)) {
    launch.done(out);
    return out;
  }
  if (out.defined()) config.set_check_mem_overlap(false).resize_outputs(false);
  config.check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .add_owned_output(out)
      .add_owned_const_input(a)
      .add_owned_const_input(b);
  if (!out.defined()) config.declare_static_dtype(out_dtype.value_or(a.scalar_type()));
  at::TensorIterator iter = config.build();
  kernel(iter);
  at::Tensor result = iter.output();
  launch.done(result);
  return result;
}

template <typename Op, Kind kind, typename Kernel>
void binary_in_place(at::Tensor& self, const at::Tensor& b, Kernel&& kernel) {
  Launch launch(direct::name<Op>(), self, kind);
  launch.reads(self);
  if (on_neuron(b)) launch.reads(b);
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .set_check_mem_overlap(true)
                                .allow_cpu_scalars(true)
                                .resize_outputs(false)
                                .add_output(self)
                                .add_owned_const_input(self)
                                .add_owned_const_input(b)
                                .build();
  kernel(iter);
  launch.done(self);
}

template <typename Op, Kind kind, typename Kernel>
at::Tensor unary(const at::Tensor& a, Kernel&& kernel) {
  Launch launch(direct::name<Op>(), a, kind);
  launch.reads(a);
  at::TensorIteratorConfig config;
  at::Tensor out = a.is_contiguous() ? make_out(a, a.sizes(), a.scalar_type()) : at::Tensor();
  if (streamed(out, a, {}, kernel)) {
    launch.done(out);
    return out;
  }
  if (out.defined()) config.set_check_mem_overlap(false).resize_outputs(false);
  at::TensorIterator iter = config.add_owned_output(out).add_owned_const_input(a).build();
  kernel(iter);
  at::Tensor result = iter.output();
  launch.done(result);
  return result;
}

template <typename Op, Kind kind, typename Kernel>
void unary_in_place(at::Tensor& self, Kernel&& kernel) {
  Launch launch(direct::name<Op>(), self, kind);
  launch.reads(self);
  at::TensorIterator iter =
      at::TensorIteratorConfig().set_check_mem_overlap(true).add_output(self).add_const_input(self).build();
  kernel(iter);
  launch.done(self);
}

// --- operators ---
template <typename Op, auto& stub, Kind kind>
at::Tensor float_unary(const at::Tensor& self) {
  if (!ready(self) || !is_float(self.scalar_type())) return Direct<Op, kind>::call(self);
  return unary<Op, kind>(self, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
}
template <typename Op, auto& stub, Kind kind>
at::Tensor& float_unary_(at::Tensor& self) {
  if (!ready(self) || !is_float(self.scalar_type())) return Direct<Op, kind>::call(self);
  unary_in_place<Op, kind>(self, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
  return self;
}

template <typename Op, auto& stub, bool (*dtypes)(at::ScalarType), typename Tiny = NoTiny>
at::Tensor arithmetic(const at::Tensor& a, const at::Tensor& b) {
  if constexpr (!std::is_same_v<Tiny, NoTiny>) {
    if (at::Tensor out = tiny<Op>(a, b, Tiny()); out.defined()) return out;
  }
  const at::Tensor other = dtypes(a.scalar_type()) ? operand_beside(a, b) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b);
  return binary<Op, Kind::kVector>(a, other, std::nullopt, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
}
template <typename Op, auto& stub, bool (*dtypes)(at::ScalarType)>
at::Tensor& arithmetic_(at::Tensor& a, const at::Tensor& b) {
  const at::Tensor other = dtypes(a.scalar_type()) ? operand_beside(a, b) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b);
  binary_in_place<Op, Kind::kVector>(a, other, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
  return a;
}
// add and sub share a kernel of the CPU library, told apart by the sign of alpha.
template <typename Op, int sign>
at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  if (alpha.isIntegral(false) && alpha.to<int64_t>() == 1) {
    if (at::Tensor out = tiny<Op>(a, b, [](float x, float y) { return sign > 0 ? x + y : x - y; }); out.defined()) {
      return out;
    }
  }
  const at::Tensor other = is_number(a.scalar_type()) && alpha.isIntegral(false) ? operand_beside(a, b) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b, alpha);
  return binary<Op, Kind::kVector>(a, other, std::nullopt, [&](at::TensorIterator& iter) {
    at::native::add_stub(at::kCPU, iter, sign > 0 ? alpha : -alpha);
  });
}
template <typename Op, int sign>
at::Tensor& sum_of_(at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  const at::Tensor other = is_number(a.scalar_type()) && alpha.isIntegral(false) ? operand_beside(a, b) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b, alpha);
  binary_in_place<Op, Kind::kVector>(
      a, other, [&](at::TensorIterator& iter) { at::native::add_stub(at::kCPU, iter, sign > 0 ? alpha : -alpha); });
  return a;
}

template <typename Op, auto& stub>
at::Tensor compare(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor other = is_number(a.scalar_type()) ? operand_beside(a, b) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b);
  return binary<Op, Kind::kVector>(a, other, at::kBool, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
}
template <typename Op, auto& stub>
at::Tensor compare_number(const at::Tensor& a, const at::Scalar& b) {
  const at::Tensor other = ready(a) && is_number(a.scalar_type()) ? as_operand(b, a.scalar_type()) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(a, b);
  return binary<Op, Kind::kVector>(a, other, at::kBool, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
}

at::Tensor relu(const at::Tensor& self) {
  if (!ready(self) || !is_number(self.scalar_type())) return Direct<at::_ops::relu, Kind::kVector>::call(self);
  return unary<at::_ops::relu, Kind::kVector>(
      self, [](at::TensorIterator& iter) { at::native::clamp_min_scalar_stub(at::kCPU, iter, 0); });
}
at::Tensor& relu_(at::Tensor& self) {
  if (!ready(self) || !is_number(self.scalar_type())) return Direct<at::_ops::relu_, Kind::kVector>::call(self);
  unary_in_place<at::_ops::relu_, Kind::kVector>(
      self, [](at::TensorIterator& iter) { at::native::clamp_min_scalar_stub(at::kCPU, iter, 0); });
  return self;
}
at::Tensor threshold_backward(const at::Tensor& grad, const at::Tensor& self, const at::Scalar& threshold) {
  using Op = at::_ops::threshold_backward;
  const at::Tensor other = is_float(self.scalar_type()) && on_neuron(grad) ? operand_beside(self, grad) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(grad, self, threshold);
  return binary<Op, Kind::kVector>(self, other, std::nullopt, [&](at::TensorIterator& iter) {
    at::native::threshold_stub(at::kCPU, iter, threshold, 0);
  });
}
// f'(x) from the result of f: grad first, result second, both of one dtype.
template <typename Op, auto& stub>
at::Tensor from_result(const at::Tensor& grad, const at::Tensor& output) {
  const at::Tensor other =
      is_float(grad.scalar_type()) && on_neuron(output) ? operand_beside(grad, output) : at::Tensor();
  if (!other.defined()) return Direct<Op, Kind::kVector>::call(grad, output);
  return binary<Op, Kind::kVector>(grad, other, std::nullopt, [](at::TensorIterator& iter) { stub(at::kCPU, iter); });
}

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  if (!is_number(self.scalar_type()) || value.isComplex()) {
    return Direct<at::_ops::fill__Scalar, Kind::kMove>::call(self, value);
  }
  Launch launch(direct::name<at::_ops::fill__Scalar>(), self, Kind::kMove);
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .set_check_mem_overlap(false)
                                .check_all_same_dtype(false)
                                .add_output(self)
                                .resize_outputs(false)
                                .build();
  at::native::fill_stub(at::kCPU, iter, value);
  launch.done(self);
  return self;
}
at::Tensor& zero_(at::Tensor& self) {
  constexpr int64_t kOneThread = 32768;  // elements below which a thread team costs more than it brings
  if (!self.is_non_overlapping_and_dense() || self.numel() > kOneThread || !is_number(self.scalar_type())) {
    return fill_(self, 0);
  }
  Launch launch(direct::name<at::_ops::zero_>(), self, Kind::kMove);
  if (self.numel() > 0) std::memset(self.mutable_data_ptr(), 0, self.nbytes());
  launch.done(self);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER(name, kernel, kind) \
  m.impl(name, kernel);              \
  note_native("elementwise", name, kind)

#define UNARY(op, kind)                                                           \
  REGISTER(#op, (&float_unary<at::_ops::op, at::native::op##_stub, kind>), kind); \
  REGISTER(#op "_", (&float_unary_<at::_ops::op##_, at::native::op##_stub, kind>), kind)
  UNARY(exp, Kind::kScalar);
  UNARY(log, Kind::kScalar);
  UNARY(sqrt, Kind::kScalar);
  UNARY(rsqrt, Kind::kScalar);
  UNARY(sin, Kind::kScalar);
  UNARY(cos, Kind::kScalar);
  UNARY(tanh, Kind::kScalar);
  UNARY(erf, Kind::kScalar);
  UNARY(sigmoid, Kind::kScalar);
  UNARY(silu, Kind::kScalar);
  UNARY(neg, Kind::kVector);
  UNARY(reciprocal, Kind::kScalar);
#undef UNARY

  REGISTER("add.Tensor", (&sum_of<at::_ops::add_Tensor, 1>), Kind::kVector);
  REGISTER("add_.Tensor", (&sum_of_<at::_ops::add__Tensor, 1>), Kind::kVector);
  REGISTER("sub.Tensor", (&sum_of<at::_ops::sub_Tensor, -1>), Kind::kVector);
  REGISTER("sub_.Tensor", (&sum_of_<at::_ops::sub__Tensor, -1>), Kind::kVector);

  REGISTER("mul.Tensor", (&arithmetic<at::_ops::mul_Tensor, at::native::mul_stub, is_number, std::multiplies<float>>),
           Kind::kVector);
  REGISTER("mul_.Tensor", (&arithmetic_<at::_ops::mul__Tensor, at::native::mul_stub, is_number>), Kind::kVector);
  REGISTER("div.Tensor", (&arithmetic<at::_ops::div_Tensor, at::native::div_true_stub, is_float, std::divides<float>>),
           Kind::kVector);
  REGISTER("div_.Tensor", (&arithmetic_<at::_ops::div__Tensor, at::native::div_true_stub, is_float>), Kind::kVector);
  REGISTER("maximum", (&arithmetic<at::_ops::maximum, at::native::maximum_stub, is_number>), Kind::kVector);
  REGISTER("minimum", (&arithmetic<at::_ops::minimum, at::native::minimum_stub, is_number>), Kind::kVector);

#define COMPARE(op)                                                                                 \
  REGISTER(#op ".Tensor", (&compare<at::_ops::op##_Tensor, at::native::op##_stub>), Kind::kVector); \
  REGISTER(#op ".Scalar", (&compare_number<at::_ops::op##_Scalar, at::native::op##_stub>), Kind::kVector)
  COMPARE(eq);
  COMPARE(ne);
  COMPARE(lt);
  COMPARE(le);
  COMPARE(gt);
  COMPARE(ge);
#undef COMPARE

  REGISTER("relu", relu, Kind::kVector);
  REGISTER("relu_", relu_, Kind::kVector);
  REGISTER("threshold_backward", threshold_backward, Kind::kVector);
  REGISTER("tanh_backward", (&from_result<at::_ops::tanh_backward, at::native::tanh_backward_stub>), Kind::kVector);
  REGISTER("sigmoid_backward", (&from_result<at::_ops::sigmoid_backward, at::native::sigmoid_backward_stub>),
           Kind::kVector);
  REGISTER("fill_.Scalar", fill_, Kind::kMove);
  REGISTER("zero_", zero_, Kind::kMove);
#undef REGISTER
}

}  // namespace neuron::aten
