// Row operations of attention in vector registers. Rows are dense float32 memory of n elements.
#pragma once
#include <cstdint>

namespace neuron::engine {

struct RowKernels {
  // s[i] += mask[i] (mask may be null); returns the largest s[i], -inf for n = 0.
  float (*largest)(float* s, const float* mask, int64_t n);
  // s[i] = exp(s[i] - shift); returns their sum.
  float (*exponentials)(float* s, float shift, int64_t n);
  // s[i] = exp(s[i] + mask[i] - shift) (mask may be null); returns their sum.
  float (*probabilities)(float* s, const float* mask, float shift, int64_t n);
  // p[i] *= scale, then d[i] = p[i] * (d[i] - sum of p[j] * d[j]): the gradient of a softmax row p.
  void (*gradient)(float* d, float* p, float scale, int64_t n);
};

// For the CPU that the process runs on. exp has a relative error below 3e-7 and is 0 from exp(-87.3) down.
const RowKernels& row_kernels();

}  // namespace neuron::engine
