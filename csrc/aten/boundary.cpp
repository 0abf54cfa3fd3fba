#include "aten/boundary.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <sstream>

#include "aten/fallback_stats.h"
#include "aten/generator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/topology.h"

namespace neuron::aten {
namespace {

using c10::IValue;
using torch::jit::Stack;

// What the walk does with an argument, read from the schema once.
enum class Arg : uint8_t { kPlain, kTensor, kTensorList, kOptionalTensorList, kDevice, kGenerator };

struct Plan {
  std::vector<Arg> args;
  std::vector<bool> written;       // schema says the argument is mutated
  std::vector<int> returned_args;  // per return: the argument it is, or -1 for a fresh tensor
  const char* name = nullptr;
};

Arg arg_kind(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.real_type();
  const auto is = [](const c10::TypePtr& t, c10::TypeKind kind) { return t->kind() == kind; };
  const c10::TypePtr inner =
      is(type, c10::TypeKind::OptionalType) ? type->expectRef<c10::OptionalType>().getElementType() : type;
  if (is(inner, c10::TypeKind::TensorType)) return Arg::kTensor;
  if (is(inner, c10::TypeKind::DeviceObjType)) return Arg::kDevice;
  if (is(inner, c10::TypeKind::GeneratorType)) return Arg::kGenerator;
  if (is(inner, c10::TypeKind::ListType)) {
    const c10::TypePtr& element = inner->expectRef<c10::ListType>().getElementType();
    if (is(element, c10::TypeKind::TensorType)) return Arg::kTensorList;
    if (is(element, c10::TypeKind::OptionalType)) return Arg::kOptionalTensorList;
  }
  return Arg::kPlain;
}

Plan make_plan(const c10::OperatorHandle& op) {
  Plan plan;
  const c10::FunctionSchema& schema = op.schema();
  const auto& name = op.operator_name();
  plan.name = intern(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  for (const auto& argument : schema.arguments()) {
    plan.args.push_back(arg_kind(argument));
    plan.written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
  }
  for (const auto& ret : schema.returns()) {
    int found = -1;
    const auto* info = ret.alias_info();
    for (size_t i = 0; info != nullptr && i < schema.arguments().size(); ++i) {
      const auto* arg_info = schema.arguments()[i].alias_info();
      if (arg_info != nullptr && arg_info->isWrite() && *arg_info == *info) found = static_cast<int>(i);
    }
    plan.returned_args.push_back(found);
  }
  return plan;
}

at::SparseTensorImpl* sparse_impl(const at::Tensor& t) {
  return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}

c10::DispatchKeySet cpu_keys(bool sparse) {
  return c10::DispatchKeySet(sparse ? c10::DispatchKey::SparseCPU : c10::DispatchKey::CPU);
}

// Walks one call over the border and back.
class Crossing {
 public:
  Crossing(const Plan& plan, bool copying, bool any_cpu) : plan_(plan), copying_(copying), any_cpu_(any_cpu) {}

  // The device of the call: of its tensors, else of its device argument. Throws on a mix.
  at::Device find_device(const IValue* args) {
    const size_t n = plan_.args.size();
    std::optional<at::Device> asked;
    for (size_t i = 0; i < n; ++i) {
      if (plan_.args[i] == Arg::kDevice && args[i].isDevice()) asked = args[i].toDevice();
      for_each_tensor(i, args[i], [&](const at::Tensor& t) {
        if (!on_neuron(t)) return;
        if (device_ && *device_ != t.device()) fail_mixed_devices(plan_.name, *device_, t.device());
        device_ = t.device();
      });
    }
    if (device_) {
      if (any_cpu_ && args[0].isTensor() && !on_neuron(args[0].toTensor())) {
        TORCH_CHECK(false, "indices should be either on cpu or on the same device as the indexed tensor (",
                    args[0].toTensor().device(), ")");
      }
      for (size_t i = 0; i < n; ++i) {
        for_each_tensor(i, args[i], [&](const at::Tensor& t) {
          const bool fine = on_neuron(t) || (!plan_.written[i] && t.device().is_cpu() && (any_cpu_ || t.dim() == 0));
          if (!fine) fail_mixed_devices(plan_.name, *device_, t.device());
        });
      }
    } else {
      ensure_init();
      device_ =
          at::Device(kNeuron, asked && asked->has_index() ? asked->index()
                                                          : static_cast<c10::DeviceIndex>(device::current_core()));
      check_ordinal(device_->index());
    }
    return *device_;
  }

  void import_args(IValue* args) {
    for (size_t i = 0; i < plan_.args.size(); ++i) {
      IValue& v = args[i];
      const bool written = plan_.written[i];
      switch (plan_.args[i]) {
        case Arg::kPlain:
          break;
        case Arg::kTensor:
          if (v.isTensor() && v.toTensor().defined()) {
            at::Tensor t = std::move(v).toTensor();
            v = bring_in(t, written);
            if (written) keep(i, t);
          }
          break;
        case Arg::kTensorList:
          if (v.isTensorList()) {
            c10::List<at::Tensor> in = std::move(v).toTensorList(), out;
            out.reserve(in.size());
            for (const at::Tensor& t : in) out.push_back(bring_in(t, written));
            v = std::move(out);
            if (written) originals_.emplace_back(i, IValue(std::move(in)));
          }
          break;
        case Arg::kOptionalTensorList:
          if (v.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> in = std::move(v).toOptionalTensorList(), out;
            out.reserve(in.size());
            for (const std::optional<at::Tensor> t : in) {
              out.push_back(t.has_value() ? std::optional<at::Tensor>(bring_in(*t, false)) : std::nullopt);
            }
            v = std::move(out);
          }
          break;
        case Arg::kDevice:
          if (v.isDevice()) v = at::Device(at::kCPU);
          break;
        case Arg::kGenerator: {
          std::optional<at::Generator> generator;
          if (v.isGenerator()) generator = v.toGenerator();
          v = host_generator(generator, *device_);
          break;
        }
      }
    }
  }

  // After the operator: brings resized and rewritten arguments home.
  void finish() {
    for (Border& b : borders_) {
      c10::StorageImpl* cpu = b.cpu.unsafeGetStorageImpl();
      const bool moved = cpu->data() != b.memory || cpu->nbytes() != b.bytes;
      if (copying_) {
        if (!b.written) continue;
        if (cpu->nbytes() != b.bytes) {
          CoreGuard guard(device_->index());
          b.owner->set_data_ptr_noswap(aten::allocate(device_->index(), cpu->nbytes()));
          b.owner->set_nbytes(cpu->nbytes());
        }
        OpenMemory open;
        if (cpu->nbytes() > 0) std::memcpy(b.owner->mutable_data(), cpu->data(), cpu->nbytes());
        bytes_ += cpu->nbytes();
      } else if (moved) {
        c10::DataPtr data = cpu->set_data_ptr(c10::DataPtr(nullptr, at::Device(at::kCPU)));
        data.unsafe_set_device(*device_);
        b.owner->set_nbytes(cpu->nbytes());
        b.owner->set_data_ptr_noswap(std::move(data));
      }
    }
    // ADInplaceOrView counts versions of returned arguments only, so list operators that return nothing count their
    // own.
    if (plan_.returned_args.empty()) {
      for (const auto& [neuron, cpu] : written_) {
        if (!neuron.is_inference()) neuron.unsafeGetTensorImpl()->bump_version();
      }
    }
    for (const auto& [neuron, cpu] : sparse_written_) {
      const at::SparseTensorImpl* from = sparse_impl(cpu);
      at::SparseTensorImpl* to = sparse_impl(neuron);
      const at::Tensor indices = export_fresh(from->indices()), values = export_fresh(from->values());
      to->raw_resize_(from->sparse_dim(), from->dense_dim(), cpu.sizes());
      to->set_indices_and_values_unsafe(indices, values);
      to->set_coalesced(from->coalesced());
    }
    for (const auto& [neuron, cpu] : written_) {
      if (neuron.sizes() != cpu.sizes() || neuron.strides() != cpu.strides() ||
          neuron.storage_offset() != cpu.storage_offset()) {
        neuron.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      }
      // linalg_lu_solve leaves a lazy conjugate in its out= tensor.
      if (neuron.is_conj() != cpu.is_conj()) neuron.unsafeGetTensorImpl()->_set_conj(cpu.is_conj());
    }
  }

  void export_returns(IValue* returns) {
    for (size_t i = 0; i < plan_.returned_args.size(); ++i) {
      IValue& v = returns[i];
      if (const int arg = plan_.returned_args[i]; arg >= 0) {
        for (const auto& [index, original] : originals_) {
          if (index == static_cast<size_t>(arg)) v = original;
        }
      } else if (v.isTensor()) {
        v = export_fresh(v.toTensor());
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> in = std::move(v).toTensorList(), out;
        out.reserve(in.size());
        for (const at::Tensor& t : in) out.push_back(export_fresh(t));
        v = std::move(out);
      }
    }
  }

  // HBM traffic of the call and its largest tensor, from what went in and what comes out.
  void measure(const IValue* values, size_t n, bool reading, device::Work& work) const {
    for (size_t i = 0; i < n; ++i) {
      visit(values[i], [&](const at::Tensor& t) {
        const uint64_t bytes = touched_bytes(t);
        if (reading && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt)) {
          work.descriptors = std::max(work.descriptors, static_cast<uint64_t>(t.numel()));  // used by gathers only
        }
        if (t.is_sparse()) work.descriptors = std::max(work.descriptors, static_cast<uint64_t>(sparse_impl(t)->nnz()));
        const bool output = !reading || plan_.written[i];
        (output ? work.write_bytes : work.read_bytes) += bytes;
        const auto elements = static_cast<uint64_t>(t.is_sparse() ? sparse_impl(t)->values().numel() : t.numel());
        if (elements > work.elements) {
          work.elements = elements;
          work.element_bytes = static_cast<uint8_t>(t.dtype().itemsize());
        }
      });
    }
  }

  // The first tensor of a type that Trainium lacks, if any. A float64 number without dimensions is a scalar of the
  // host.
  std::optional<at::ScalarType> foreign_dtype(const IValue* values, size_t n) const {
    std::optional<at::ScalarType> found;
    for (size_t i = 0; i < n; ++i) {
      visit(values[i], [&](const at::Tensor& t) {
        if (lacks_hardware(t.scalar_type()) && t.dim() > 0) found = t.scalar_type();
      });
    }
    return found;
  }

  uint64_t bytes_copied() const { return bytes_; }

 private:
  struct Border {
    c10::intrusive_ptr<c10::StorageImpl> owner;
    c10::Storage cpu;
    const void* memory;
    size_t bytes;
    bool written;
  };

  template <typename F>
  static void visit(const IValue& v, F&& f) {
    if (v.isTensor()) {
      if (v.toTensor().defined()) f(v.toTensor());
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorList()) {
        if (t.defined()) f(t);
      }
    } else if (v.isOptionalTensorList()) {
      for (const std::optional<at::Tensor> t : v.toOptionalTensorList()) {
        if (t.has_value() && t->defined()) f(*t);
      }
    }
  }

  template <typename F>
  void for_each_tensor(size_t i, const IValue& v, F&& f) const {
    if (plan_.args[i] != Arg::kPlain) visit(v, f);
  }

  void keep(size_t index, const at::Tensor& original) { originals_.emplace_back(index, IValue(original)); }

  Border& border(const at::Tensor& t) {
    c10::StorageImpl* owner = t.storage().unsafeGetStorageImpl();
    for (Border& b : borders_) {
      if (b.owner.get() == owner) return b;
    }
    c10::Storage cpu;
    if (copying_) {
      const size_t bytes = owner->nbytes();
      c10::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
      {
        OpenMemory open;
        if (bytes > 0) std::memcpy(data.get(), owner->data(), bytes);
      }
      bytes_ += bytes;
      cpu = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                               std::move(data), c10::GetCPUAllocator(), true));
    } else {
      cpu = aten::alias(t).storage();
    }
    borders_.push_back(
        {c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(owner), cpu, cpu.data(), cpu.nbytes(), false});
    return borders_.back();
  }

  at::Tensor bring_in(const at::Tensor& t, bool written) {
    if (!t.defined() || !on_neuron(t)) return t;
    const bool sparse = t.is_sparse();
    if (!sparse) border(t).written |= written;
    // One tensor passed twice stays one tensor: the CPU library tells an output that is also an input by identity.
    for (const auto& [neuron, cpu] : brought_) {
      if (neuron == t.unsafeGetTensorImpl()) {
        if (written) (sparse ? sparse_written_ : written_).emplace_back(t, cpu);
        return cpu;
      }
    }
    if (sparse) {
      const at::SparseTensorImpl* from = sparse_impl(t);
      at::Tensor cpu = sparse_tensor(c10::DispatchKey::SparseCPU, t, bring_in(from->indices(), written),
                                     bring_in(from->values(), written));
      brought_.emplace_back(t.unsafeGetTensorImpl(), cpu);
      if (written) sparse_written_.emplace_back(t, cpu);
      return cpu;
    }
    Border& b = border(t);
    at::Tensor cpu = alias_on(t, b.cpu);
    brought_.emplace_back(t.unsafeGetTensorImpl(), cpu);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) cpu.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (written) written_.emplace_back(t, cpu);
    return cpu;
  }

  at::Tensor export_fresh(const at::Tensor& t) {
    if (!t.defined() || !t.device().is_cpu()) return t;
    if (t.is_sparse()) {
      const at::SparseTensorImpl* from = sparse_impl(t);
      return sparse_tensor(c10::DispatchKey::SparsePrivateUse1, t, export_fresh(from->indices()),
                           export_fresh(from->values()));
    }
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided && !t.is_quantized(), "'", plan_.name,
                                "' has a result of layout ", t.layout(), t.is_quantized() ? " (quantized)" : "",
                                ", and the neuron device has dense and sparse COO tensors only. Call .cpu() first and "
                                "keep the result on the CPU.");
    const c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    for (const Border& b : borders_) {
      if (b.cpu.unsafeGetStorageImpl() == storage) {
        return neuron_tensor(c10::Storage(b.owner), t);
      }
    }
    c10::Storage home;
    if (copying_) {
      const size_t bytes = t.storage().nbytes();
      c10::DataPtr data = aten::allocate(device_->index(), bytes);
      OpenMemory open;
      if (bytes > 0) std::memcpy(data.get(), t.storage().data(), bytes);
      bytes_ += bytes;
      home = make_storage(std::move(data), bytes);
    } else {
      home = adopt_storage(t.storage(), *device_);
    }
    // A second result on the same memory must find the same storage (an adopted one is that already).
    if (home.unsafeGetStorageImpl() == storage) return neuron_tensor(std::move(home), t);
    borders_.push_back({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(home.unsafeGetStorageImpl()), t.storage(),
                        nullptr, 0, false});
    return neuron_tensor(std::move(home), t);
  }

  const Plan& plan_;
  const bool copying_;
  const bool any_cpu_;
  std::optional<at::Device> device_;
  c10::SmallVector<Border, 4> borders_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> written_, sparse_written_;
  c10::SmallVector<std::pair<const c10::TensorImpl*, at::Tensor>, 4> brought_;
  c10::SmallVector<std::pair<size_t, IValue>, 2> originals_;
  uint64_t bytes_ = 0;
};

class NativeKernel final : public c10::OperatorKernel {
 public:
  explicit NativeKernel(const NativeOps& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    std::call_once(planned_, [&] { plan_ = make_plan(op); });
    const size_t n = plan_.args.size();
    IValue* args = stack->data() + (stack->size() - n);
    Crossing crossing(plan_, /*copying=*/false, (op_.flags & kAnyCpu) != 0);
    const at::Device device = crossing.find_device(args);
    auto foreign = crossing.foreign_dtype(args, n);
    CoreGuard core(device.index());
    device::Work work;
    crossing.measure(args, n, /*reading=*/true, work);
    // Moving data is not computing: any type may be filled, copied and joined.
    const bool computes = op_.kind != device::Kind::kMove;
    if (foreign && computes) note_dtype(plan_.name, *foreign, work.read_bytes + work.write_bytes);
    {
      KernelScope scope(plan_.name, device);
      crossing.import_args(args);
      op.redispatchBoxed(cpu_keys((op_.flags & kSparse) != 0), stack);
      crossing.finish();
      IValue* returns = stack->data() + (stack->size() - plan_.returned_args.size());
      if (!foreign && computes) {
        foreign = crossing.foreign_dtype(returns, plan_.returned_args.size());
        if (foreign) note_dtype(plan_.name, *foreign, work.read_bytes);
      }
      for (size_t i = 0; i < plan_.returned_args.size(); ++i) {
        if (plan_.returned_args[i] < 0) crossing.measure(returns + i, 1, /*reading=*/false, work);
      }
      crossing.export_returns(returns);
      work.kind = op_.kind;
      work.passes = op_.passes;
      scope.work() = work;
    }
    if (op_.flags & kHostScan) device::synchronize_stream(device.index(), device::current_stream(device.index()));
  }

 private:
  const NativeOps op_;
  std::once_flag planned_;
  Plan plan_;
};

const Plan& fallback_plan(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<c10::OperatorName, std::unique_ptr<Plan>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& plan = (*plans)[op.operator_name()];
  if (!plan) plan = std::make_unique<Plan>(make_plan(op));
  return *plan;
}

template <bool sparse>
void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Plan& plan = fallback_plan(op);
  before_fallback(plan.name);
  IValue* args = stack->data() + (stack->size() - plan.args.size());
  Crossing crossing(plan, /*copying=*/true, /*any_cpu=*/false);
  const at::Device device = crossing.find_device(args);
  CoreGuard core(device.index());
  // Copies wait for the device, and the device waits for the copies back.
  device::synchronize_stream(device.index(), device::current_stream(device.index()));
  crossing.import_args(args);
  {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    op.redispatchBoxed(cpu_keys(sparse), stack);
  }
  crossing.finish();
  crossing.export_returns(stack->data() + (stack->size() - plan.returned_args.size()));
  device::Work work;
  work.kind = device::Kind::kHostCopy;
  work.read_bytes = crossing.bytes_copied();
  device::launch(device.index(), device::current_stream(device.index()), plan.name, work);
  device::synchronize_stream(device.index(), device::current_stream(device.index()));
  count_fallback(plan.name, crossing.bytes_copied());
}

struct NativeTable {
  std::mutex mutex;
  std::vector<NativeRow> rows;
};
NativeTable& native_table() {
  static auto* table = new NativeTable();
  return *table;
}

}  // namespace

void register_native(torch::Library& library, const char* family, c10::ArrayRef<NativeOps> table) {
  for (const NativeOps& row : table) {
    std::istringstream overloads(row.overloads);
    for (std::string name; overloads >> name;) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<NativeKernel>(row)));
      note_native(family, name.c_str(), row.kind);
    }
  }
}

void note_native(const char* family, const char* name, device::Kind kind) {
  std::lock_guard<std::mutex> lock(native_table().mutex);
  native_table().rows.push_back({family, std::string("aten::") + name, kind});
}

std::vector<NativeRow> native_ops() {
  std::lock_guard<std::mutex> lock(native_table().mutex);
  return native_table().rows;
}

}  // namespace neuron::aten

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&neuron::aten::cpu_fallback<false>>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&neuron::aten::cpu_fallback<true>>());
}
