// List operations of optimizers, gradient clipping and gradient scaling.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_foreach_abs _foreach_abs_", kVector},
    {"_foreach_acos _foreach_acos_", kScalar},
    {"_foreach_add.List _foreach_add.Scalar _foreach_add.ScalarList _foreach_add.Tensor _foreach_add_.List "
     "_foreach_add_.Scalar _foreach_add_.ScalarList _foreach_add_.Tensor",
     kVector},
    {"_foreach_addcdiv.Scalar _foreach_addcdiv.ScalarList _foreach_addcdiv.Tensor _foreach_addcdiv_.Scalar "
     "_foreach_addcdiv_.ScalarList _foreach_addcdiv_.Tensor",
     kVector},
    {"_foreach_addcmul.Scalar _foreach_addcmul.ScalarList _foreach_addcmul.Tensor _foreach_addcmul_.Scalar "
     "_foreach_addcmul_.ScalarList _foreach_addcmul_.Tensor",
     kVector},
    {"_foreach_asin _foreach_asin_", kScalar},
    {"_foreach_atan _foreach_atan_", kScalar},
    {"_foreach_ceil _foreach_ceil_", kVector},
    {"_foreach_clamp_max.List _foreach_clamp_max.Scalar _foreach_clamp_max.ScalarList _foreach_clamp_max_.List "
     "_foreach_clamp_max_.Scalar _foreach_clamp_max_.ScalarList",
     kVector},
    {"_foreach_clamp_min.List _foreach_clamp_min.Scalar _foreach_clamp_min.ScalarList _foreach_clamp_min_.List "
     "_foreach_clamp_min_.Scalar _foreach_clamp_min_.ScalarList",
     kVector},
    {"_foreach_clone", kVector},
    {"_foreach_copy _foreach_copy_", kVector},
    {"_foreach_cos _foreach_cos_", kScalar},
    {"_foreach_cosh _foreach_cosh_", kScalar},
    {"_foreach_div.List _foreach_div.Scalar _foreach_div.ScalarList _foreach_div.Tensor _foreach_div_.List "
     "_foreach_div_.Scalar _foreach_div_.ScalarList _foreach_div_.Tensor",
     kVector},
    {"_foreach_erf _foreach_erf_", kScalar},
    {"_foreach_erfc _foreach_erfc_", kScalar},
    {"_foreach_exp _foreach_exp_", kScalar},
    {"_foreach_expm1 _foreach_expm1_", kScalar},
    {"_foreach_floor _foreach_floor_", kVector},
    {"_foreach_frac _foreach_frac_", kVector},
    {"_foreach_lerp.List _foreach_lerp.Scalar _foreach_lerp.ScalarList _foreach_lerp_.List _foreach_lerp_.Scalar "
     "_foreach_lerp_.ScalarList",
     kVector},
    {"_foreach_lgamma _foreach_lgamma_", kScalar},
    {"_foreach_log _foreach_log_", kScalar},
    {"_foreach_log10 _foreach_log10_", kScalar},
    {"_foreach_log1p _foreach_log1p_", kScalar},
    {"_foreach_log2 _foreach_log2_", kScalar},
    {"_foreach_max", kVector},
    {"_foreach_maximum.List _foreach_maximum.Scalar _foreach_maximum.ScalarList _foreach_maximum_.List "
     "_foreach_maximum_.Scalar _foreach_maximum_.ScalarList",
     kVector},
    {"_foreach_minimum.List _foreach_minimum.Scalar _foreach_minimum.ScalarList _foreach_minimum_.List "
     "_foreach_minimum_.Scalar _foreach_minimum_.ScalarList",
     kVector},
    {"_foreach_mm", kVector},
    {"_foreach_mul.List _foreach_mul.Scalar _foreach_mul.ScalarList _foreach_mul.Tensor _foreach_mul_.List "
     "_foreach_mul_.Scalar _foreach_mul_.ScalarList _foreach_mul_.Tensor",
     kVector},
    {"_foreach_neg _foreach_neg_", kVector},
    {"_foreach_norm.Scalar", kVector},
    {"_foreach_pow.List _foreach_pow.Scalar _foreach_pow.ScalarAndTensor _foreach_pow.ScalarList _foreach_pow_.List "
     "_foreach_pow_.Scalar _foreach_pow_.ScalarList",
     kScalar},
    {"_foreach_powsum.Scalar", kScalar},
    {"_foreach_reciprocal _foreach_reciprocal_", kVector},
    {"_foreach_round _foreach_round_", kVector},
    {"_foreach_rsqrt _foreach_rsqrt_", kScalar},
    {"_foreach_sigmoid _foreach_sigmoid_", kScalar},
    {"_foreach_sign _foreach_sign_", kVector},
    {"_foreach_sin _foreach_sin_", kScalar},
    {"_foreach_sinh _foreach_sinh_", kScalar},
    {"_foreach_sqrt _foreach_sqrt_", kScalar},
    {"_foreach_sub.List _foreach_sub.Scalar _foreach_sub.ScalarList _foreach_sub_.List _foreach_sub_.Scalar "
     "_foreach_sub_.ScalarList",
     kVector},
    {"_foreach_tan _foreach_tan_", kScalar},
    {"_foreach_tanh _foreach_tanh_", kScalar},
    {"_foreach_trunc _foreach_trunc_", kVector},
    {"_foreach_zero _foreach_zero_", kVector},
    {"_amp_foreach_non_finite_check_and_unscale_", kVector},
    {"_amp_update_scale_", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "foreach", kTable); }

}  // namespace neuron::aten
