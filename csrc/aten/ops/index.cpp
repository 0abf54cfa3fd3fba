// Indexing, gather and scatter, searching, uniqueness, sampling on grids.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_index_put_impl_", kGather, 1, kAnyCpu},
    {"_segment_reduce_backward", kGather},
    {"_unique", kGather, 1, kHostScan},
    {"_unique2", kGather, 1, kHostScan},
    {"bucketize.Scalar bucketize.Tensor bucketize.Tensor_out", kGather},
    {"gather.out", kGather},
    {"grid_sampler_2d", kGather},
    {"grid_sampler_2d_backward", kGather},
    {"grid_sampler_3d", kGather},
    {"grid_sampler_3d_backward", kGather},
    {"index.Tensor index.Tensor_out", kGather, 1, kAnyCpu},
    {"index_add index_add.out index_add_", kGather},
    {"index_copy index_copy.out index_copy_", kGather},
    {"index_fill_.int_Scalar index_fill_.int_Tensor", kGather},
    {"index_reduce index_reduce.out index_reduce_", kGather},
    {"index_select.out", kGather},
    {"isin.Scalar_Tensor isin.Scalar_Tensor_out isin.Tensor_Scalar isin.Tensor_Scalar_out isin.Tensor_Tensor "
     "isin.Tensor_Tensor_out",
     kVector},
    {"masked_scatter_", kGather},
    {"masked_select masked_select.out", kGather, 1, kHostScan},
    {"nonzero nonzero.out", kGather, 1, kHostScan},
    {"nonzero_static nonzero_static.out", kGather},
    {"put_", kGather},
    {"repeat_interleave.Tensor", kGather, 1, kHostScan},
    {"scatter.reduce scatter.reduce_out scatter.src scatter.src_out scatter.value scatter.value_out "
     "scatter.value_reduce scatter.value_reduce_out scatter_.reduce scatter_.src scatter_.value scatter_.value_reduce",
     kGather},
    {"scatter_add scatter_add.out scatter_add_", kGather},
    {"scatter_reduce.two scatter_reduce.two_out scatter_reduce_.two", kGather},
    {"searchsorted.Scalar searchsorted.Scalar_out searchsorted.Tensor searchsorted.Tensor_out", kGather},
    {"segment_reduce", kGather},
    {"take take.out", kGather},
    {"unique_consecutive", kGather, 1, kHostScan},
    {"unique_dim", kGather, 1, kHostScan},
    {"unique_dim_consecutive", kGather, 1, kHostScan},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "index", kTable); }

}  // namespace neuron::aten
