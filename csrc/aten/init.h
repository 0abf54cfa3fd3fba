// Inner pieces of kernel.h that only the dispatch layer (boundary, factories, guard) uses.
#pragma once
#include <ATen/core/Tensor.h>

namespace neuron::aten {

void check_ordinal(int core);  // throws "invalid device ordinal"
[[noreturn]] void fail_mixed_devices(const char* op_name, at::Device a, at::Device b);

at::Tensor alias_on(const at::Tensor& tensor, c10::Storage cpu_storage);     // view of `tensor`'s shape on other memory
c10::StorageImpl* alias_owner(const c10::StorageImpl* storage) noexcept;     // neuron storage behind an alias, or null
c10::Storage adopt_storage(const c10::Storage& storage, at::Device device);  // moves the memory out of `storage`
at::Tensor neuron_tensor(c10::Storage storage, const at::Tensor& like);      // sizes, strides, bits of `like`
// A sparse COO tensor of `key` (SparseCPU, SparsePrivateUse1) with the sizes and the coalesced flag of sparse `like`.
at::Tensor sparse_tensor(c10::DispatchKey key, const at::Tensor& like, const at::Tensor& indices,
                         const at::Tensor& values);

}  // namespace neuron::aten
