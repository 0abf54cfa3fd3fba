// Reductions, histograms and order statistics.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_aminmax _aminmax.dim", kVector},
    {"_assert_async _assert_async.msg", kVector},
    {"_functional_assert_async.msg", kVector},
    {"_histogramdd_bin_edges", kVector},
    {"_histogramdd_from_bin_cts", kVector},
    {"_histogramdd_from_bin_tensors", kVector},
    {"all.all_out all.dim all.dims all.dims_out all.out", kVector},
    {"amax.out", kVector},
    {"amin amin.out", kVector},
    {"aminmax aminmax.out", kVector},
    {"any.all_out any.dim any.dims any.dims_out any.out", kVector},
    {"argmax.out", kVector},
    {"argmin argmin.out", kVector},
    {"bincount", kVector, 1, kHostScan},
    {"count_nonzero.dim_IntList", kVector},
    {"equal", kVector, 1, kHostScan},
    {"hash_tensor hash_tensor.out", kVector},
    {"histc histc.out", kVector},
    {"histogram.bin_ct histogram.bin_ct_out histogram.bins_tensor histogram.bins_tensor_out", kVector},
    {"kthvalue.values", kVector},
    {"linalg__powsum", kVector},
    {"linalg_vector_norm.out", kVector},
    {"max max.dim_max max.unary_out", kVector},
    {"mean.out", kVector},
    {"median median.dim_values", kVector},
    {"min min.dim min.dim_min min.unary_out", kVector},
    {"mode mode.values", kVector},
    {"nanmedian nanmedian.dim_values", kVector},
    {"nansum nansum.out", kVector},
    {"norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.dtype_out norm.out", kVector},
    {"prod prod.dim_int prod.int_out", kVector},
    {"std.correction std.correction_out", kVector, 2},
    {"std_mean.correction", kVector, 2},
    {"sum.IntList_out", kVector},
    {"trace", kVector},
    {"var.correction_out", kVector, 2},
    {"var_mean.correction", kVector, 2},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "reduce", kTable); }

}  // namespace neuron::aten
