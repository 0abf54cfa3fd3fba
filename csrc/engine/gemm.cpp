#include "engine/gemm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

#include "engine/blas.h"

namespace neuron::engine {
namespace {

using OneDnnMatmul = void (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, float, float);

// libtorch_cpu exports this function without shipping its header, so it may be gone in another release.
OneDnnMatmul find_onednn() {
  return reinterpret_cast<OneDnnMatmul>(dlsym(RTLD_DEFAULT, "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"));
}

// The fastest of a few runs, in seconds: noise only ever adds time.
template <typename F>
double best_time(const F& f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// What BLAS calls a row-major matrix that is dense or the transpose of a dense one.
struct Operand {
  const float* data;
  char transposed;
  int64_t leading;
};
std::optional<Operand> operand(const at::Tensor& t) {
  const auto* data = static_cast<const float*>(t.const_data_ptr());
  if (t.stride(1) == 1 && t.stride(0) >= std::max<int64_t>(1, t.size(1))) return Operand{data, 'n', t.stride(0)};
  if (t.stride(0) == 1 && t.stride(1) >= std::max<int64_t>(1, t.size(0))) return Operand{data, 't', t.stride(1)};
  return std::nullopt;
}

at::Tensor square(int64_t n, at::ScalarType type) { return at::ones({n, n}, at::TensorOptions().dtype(type)); }

// Why oneDNN cannot multiply here, or empty. It refuses CPUs without AVX-512 even for float32.
std::string refusal(OneDnnMatmul onednn) {
  if (onednn == nullptr) return "this torch does not export at::native::mkldnn_matmul";
  const at::Tensor a = square(16, at::kFloat), out = square(16, at::kFloat);
  try {
    onednn(a, a, out, 0.0f, 1.0f);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

OneDnnMatmul choose_float32() {
  const char* asked = std::getenv("TORCH_NEURONX_GEMM");
  const std::string choice = asked == nullptr || *asked == '\0' ? "auto" : asked;
  TORCH_CHECK_VALUE(choice == "auto" || choice == "mkl" || choice == "onednn", "TORCH_NEURONX_GEMM=", choice,
                    " is not one of auto, mkl, onednn");
  if (choice == "mkl") return nullptr;
  const OneDnnMatmul onednn = find_onednn();
  const std::string reason = refusal(onednn);
  TORCH_CHECK_VALUE(choice == "auto" || reason.empty(),
                    "TORCH_NEURONX_GEMM=onednn, but oneDNN's matrix product does not run here: ", reason,
                    ". Use auto or mkl.");
  if (!reason.empty()) return nullptr;
  if (choice == "onednn") return onednn;
  const at::Tensor a = square(256, at::kFloat), out = square(256, at::kFloat);
  const double theirs = best_time([&] { at::mm(a, a); });
  const double ours = best_time([&] { onednn(a, a, out, 0.0f, 1.0f); });
  return ours < 0.8 * theirs ? onednn : nullptr;  // below that the choice is noise, and MKL is the reference
}

OneDnnMatmul onednn() {
  static const OneDnnMatmul chosen = choose_float32();
  return chosen;
}

bool measure_widen(at::ScalarType type) {
  const at::Tensor narrow = square(128, type);
  const double as_is = best_time([&] { at::mm(narrow, narrow); });
  const double widened = best_time([&] { at::mm(narrow.to(at::kFloat), narrow.to(at::kFloat)).to(type); });
  return widened < as_is;
}

}  // namespace

bool widen(at::ScalarType type) {
  if (type == at::kBFloat16) {
    static const bool result = measure_widen(at::kBFloat16);
    return result;
  }
  if (type == at::kHalf) {
    static const bool result = measure_widen(at::kHalf);
    return result;
  }
  return false;
}

bool onednn_worthwhile(int64_t m, int64_t n, int64_t k) { return !is_small(m, n, k) && onednn() != nullptr; }

void onednn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta, float alpha) {
  onednn()(a, b, out, beta, alpha);
}

bool small_matmul(const at::Tensor& a, const at::Tensor& b, float* out) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  if (sgemm() == nullptr || !is_small(m, n, k) || m * n * k == 0) return false;
  const auto left = operand(a), right = operand(b);
  if (!left || !right) return false;
  const float one = 1.0f, zero = 0.0f;
  // BLAS is column-major: out^T = b^T a^T.
  sgemm()(&right->transposed, &left->transposed, &n, &m, &k, &one, right->data, &right->leading, left->data,
          &left->leading, &zero, out, &n);
  return true;
}

}  // namespace neuron::engine
