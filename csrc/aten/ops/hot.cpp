// The operators of the family tables that training and inference call most, without the walk over their schema.
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_ops.h>
#include <ATen/ops/var_ops.h>
#include <ATen/ops/where_ops.h>

#include "aten/direct.h"

namespace neuron::aten {

using enum device::Kind;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define HOT(family, name, op, kind, passes)                \
  m.impl(name, &Direct<at::_ops::op, kind, passes>::call); \
  note_native(family, name, kind)
  HOT("reduce", "sum", sum, kVector, 1);
  HOT("reduce", "sum.dim_IntList", sum_dim_IntList, kVector, 1);
  HOT("reduce", "mean.dim", mean_dim, kVector, 1);
  HOT("reduce", "amax", amax, kVector, 1);
  HOT("reduce", "argmax", argmax, kVector, 1);
  HOT("reduce", "max.dim", max_dim, kVector, 1);
  HOT("reduce", "any", any, kVector, 1);
  HOT("reduce", "all", all, kVector, 1);
  HOT("reduce", "var.correction", var_correction, kVector, 2);
  HOT("reduce", "linalg_vector_norm", linalg_vector_norm, kVector, 1);
  HOT("norm", "_softmax", _softmax, kVector, 3);
  HOT("norm", "_softmax_backward_data", _softmax_backward_data, kVector, 2);
  HOT("norm", "_log_softmax", _log_softmax, kVector, 3);
  HOT("norm", "_log_softmax_backward_data", _log_softmax_backward_data, kVector, 2);
  HOT("norm", "native_layer_norm", native_layer_norm, kVector, 5);
  HOT("norm", "native_layer_norm_backward", native_layer_norm_backward, kVector, 4);
  HOT("norm", "native_group_norm", native_group_norm, kVector, 3);
  HOT("norm", "native_group_norm_backward", native_group_norm_backward, kVector, 4);
  HOT("norm", "native_batch_norm", native_batch_norm, kVector, 3);
  HOT("norm", "native_batch_norm_backward", native_batch_norm_backward, kVector, 4);
  HOT("pointwise", "where.self", where_self, kVector, 1);
  HOT("pointwise", "gelu", gelu, kScalar, 1);
  HOT("pointwise", "gelu_backward", gelu_backward, kScalar, 1);
  HOT("pointwise", "silu_backward", silu_backward, kScalar, 1);
  HOT("pointwise", "pow.Tensor_Scalar", pow_Tensor_Scalar, kScalar, 1);
  HOT("pointwise", "clamp", clamp, kVector, 1);
  HOT("pointwise", "bitwise_and.Tensor", bitwise_and_Tensor, kVector, 1);
  HOT("pointwise", "bitwise_not", bitwise_not, kVector, 1);
  HOT("pointwise", "addcmul", addcmul, kVector, 1);
  HOT("pointwise", "addcmul_", addcmul_, kVector, 1);
  HOT("pointwise", "addcdiv_", addcdiv_, kVector, 1);
  HOT("pointwise", "lerp_.Scalar", lerp__Scalar, kVector, 1);
  HOT("index", "masked_fill_.Scalar", masked_fill__Scalar, kVector, 1);
  HOT("index", "masked_fill_.Tensor", masked_fill__Tensor, kVector, 1);
  HOT("index", "index_select", index_select, kGather, 1);
  HOT("index", "gather", gather, kGather, 1);
  HOT("shape", "tril", tril, kMove, 1);
  HOT("shape", "triu", triu, kMove, 1);
  HOT("embedding", "embedding_dense_backward", embedding_dense_backward, kGather, 1);
  HOT("loss", "nll_loss_forward", nll_loss_forward, kVector, 1);
  HOT("loss", "nll_loss_backward", nll_loss_backward, kVector, 1);
  HOT("pool", "max_pool2d_with_indices", max_pool2d_with_indices, kVector, 1);
  HOT("pool", "max_pool2d_with_indices_backward", max_pool2d_with_indices_backward, kVector, 1);
  HOT("pool", "_adaptive_avg_pool2d", _adaptive_avg_pool2d, kVector, 1);
  HOT("pool", "_adaptive_avg_pool2d_backward", _adaptive_avg_pool2d_backward, kVector, 1);
#undef HOT
}

}  // namespace neuron::aten
