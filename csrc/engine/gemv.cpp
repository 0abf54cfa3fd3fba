// Products of a few rows with a large matrix: what decoding a token does with every weight. The matrix is read once and
// at its own width, so the time is that of its bytes.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <vector>

#include "engine/blas.h"
#include "engine/gemm.h"
#include "engine/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuron::engine {
namespace {

constexpr int64_t kMaxRows = 4;  // more rows are a matrix product
constexpr size_t kLarge =
    8 << 20;  // bytes of a float32 matrix above which memory decides; below, MKL is a little quicker
constexpr int64_t kSmall = 64 * 64;       // elements of the matrix below which ATen's call is as quick
constexpr int64_t kGrainBytes = 1 << 16;  // of the matrix, that a thread takes at a time

template <typename T>
float dot_portable(const float* x, const T* w, int64_t k) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    for (int l = 0; l < 8; ++l) sums[l] += x[i + l] * static_cast<float>(w[i + l]);
  }
  for (; i < k; ++i) sums[0] += x[i] * static_cast<float>(w[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#if defined(__x86_64__)
#define NEURON_AVX2 __attribute__((target("avx2,fma,f16c")))

NEURON_AVX2 inline __m256 load(const float* p) { return _mm256_loadu_ps(p); }
NEURON_AVX2 inline __m256 load(const c10::BFloat16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
NEURON_AVX2 inline __m256 load(const c10::Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Four sums side by side hide the latency of the additions.
template <typename T>
NEURON_AVX2 float dot_avx2(const float* x, const T* w, int64_t k) {
  __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 32 <= k; i += 32) {
    sum0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), load(w + i), sum0);
    sum1 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), load(w + i + 8), sum1);
    sum2 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 16), load(w + i + 16), sum2);
    sum3 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 24), load(w + i + 24), sum3);
  }
  for (; i + 8 <= k; i += 8) sum0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), load(w + i), sum0);
  const __m256 sum = _mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3));
  float lanes[8];
  _mm256_storeu_ps(lanes, sum);
  float total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (; i < k; ++i) total += x[i] * static_cast<float>(w[i]);
  return total;
}

template <typename T>
auto choose_dot() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return avx2 ? &dot_avx2<T> : &dot_portable<T>;
}
#else
template <typename T>
auto choose_dot() {
  return &dot_portable<T>;
}
#endif

template <typename T>
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& out, float beta,
              float alpha) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), stride = b.stride(1);
  std::vector<float> rows(static_cast<size_t>(m * k));
  const T* x = a.const_data_ptr<T>();
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t i = 0; i < k; ++i) rows[r * k + i] = static_cast<float>(x[r * a.stride(0) + i * a.stride(1)]);
  }
  static const auto dot = choose_dot<T>();
  const T* weights = b.const_data_ptr<T>();
  const T* added = beta != 0.0f && c.defined() ? c.const_data_ptr<T>() : nullptr;
  T* y = out.mutable_data_ptr<T>();
  const int64_t added_row = added != nullptr ? c.stride(0) : 0, added_column = added != nullptr ? c.stride(1) : 0;
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (k * static_cast<int64_t>(sizeof(T))));
  const int threads = host_threads();
  parallel(n, grain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t r = 0; r < m; ++r) {
        float value = alpha * dot(rows.data() + r * k, weights + column * stride, k);
        if (added != nullptr) value += beta * static_cast<float>(added[r * added_row + column * added_column]);
        y[r * n + column] = static_cast<T>(value);
      }
    }
  });
}

}  // namespace

bool few_rows_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& out, float beta,
                     float alpha) {
  const at::ScalarType type = a.scalar_type();
  if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0) || b.scalar_type() != type || a.is_conj() || a.is_neg() ||
      b.is_neg() || b.stride(0) != 1 || b.stride(1) < b.size(0) || b.numel() < kSmall) {
    return false;
  }
  if (a.size(0) < 1 || a.size(0) > (type == at::kFloat ? 1 : kMaxRows)) return false;
  if (type == at::kFloat && b.numel() * sizeof(float) < kLarge) return false;
  at::Tensor added;
  if (c.defined()) {
    if (c.scalar_type() != type || c.is_neg()) return false;
    added = c.expand({a.size(0), b.size(1)});
  }
  switch (type) {
    case at::kFloat:
      multiply<float>(a, b, added, out, beta, alpha);
      return true;
    case at::kBFloat16:
      multiply<c10::BFloat16>(a, b, added, out, beta, alpha);
      return true;
    case at::kHalf:
      multiply<c10::Half>(a, b, added, out, beta, alpha);
      return true;
    default:
      return false;
  }
}

}  // namespace neuron::engine
