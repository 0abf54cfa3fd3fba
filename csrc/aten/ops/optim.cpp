// Fused optimizer steps: one launch over a list of parameters.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_fused_adam_ _fused_adam_.tensor_lr", kVector, 6},
    {"_fused_adamw_ _fused_adamw_.tensor_lr", kVector, 6},
    {"_fused_sgd_ _fused_sgd_.tensor_lr", kVector, 3},
    {"_fused_adagrad_ _fused_adagrad_.tensor_lr", kVector, 4},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "optim", kTable); }

}  // namespace neuron::aten
