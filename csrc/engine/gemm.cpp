#include "engine/gemm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

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

at::Tensor square(int64_t n, at::ScalarType type) { return at::ones({n, n}, at::TensorOptions().dtype(type)); }

OneDnnMatmul choose_float32() {
  const char* asked = std::getenv("TORCH_NEURONX_GEMM");
  const std::string choice = asked == nullptr || *asked == '\0' ? "auto" : asked;
  TORCH_CHECK_VALUE(choice == "auto" || choice == "mkl" || choice == "onednn", "TORCH_NEURONX_GEMM=", choice,
                    " is not one of auto, mkl, onednn");
  const OneDnnMatmul onednn = find_onednn();
  if (choice == "mkl" || onednn == nullptr) return nullptr;
  const at::Tensor a = square(256, at::kFloat), out = square(256, at::kFloat);
  double ours = 0;
  try {
    ours = best_time([&] { onednn(a, a, out, 0.0f, 1.0f); });
  } catch (const c10::Error&) {
    // The function refuses CPUs without AVX-512, float32 included.
    TORCH_CHECK(choice == "auto",
                "TORCH_NEURONX_GEMM=onednn: oneDNN's matrix product does not run on this CPU. "
                "Use auto or mkl.");
    return nullptr;
  }
  if (choice == "onednn") return onednn;
  const double theirs = best_time([&] { at::mm(a, a); });
  return ours < 0.8 * theirs ? onednn : nullptr;  // below that the choice is noise, and MKL is the reference
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

bool onednn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta, float alpha) {
  constexpr int64_t kWorthwhile = 64 * 64 * 64;  // multiply-adds below which the call overhead decides
  if (a.scalar_type() != at::kFloat || a.numel() * b.size(-1) < kWorthwhile) return false;
  static const OneDnnMatmul onednn = choose_float32();
  if (onednn == nullptr) return false;
  onednn(a, b, out, beta, alpha);
  return true;
}

}  // namespace neuron::engine
