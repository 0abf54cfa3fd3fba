#include "aten/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <unordered_set>

#include "aten/init.h"
#include "device/topology.h"

namespace neuron::aten {
namespace {

// Kernels that run on this thread: the core whose HBM serves CPU allocations (-1: none), and who allocates.
thread_local int kernel_core = -1;
thread_local const char* kernel_name = nullptr;

c10::DeleterFnPtr host_deleter = nullptr;
void free_either(void* ptr) {
  if (ptr != nullptr && device::core_of(ptr) >= 0) {
    free_memory(ptr);
  } else {
    host_deleter(ptr);
  }
}

// The process's CPU allocator once the device is in use. Outside kernels it is the previous allocator.
class KernelCpuAllocator final : public c10::Allocator {
 public:
  explicit KernelCpuAllocator(c10::Allocator* base) : base_(base) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (kernel_core < 0) return base_->allocate(bytes);
    c10::DataPtr data = aten::allocate(kernel_core, bytes);
    data.unsafe_set_device(c10::Device(c10::DeviceType::CPU));
    return data;
  }
  // raw_allocate inside a kernel may meet its raw_deallocate outside (oneDNN keeps scratch memory), and the other way
  // round: the pointer says whose it is.
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return base_->is_simple_data_ptr(data); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

 private:
  c10::Allocator* base_;
};

enum class State : int { kFresh, kReady, kBadFork };
std::atomic<State> state{State::kFresh};
std::mutex init_mutex;

void mark_bad_fork() {
  if (state.load() == State::kReady) state.store(State::kBadFork);
}

void keep_memory(void*) {}  // deleter of aliases: the neuron storage owns the memory

const c10::DispatchKeySet kBelowAutograd =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

}  // namespace

void ensure_init() {
  if (C10_LIKELY(state.load(std::memory_order_acquire) == State::kReady)) return;
  TORCH_CHECK(state.load() != State::kBadFork,
              "Cannot re-initialize NEURON in forked subprocess. To use NEURON with multiprocessing, you must use the "
              "'spawn' start method");
  std::lock_guard<std::mutex> lock(init_mutex);
  if (state.load() == State::kReady) return;
  device::topology();  // throws when the environment asks for something that does not exist
  host_deleter = c10::GetCPUAllocator()->raw_deleter();
  TORCH_INTERNAL_ASSERT(host_deleter != nullptr, "the CPU allocator of this process has no raw deleter");
  static KernelCpuAllocator cpu_allocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&cpu_allocator, /*priority=*/100);
  pthread_atfork(nullptr, nullptr, mark_bad_fork);
  state.store(State::kReady, std::memory_order_release);
}

bool is_initialized() noexcept { return state.load() == State::kReady; }
bool in_bad_fork() noexcept { return state.load() == State::kBadFork; }
const char* current_op() noexcept { return kernel_name; }

CoreGuard::CoreGuard(int core) : previous_(device::current_core()) {
  ensure_init();
  if (core >= 0 && core != previous_) {
    check_ordinal(core);
    device::set_current_core(core);
  }
}
CoreGuard::~CoreGuard() { device::set_current_core(previous_); }

void check_ordinal(int core) {
  TORCH_CHECK(core >= 0 && core < device::core_count(), "NEURON error: invalid device ordinal: neuron:", core,
              " was asked for, but this process sees ", device::core_count(),
              " logical NeuronCore(s). NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and "
              "TORCH_NEURONX_INSTANCE_TYPE decide how many.");
}

OpName::OpName(const char* name) noexcept : previous_(kernel_name) { kernel_name = name; }
OpName::~OpName() { kernel_name = previous_; }

KernelScope::KernelScope(const char* op_name, at::Device device)
    : name_(op_name),
      core_(device.has_index() ? device.index() : device::current_core()),
      previous_core_(kernel_core),
      previous_name_(kernel_name),
      exceptions_(std::uncaught_exceptions()),
      below_(kBelowAutograd) {
  ensure_init();
  kernel_core = core_;
  kernel_name = op_name;
  device::open_memory();
}

KernelScope::~KernelScope() {
  device::close_memory();
  kernel_core = previous_core_;
  kernel_name = previous_name_;
  // A launch nested in another kernel is part of that kernel.
  if (previous_core_ < 0 && std::uncaught_exceptions() == exceptions_) {
    device::launch(core_, device::current_stream(core_), name_, work_);
  }
}

at::Tensor alias(const at::Tensor& tensor) {
  if (!tensor.defined() || !on_neuron(tensor)) return tensor;
  const c10::Storage& storage = tensor.storage();
  c10::StorageImpl* owner = storage.unsafeGetStorageImpl();
  auto cpu_storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(owner->mutable_data(), owner, &keep_memory, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true);
  return alias_on(tensor, c10::Storage(std::move(cpu_storage)));
}

at::Tensor alias_on(const at::Tensor& tensor, c10::Storage cpu_storage) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(cpu_storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  return result;
}

c10::StorageImpl* alias_owner(const c10::StorageImpl* storage) noexcept {
  const c10::DataPtr& data = storage->data_ptr();
  return data.get_deleter() == &keep_memory ? static_cast<c10::StorageImpl*>(data.get_context()) : nullptr;
}

c10::Storage make_storage(c10::DataPtr data, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                            device_allocator(), /*resizable=*/true));
}

c10::Storage adopt_storage(const c10::Storage& storage, at::Device device) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const size_t bytes = storage.nbytes();
  if (owns(storage.data_ptr()) || storage.data() == nullptr) {
    // The memory is HBM already, so the same storage object changes sides.
    impl->_mutable_data_ptr_no_checks().unsafe_set_device(device);
    impl->set_allocator(device_allocator());
    return storage;
  }
  // The host kernel made this tensor with memory of its own: bring it in.
  c10::DataPtr data = aten::allocate(device.index(), bytes);
  std::memcpy(data.get(), storage.data(), bytes);
  return make_storage(std::move(data), bytes);
}

at::Tensor neuron_tensor(c10::Storage storage, const at::Tensor& like) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.dtype());
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return result;
}

at::Tensor sparse_tensor(c10::DispatchKey key, const at::Tensor& like, const at::Tensor& indices,
                         const at::Tensor& values) {
  CoreGuard guard(on_neuron(values) ? values.device().index() : -1);  // the constructor asks for its current device
  auto result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  auto* to = static_cast<at::SparseTensorImpl*>(result.unsafeGetTensorImpl());
  const auto* from = static_cast<const at::SparseTensorImpl*>(like.unsafeGetTensorImpl());
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), like.sizes());
  to->set_indices_and_values_unsafe(indices, values);
  to->set_coalesced(from->coalesced());
  return result;
}

at::Tensor adopt(const at::Tensor& result, at::Device device) {
  if (!result.defined() || on_neuron(result)) return result;
  if (c10::StorageImpl* owner = alias_owner(result.storage().unsafeGetStorageImpl())) {
    return neuron_tensor(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(owner)), result);
  }
  return neuron_tensor(adopt_storage(result.storage(), device), result);
}

at::Tensor empty_on(at::Device device, at::IntArrayRef size, at::ScalarType dtype) {
  CoreGuard guard(device.has_index() ? device.index() : -1);
  return at::detail::empty_generic(size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype,
                                   std::nullopt);
}

at::Tensor empty_strided_on(at::Device device, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype) {
  CoreGuard guard(device.has_index() ? device.index() : -1);
  return at::detail::empty_strided_generic(size, stride, device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

void fail_mixed_devices(const char* op_name, at::Device a, at::Device b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (in ", op_name, ")");
}

at::Device check_same_device(const char* op_name, std::initializer_list<at::Tensor> tensors, bool cpu_scalars) {
  std::optional<at::Device> device;
  for (const at::Tensor& t : tensors) {
    if (t.defined() && on_neuron(t)) {
      if (device && *device != t.device()) fail_mixed_devices(op_name, *device, t.device());
      device = t.device();
    }
  }
  TORCH_CHECK(device.has_value(), op_name, ": expected at least one tensor on neuron");
  for (const at::Tensor& t : tensors) {
    if (t.defined() && !on_neuron(t) && !(cpu_scalars && t.device().is_cpu() && t.dim() == 0)) {
      fail_mixed_devices(op_name, *device, t.device());
    }
  }
  return *device;
}

const char* intern(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string>* names = new std::unordered_set<std::string>();
  std::lock_guard<std::mutex> lock(mutex);
  return names->insert(name).first->c_str();
}

uint64_t touched_bytes(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  if (tensor.is_sparse()) {
    const auto* sparse = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    return touched_bytes(sparse->indices()) + touched_bytes(sparse->values());
  }
  uint64_t elements = 1;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) elements *= strides[i] == 0 ? 1 : static_cast<uint64_t>(sizes[i]);
  return elements * tensor.element_size();
}

}  // namespace neuron::aten
