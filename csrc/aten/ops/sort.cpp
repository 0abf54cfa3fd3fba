// Sorting.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"sort.stable sort.values_stable", kGather},
    {"topk topk.values", kGather},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "sort", kTable); }

}  // namespace neuron::aten
