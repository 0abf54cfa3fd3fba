// Joining, padding, rearranging and filling.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_stack _stack.out", kMove},
    {"_transform_bias_rescale_qkv", kMove},
    {"arange.start_out", kMove},
    {"cat cat.out", kMove},
    {"channel_shuffle", kMove},
    {"eye.m_out eye.out", kMove},
    {"fill_.Tensor", kMove},
    {"flip", kMove},
    {"linspace.out", kMove},
    {"logspace.out", kMove},
    {"narrow_copy narrow_copy.out", kMove},
    {"pixel_shuffle", kMove},
    {"pixel_unshuffle", kMove},
    {"range.out", kMove},
    {"reflection_pad1d reflection_pad1d.out", kMove},
    {"reflection_pad1d_backward reflection_pad1d_backward.grad_input", kMove},
    {"reflection_pad2d reflection_pad2d.out", kMove},
    {"reflection_pad2d_backward reflection_pad2d_backward.grad_input", kMove},
    {"reflection_pad3d reflection_pad3d.out", kMove},
    {"reflection_pad3d_backward reflection_pad3d_backward.grad_input", kMove},
    {"replication_pad1d replication_pad1d.out", kMove},
    {"replication_pad1d_backward replication_pad1d_backward.grad_input", kMove},
    {"replication_pad2d replication_pad2d.out", kMove},
    {"replication_pad2d_backward replication_pad2d_backward.grad_input", kMove},
    {"replication_pad3d replication_pad3d.out", kMove},
    {"replication_pad3d_backward replication_pad3d_backward.grad_input", kMove},
    {"roll", kMove},
    {"tril.out tril_", kMove},
    {"tril_indices", kMove},
    {"triu.out triu_", kMove},
    {"triu_indices", kMove},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "shape", kTable); }

}  // namespace neuron::aten
