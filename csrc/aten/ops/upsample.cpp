// Resizing of images.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_upsample_bicubic2d_aa _upsample_bicubic2d_aa.out", kVector},
    {"_upsample_bicubic2d_aa_backward _upsample_bicubic2d_aa_backward.grad_input", kVector},
    {"_upsample_bilinear2d_aa _upsample_bilinear2d_aa.out", kVector},
    {"_upsample_bilinear2d_aa_backward _upsample_bilinear2d_aa_backward.grad_input", kVector},
    {"_upsample_lanczos2d_aa _upsample_lanczos2d_aa.out", kVector},
    {"_upsample_lanczos2d_aa_backward _upsample_lanczos2d_aa_backward.grad_input", kVector},
    {"_upsample_nearest_exact1d _upsample_nearest_exact1d.out", kVector},
    {"_upsample_nearest_exact1d_backward _upsample_nearest_exact1d_backward.grad_input", kVector},
    {"_upsample_nearest_exact2d _upsample_nearest_exact2d.out", kVector},
    {"_upsample_nearest_exact2d_backward _upsample_nearest_exact2d_backward.grad_input", kVector},
    {"_upsample_nearest_exact3d _upsample_nearest_exact3d.out", kVector},
    {"_upsample_nearest_exact3d_backward _upsample_nearest_exact3d_backward.grad_input", kVector},
    {"upsample_bicubic2d upsample_bicubic2d.out", kVector},
    {"upsample_bicubic2d_backward upsample_bicubic2d_backward.grad_input", kVector},
    {"upsample_bilinear2d upsample_bilinear2d.out", kVector},
    {"upsample_bilinear2d_backward upsample_bilinear2d_backward.grad_input", kVector},
    {"upsample_linear1d upsample_linear1d.out", kVector},
    {"upsample_linear1d_backward upsample_linear1d_backward.grad_input", kVector},
    {"upsample_nearest1d upsample_nearest1d.out", kVector},
    {"upsample_nearest1d_backward upsample_nearest1d_backward.grad_input", kVector},
    {"upsample_nearest2d upsample_nearest2d.out", kVector},
    {"upsample_nearest2d_backward upsample_nearest2d_backward.grad_input", kVector},
    {"upsample_nearest3d upsample_nearest3d.out", kVector},
    {"upsample_nearest3d_backward upsample_nearest3d_backward.grad_input", kVector},
    {"upsample_trilinear3d upsample_trilinear3d.out", kVector},
    {"upsample_trilinear3d_backward upsample_trilinear3d_backward.grad_input", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "upsample", kTable); }

}  // namespace neuron::aten
