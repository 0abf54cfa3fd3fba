// Losses and distances.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_cdist_backward", kVector},
    {"_cdist_forward", kVector},
    {"_ctc_loss _ctc_loss.Tensor", kVector},
    {"_ctc_loss_backward _ctc_loss_backward.Tensor", kVector},
    {"_pdist_backward", kVector},
    {"_pdist_forward", kVector},
    {"binary_cross_entropy binary_cross_entropy.out", kVector},
    {"binary_cross_entropy_backward binary_cross_entropy_backward.grad_input", kVector},
    {"huber_loss huber_loss.out", kVector},
    {"huber_loss_backward.out", kVector},
    {"mse_loss mse_loss.out", kVector},
    {"mse_loss_backward mse_loss_backward.grad_input", kVector},
    {"multi_margin_loss multi_margin_loss.out", kVector},
    {"multi_margin_loss_backward multi_margin_loss_backward.grad_input", kVector},
    {"multilabel_margin_loss_backward multilabel_margin_loss_backward.grad_input", kVector},
    {"multilabel_margin_loss_forward multilabel_margin_loss_forward.output", kVector},
    {"nll_loss2d_backward nll_loss2d_backward.grad_input", kVector},
    {"nll_loss2d_forward nll_loss2d_forward.output", kVector},
    {"nll_loss_backward.grad_input", kVector},
    {"nll_loss_forward.output", kVector},
    {"smooth_l1_loss smooth_l1_loss.out", kVector},
    {"smooth_l1_loss_backward.grad_input", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "loss", kTable); }

}  // namespace neuron::aten
