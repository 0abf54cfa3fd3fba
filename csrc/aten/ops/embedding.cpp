// Embedding tables.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_embedding_bag", kGather},
    {"_embedding_bag_backward", kGather},
    {"_embedding_bag_dense_backward", kGather},
    {"_embedding_bag_forward_only", kGather},
    {"_embedding_bag_per_sample_weights_backward", kGather},
    {"embedding_renorm_", kGather},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "embedding", kTable); }

}  // namespace neuron::aten
