// Factorisations and solvers.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_cholesky_solve_helper", kVector},
    {"_compute_linear_combination _compute_linear_combination.out", kVector},
    {"_linalg_det _linalg_det.result", kVector},
    {"_linalg_eigh _linalg_eigh.eigenvalues", kVector},
    {"_linalg_eigvals", kVector},
    {"_linalg_slogdet _linalg_slogdet.sign", kVector},
    {"_linalg_solve_ex _linalg_solve_ex.result", kVector},
    {"_linalg_svd _linalg_svd.U", kVector},
    {"addr addr.out", kVector},
    {"cholesky cholesky.out", kVector},
    {"cholesky_inverse cholesky_inverse.out", kVector},
    {"geqrf geqrf.a", kVector},
    {"linalg_cholesky_ex linalg_cholesky_ex.L", kVector},
    {"linalg_cross linalg_cross.out", kVector},
    {"linalg_eig linalg_eig.out", kVector},
    {"linalg_eigvals.out", kVector},
    {"linalg_householder_product linalg_householder_product.out", kVector},
    {"linalg_inv_ex linalg_inv_ex.inverse", kVector},
    {"linalg_ldl_factor_ex linalg_ldl_factor_ex.out", kVector},
    {"linalg_ldl_solve linalg_ldl_solve.out", kVector},
    // The tolerance is one number, which the library keeps as a float64 tensor: whole kernels, so that the comparison
    // with it is not a float64 operator of its own.
    {"linalg_lstsq linalg_lstsq.out", kVector},
    {"linalg_matrix_rank linalg_matrix_rank.out linalg_matrix_rank.tol_tensor linalg_matrix_rank.out_tol_tensor "
     "linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.atol_rtol_tensor_out "
     "linalg_matrix_rank.atol_rtol_float linalg_matrix_rank.atol_rtol_float_out",
     kVector},
    {"linalg_pinv.atol_rtol_tensor linalg_pinv.atol_rtol_tensor_out", kVector},
    {"linalg_lu linalg_lu.out", kVector},
    {"linalg_lu_factor_ex linalg_lu_factor_ex.out", kVector},
    {"linalg_lu_solve linalg_lu_solve.out", kVector},
    {"linalg_matrix_exp", kVector},
    {"linalg_qr linalg_qr.out", kVector},
    {"linalg_solve_triangular linalg_solve_triangular.out", kVector},
    {"lu_unpack lu_unpack.out", kVector},
    {"ormqr ormqr.out", kVector},
    {"triangular_solve triangular_solve.X", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "linalg", kTable); }

}  // namespace neuron::aten
