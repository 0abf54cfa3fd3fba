// Cumulative operations.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_cummax_helper", kVector},
    {"_cummin_helper", kVector},
    {"_logcumsumexp _logcumsumexp.out", kVector},
    {"cumprod cumprod.out cumprod_", kVector},
    {"cumsum cumsum.out cumsum_", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "scan", kTable); }

}  // namespace neuron::aten
