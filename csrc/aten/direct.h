// A native operator whose walk over its arguments is written out by the compiler: the unboxed twin of a row in a
// family's table (boundary.h), for operators that programs call all the time. For functional and in-place overloads;
// out= overloads may resize their result and stay in the tables.
#pragma once
#include <algorithm>
#include <tuple>
#include <utility>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"

namespace neuron::aten {

// The device of a call, from its tensors; the rules of Crossing::find_device.
class DeviceOfCall {
 public:
  explicit DeviceOfCall(const char* op_name) : op_name_(op_name) {}
  void see(const at::Tensor& t) {
    if (!t.defined()) return;
    if (on_neuron(t)) {
      if (device_ && *device_ != t.device()) fail_mixed_devices(op_name_, *device_, t.device());
      device_ = t.device();
      if (lacks_hardware(t.scalar_type()) && t.dim() > 0) foreign_ = t.scalar_type();
    } else if (!(t.device().is_cpu() && t.dim() == 0)) {
      other_ = t.device();
    }
  }
  void see(const std::optional<at::Tensor>& t) {
    if (t.has_value()) see(*t);
  }
  template <typename T>
  void see(const T&) {}

  at::Device device() const {
    TORCH_INTERNAL_ASSERT(device_.has_value());
    if (other_) fail_mixed_devices(op_name_, *device_, *other_);
    return *device_;
  }
  const std::optional<at::ScalarType>& foreign() const { return foreign_; }

 private:
  const char* op_name_;
  std::optional<at::Device> device_, other_;
  std::optional<at::ScalarType> foreign_;
};

namespace direct {

inline at::Tensor lower(const at::Tensor& t) { return alias(t); }
inline std::optional<at::Tensor> lower(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::make_optional(alias(*t)) : std::nullopt;
}
template <typename T>
const T& lower(const T& value) {
  return value;
}
template <typename A>
using Lowered = decltype(lower(std::declval<const std::remove_reference_t<A>&>()));

inline void measure(const at::Tensor& t, uint64_t& bytes, device::Work& work) {
  if (!t.defined()) return;
  bytes += touched_bytes(t);
  if (static_cast<uint64_t>(t.numel()) > work.elements) {
    work.elements = t.numel();
    work.element_bytes = static_cast<uint8_t>(t.element_size());
  }
}
inline void measure(const std::optional<at::Tensor>& t, uint64_t& bytes, device::Work& work) {
  if (t.has_value()) measure(*t, bytes, work);
}
template <typename T>
void measure(const T&, uint64_t&, device::Work&) {}

// Indices say how many pieces a gather or scatter moves.
inline void measure_indices(const at::Tensor& t, device::Work& work) {
  if (t.defined() && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt)) {
    work.descriptors = std::max(work.descriptors, static_cast<uint64_t>(t.numel()));
  }
}
template <typename T>
void measure_indices(const T&, device::Work&) {}

inline at::Tensor raise_up(at::Tensor&& t, at::Device device) { return adopt(t, device); }
template <typename... T>
std::tuple<T...> raise_up(std::tuple<T...>&& results, at::Device device) {
  return std::apply([&](auto&... t) { return std::tuple<T...>(adopt(t, device)...); }, results);
}
inline void measure_results(const at::Tensor& t, device::Work& work) { measure(t, work.write_bytes, work); }
template <typename... T>
void measure_results(const std::tuple<T...>& results, device::Work& work) {
  std::apply([&](const auto&... t) { (measure(t, work.write_bytes, work), ...); }, results);
}

template <typename First, typename... Rest>
First& first(First& f, Rest&...) {
  return f;
}

template <typename Op>
const char* name() {
  static const char* text =
      intern(Op::overload_name[0] == '\0' ? std::string(Op::name) : std::string(Op::name) + "." + Op::overload_name);
  return text;
}

template <typename Op, device::Kind kind, int passes, typename Signature>
struct Call;

template <typename Op, device::Kind kind, int passes, typename R, typename... A>
struct Call<Op, kind, passes, R(A...)> {
  static R call(A... args) {
    DeviceOfCall seen(name<Op>());
    (seen.see(args), ...);
    const at::Device device = seen.device();
    CoreGuard core(device.index());
    device::Work work;
    work.kind = kind;
    work.passes = passes;
    (measure(args, work.read_bytes, work), ...);
    if constexpr (kind == device::Kind::kGather) (measure_indices(args, work), ...);
    if (seen.foreign() && kind != device::Kind::kMove) note_dtype(name<Op>(), *seen.foreign(), work.read_bytes);
    KernelScope scope(name<Op>(), device);
    std::tuple<Lowered<A>...> lowered{lower(args)...};
    const auto run = [](auto&... a) -> decltype(auto) {
      return Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), a...);
    };
    if constexpr (std::is_reference_v<R>) {
      std::apply(run, lowered);
      at::Tensor& self = first(args...);
      measure(self, work.write_bytes, work);
      scope.work() = work;
      return self;
    } else {
      R results = std::apply(run, lowered);
      measure_results(results, work);
      scope.work() = work;
      return raise_up(std::move(results), device);
    }
  }
};

}  // namespace direct

template <typename Op, device::Kind kind, int passes = 1>
using Direct = direct::Call<Op, kind, passes, typename Op::schema>;

}  // namespace neuron::aten
