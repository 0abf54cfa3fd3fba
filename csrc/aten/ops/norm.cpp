// Softmax, layer, batch, group and weight norms.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_batch_norm_with_update _batch_norm_with_update.out", kVector, 3},
    {"_log_softmax.out", kVector, 3},
    {"_log_softmax_backward_data.out", kVector, 2},
    {"_masked_softmax", kVector},
    {"_masked_softmax_backward", kVector},
    {"_native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit.no_stats_out "
     "_native_batch_norm_legit.out",
     kVector, 3},
    {"_softmax.out", kVector, 3},
    {"_softmax_backward_data.out", kVector, 2},
    {"_weight_norm_interface", kVector},
    {"_weight_norm_interface_backward", kVector},
    {"batch_norm_backward", kVector, 4},
    {"batch_norm_update_stats", kVector},
    {"native_batch_norm.out", kVector, 3},
    {"renorm renorm.out renorm_", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "norm", kTable); }

}  // namespace neuron::aten
