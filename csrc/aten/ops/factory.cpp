// Tensors come into being and change their memory: empty, resize_, set_.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/topology.h"

namespace neuron::aten {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == at::kStrided,
                              "Only strided (dense) tensors can be created on neuron, not layout ",
                              c10::layout_or_default(layout), ". Create the tensor on the CPU and call to_dense().");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

at::Tensor& fill_if_deterministic(at::Tensor& result) {
  if (at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory() &&
      result.numel() > 0) {
    at::native::fill_empty_deterministic_(result);
  }
  return result;
}

int core_of(std::optional<at::Device> device) { return device && device->has_index() ? device->index() : -1; }

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  CoreGuard guard(core_of(device));
  at::Tensor result =
      at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format);
  return fill_if_deterministic(result);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  CoreGuard guard(core_of(device));
  at::Tensor result =
      at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
  return fill_if_deterministic(result);
}

// The host library's resizing asks the storage's own allocator for memory and copies the old bytes, which is what
// device memory needs too; it only has to find the right core current and the memory open.
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  CoreGuard guard(self.device().index());
  OpenMemory open;
  return at::native::resize_(self, size, memory_format);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  CoreGuard guard(self.device().index());
  OpenMemory open;
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {numel}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (source.unsafeGetTensorImpl() == self.unsafeGetTensorImpl()) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::DataPtr nothing(nullptr, self.device());
  return set_storage(self, make_storage(std::move(nothing), 0), 0, {0}, {});
}

// A tensor of zeros without memory: forward-mode and some backward formulas make these as placeholders.
at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  CoreGuard guard(core_of(device));
  at::native::ZeroTensorAllocator allocator({kNeuron, static_cast<c10::DeviceIndex>(device::current_core())});
  return at::detail::empty_generic(size, &allocator, kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

void resize_storage_bytes(c10::StorageImpl* storage, size_t bytes) {
  CoreGuard guard(storage->device().index());
  OpenMemory open;
  at::native::resize_bytes_cpu(storage, bytes);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_empty);
  m.impl("_efficientzerotensor", efficient_zero_tensor);
  for (const char* name : {"empty.memory_format", "empty_strided", "resize_", "set_.source_Storage_storage_offset",
                           "set_.source_Storage", "set_.source_Tensor", "set_", "_efficientzerotensor"}) {
    note_native("factory", name, device::Kind::kNone);
  }
}

}  // namespace neuron::aten
