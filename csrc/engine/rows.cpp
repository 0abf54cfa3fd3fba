#include "engine/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuron::engine {
namespace {

constexpr float kLowest = -87.3f;  // exp of less is not a normal number

namespace portable {

float exponential(float x) { return x < kLowest ? 0.0f : std::exp(x); }

float largest(float* s, const float* mask, int64_t n) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    if (mask != nullptr) s[i] += mask[i];
    most = std::max(most, s[i]);
  }
  return most;
}
float exponentials(float* s, float shift, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += s[i] = exponential(s[i] - shift);
  return sum;
}
float probabilities(float* s, const float* mask, float shift, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += s[i] = exponential((mask != nullptr ? s[i] + mask[i] : s[i]) - shift);
  return sum;
}
void gradient(float* d, float* p, float scale, int64_t n) {
  float mean = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    p[i] *= scale;
    mean += p[i] * d[i];
  }
  for (int64_t i = 0; i < n; ++i) d[i] = p[i] * (d[i] - mean);
}

}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {

#define NEURON_AVX2 __attribute__((target("avx2,fma")))

constexpr int64_t kWidth = 8;

// exp(x) = 2^k * exp(r) with |r| <= ln(2) / 2, and the series of exp(r). NaN stays NaN.
NEURON_AVX2 inline __m256 exponential(__m256 x) {
  const __m256 low = _mm256_set1_ps(kLowest);
  const __m256 underflow = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(88.7f), _mm256_max_ps(low, x));
  const __m256 k =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln(2) in two parts, the first exact in float32 for every k.
  __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 y = _mm256_set1_ps(1.0f / 5040);
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 720));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 120));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 24));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 6));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0.5f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(underflow, _mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

// The first `n` of eight lanes.
NEURON_AVX2 inline __m256i lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
NEURON_AVX2 inline float sum_of(__m256 v) {
  float x[8];
  _mm256_storeu_ps(x, v);
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

NEURON_AVX2 float largest(float* s, const float* mask, int64_t n) {
  const __m256 nothing = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  __m256 most = nothing;
  for (int64_t i = 0; i < n; i += kWidth) {
    const __m256i in = lanes(n - i);
    __m256 x = _mm256_maskload_ps(s + i, in);
    if (mask != nullptr) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(mask + i, in));
      _mm256_maskstore_ps(s + i, in, x);
    }
    most = _mm256_max_ps(most, _mm256_blendv_ps(nothing, x, _mm256_castsi256_ps(in)));
  }
  float x[8];
  _mm256_storeu_ps(x, most);
  return *std::max_element(x, x + 8);
}

NEURON_AVX2 float exponentials(float* s, float shift, int64_t n) {
  const __m256 by = _mm256_set1_ps(shift);
  __m256 sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const __m256 y = exponential(_mm256_sub_ps(_mm256_loadu_ps(s + i), by));
    _mm256_storeu_ps(s + i, y);
    sum = _mm256_add_ps(sum, y);
  }
  if (i < n) {
    const __m256i in = lanes(n - i);
    const __m256 y = exponential(_mm256_sub_ps(_mm256_maskload_ps(s + i, in), by));
    _mm256_maskstore_ps(s + i, in, y);
    sum = _mm256_add_ps(sum, _mm256_and_ps(y, _mm256_castsi256_ps(in)));
  }
  return sum_of(sum);
}

NEURON_AVX2 float probabilities(float* s, const float* mask, float shift, int64_t n) {
  const __m256 by = _mm256_set1_ps(shift);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += kWidth) {
    const __m256i in = lanes(n - i);
    __m256 x = _mm256_maskload_ps(s + i, in);
    if (mask != nullptr) x = _mm256_add_ps(x, _mm256_maskload_ps(mask + i, in));
    const __m256 y = _mm256_and_ps(exponential(_mm256_sub_ps(x, by)), _mm256_castsi256_ps(in));
    _mm256_maskstore_ps(s + i, in, y);
    sum = _mm256_add_ps(sum, y);
  }
  return sum_of(sum);
}

NEURON_AVX2 void gradient(float* d, float* p, float scale, int64_t n) {
  const __m256 factor = _mm256_set1_ps(scale);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += kWidth) {
    const __m256i in = lanes(n - i);
    const __m256 x = _mm256_mul_ps(_mm256_maskload_ps(p + i, in), factor);
    _mm256_maskstore_ps(p + i, in, x);
    sum = _mm256_fmadd_ps(x, _mm256_maskload_ps(d + i, in), sum);
  }
  const __m256 mean = _mm256_set1_ps(sum_of(sum));
  for (int64_t i = 0; i < n; i += kWidth) {
    const __m256i in = lanes(n - i);
    const __m256 x = _mm256_sub_ps(_mm256_maskload_ps(d + i, in), mean);
    _mm256_maskstore_ps(d + i, in, _mm256_mul_ps(_mm256_maskload_ps(p + i, in), x));
  }
}

}  // namespace avx2
#endif

RowKernels choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {avx2::largest, avx2::exponentials, avx2::probabilities, avx2::gradient};
  }
#endif
  return {portable::largest, portable::exponentials, portable::probabilities, portable::gradient};
}

}  // namespace

const RowKernels& row_kernels() {
  static const RowKernels kernels = choose();
  return kernels;
}

}  // namespace neuron::engine
