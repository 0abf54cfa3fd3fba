// Pooling and sliding windows.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_adaptive_avg_pool3d", kVector},
    {"_adaptive_avg_pool3d_backward", kVector},
    {"adaptive_avg_pool2d.out", kVector},
    {"adaptive_avg_pool3d.out", kVector},
    {"adaptive_avg_pool3d_backward.grad_input", kVector},
    {"adaptive_max_pool2d adaptive_max_pool2d.out", kVector},
    {"adaptive_max_pool2d_backward adaptive_max_pool2d_backward.grad_input", kVector},
    {"adaptive_max_pool3d adaptive_max_pool3d.out", kVector},
    {"adaptive_max_pool3d_backward adaptive_max_pool3d_backward.grad_input", kVector},
    {"avg_pool2d avg_pool2d.out", kVector},
    {"avg_pool2d_backward avg_pool2d_backward.grad_input", kVector},
    {"avg_pool3d avg_pool3d.out", kVector},
    {"avg_pool3d_backward avg_pool3d_backward.grad_input", kVector},
    {"col2im col2im.out", kVector},
    {"fractional_max_pool2d fractional_max_pool2d.output", kVector},
    {"fractional_max_pool2d_backward fractional_max_pool2d_backward.grad_input", kVector},
    {"fractional_max_pool3d fractional_max_pool3d.output", kVector},
    {"fractional_max_pool3d_backward fractional_max_pool3d_backward.grad_input", kVector},
    {"im2col im2col.out", kVector},
    {"max_pool2d_with_indices.out", kVector},
    {"max_pool2d_with_indices_backward.grad_input", kVector},
    {"max_pool3d_with_indices max_pool3d_with_indices.out", kVector},
    {"max_pool3d_with_indices_backward max_pool3d_with_indices_backward.grad_input", kVector},
    {"max_unpool2d max_unpool2d.out", kVector},
    {"max_unpool3d max_unpool3d.out", kVector},
    {"unfold_backward", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "pool", kTable); }

}  // namespace neuron::aten
