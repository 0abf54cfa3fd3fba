// Sparse COO tensors: indices and values are neuron tensors of their own. What embeddings with sparse gradients,
// SparseAdam and graph code use is in the table; the rest goes through the CPU fallback.
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

at::SparseTensorImpl* impl_of(const at::Tensor& t) {
  return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}

at::Tensor empty_sparse(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory,
                        std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(!memory_format, "sparse tensors have no memory format, got ", *memory_format);
  CoreGuard guard(device && device->has_index() ? device->index() : -1);
  auto result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparsePrivateUse1),
                                                              scalarTypeToTypeMeta(c10::dtype_or_default(dtype)));
  impl_of(result)->resize_and_clear_(static_cast<int64_t>(size.size()), 0, size);
  return result;
}

// Between devices and dtypes: the parts are copied, as dense tensors.
at::Tensor& copy_sparse_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.is_sparse() && src.is_sparse(), "copy_() between dense and sparse Tensors is not implemented! ",
              "Found self type = ", self.toString(), " and src type = ", src.toString(),
              ". Call to_dense() or to_sparse() on one of them.");
  if (self.is_same(src)) return self;
  const at::SparseTensorImpl* from = impl_of(src);
  at::SparseTensorImpl* to = impl_of(self);
  const auto here = [&](const at::Tensor& part, at::ScalarType dtype) {
    return part.to(self.device(), dtype, non_blocking, /*copy=*/true);
  };
  const at::Tensor indices = here(from->indices(), at::kLong), values = here(from->values(), self.scalar_type());
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), src.sizes());
  to->set_indices_and_values_unsafe(indices, values);
  to->set_coalesced(from->coalesced());
  return self;
}

// Dense arguments, sparse result.
const NativeOps kFromDense[] = {
    {"_to_sparse _to_sparse.sparse_dim", kGather, 1, kHostScan},
};

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_coalesce", kGather, 2, kSparse | kHostScan},
    {"_sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_with_dims", kNone, 1, kSparse},
    {"_to_dense sparse_mask _sparse_mask_projection index_select cat", kGather, 1, kSparse},
    {"_to_sparse _to_sparse.sparse_dim", kGather, 1, kSparse | kHostScan},
    {"add.Tensor add.out add_.Tensor sub.Tensor sub.out sub_.Tensor", kGather, 1, kSparse},
    {"mul.Tensor mul.out mul_.Tensor div.Tensor div.out div_.Tensor", kGather, 1, kSparse},
    {"mm mm.out addmm addmm.out addmm_ mv _sparse_sparse_matmul", kGather, 1, kSparse},
    {"sum sum.dim_IntList _sparse_sum_backward native_norm native_norm.ScalarOpt_dim_dtype norm.ScalarOpt_dim "
     "norm.ScalarOpt_dim_dtype",
     kVector, 1, kSparse},
    {"_sparse_softmax _sparse_softmax_backward_data _sparse_log_softmax _sparse_log_softmax_backward_data", kVector, 3,
     kSparse},
    {"abs abs.out abs_ neg neg.out neg_ sqrt sqrt.out sqrt_ relu relu_ tanh tanh.out tanh_ sign sign.out sign_ "
     "pow.Tensor_Scalar pow.Tensor_Scalar_out threshold_backward isnan",
     kVector, 1, kSparse},
    {"clone zero_ sparse_resize_ sparse_resize_and_clear_ copy_sparse_to_sparse_ resize_as_sparse_", kMove, 1, kSparse},
    {"permute unsqueeze view_as_real view_as_complex", kNone, 1, kSparse},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "sparse", kFromDense); }

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  register_native(m, "sparse", kTable);
  m.impl("empty.memory_format", empty_sparse);
  m.impl("copy_", copy_sparse_);
  m.impl("empty_like", at::native::empty_like_sparse_coo);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("_dimI", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("_dimV", at::native::dense_dim_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  note_native("sparse", "copy_", kMove);
  for (const char* name : {"empty.memory_format", "empty_like", "sparse_dim", "_dimI", "dense_dim", "_dimV", "_nnz",
                           "is_coalesced", "_coalesced_", "_indices", "_values", "indices", "values"}) {
    note_native("sparse", name, kNone);
  }
}

}  // namespace neuron::aten
