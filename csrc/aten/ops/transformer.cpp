// Fused encoder layers of nn.Transformer (inference).
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_native_multi_head_attention", kVector},
    {"_transformer_encoder_layer_fwd", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "transformer", kTable); }

}  // namespace neuron::aten
