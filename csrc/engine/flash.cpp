#include "engine/flash.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/blas.h"
#include "engine/pool.h"
#include "engine/random.h"
#include "engine/rows.h"

namespace neuron::engine {
namespace {

constexpr int64_t kRows = 64;      // query rows of a block, about
constexpr int64_t kMostRows = 96;  // a length of up to that is one block

// Memory for the scores of a thread's block, kept for the next one.
float* scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

// A matrix with dense rows.
struct Matrix {
  const float* data;
  int64_t stride;  // between rows
};

// c (m x n) = alpha * op(a) op(b) + beta * c in row-major order, where op transposes if asked. BLAS counts in columns,
// so it computes the transposed product.
void multiply(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
              float beta, float* c, int64_t c_stride) {
  const char ta = transpose_a ? 'T' : 'N', tb = transpose_b ? 'T' : 'N';
  const int64_t lda = std::max<int64_t>(a.stride, 1), ldb = std::max<int64_t>(b.stride, 1);
  sgemm()(&tb, &ta, &n, &m, &k, &alpha, b.data, &ldb, a.data, &lda, &beta, c, &c_stride);
}

// (batch, heads, ...) with the last dimension dense: the matrix of one head.
Matrix head(const at::Tensor& t, int64_t batch, int64_t head) {
  return {t.const_data_ptr<float>() + batch * t.stride(0) + head * t.stride(1), t.stride(2)};
}
Matrix from_row(Matrix m, int64_t row) { return {m.data + row * m.stride, m.stride}; }
float* writable(Matrix m) { return const_cast<float*>(m.data); }

// What both directions share: sizes, and the scores of a block.
struct Shape {
  explicit Shape(const Attention& a)
      : batch(a.q.size(0)),
        heads(a.q.size(1)),
        length(a.q.size(2)),
        width(a.q.size(3)),
        kv_heads(a.k.size(1)),
        keys(a.k.size(2)),
        value_width(a.v.size(3)),
        group(heads / kv_heads),
        blocks(length <= kMostRows ? 1 : (length + kRows - 1) / kRows),
        rows((length + blocks - 1) / blocks),
        scale(static_cast<float>(a.scale.value_or(1.0 / std::sqrt(static_cast<double>(width))))) {
    if (a.mask.defined()) mask = a.mask.expand({batch, heads, length, keys});
    if (mask.defined() && mask.stride(3) != 1) mask = mask.contiguous();
  }
  const float* mask_row(int64_t b, int64_t h, int64_t row) const {
    if (!mask.defined()) return nullptr;
    return mask.const_data_ptr<float>() + b * mask.stride(0) + h * mask.stride(1) + row * mask.stride(2);
  }
  const int64_t batch, heads, length, width, kv_heads, keys, value_width, group, blocks, rows;
  const float scale;
  at::Tensor mask;
};

// Rows first .. first + rows - 1 of one head, against its first `keys` keys.
struct Block {
  Block(const Attention& a, const Shape& s, int64_t index)
      : first(std::min(index * s.rows, s.length)),
        rows(std::min(s.rows, s.length - first)),
        keys(a.causal ? std::min(s.keys, first + rows) : s.keys) {}
  // Keys that row r of the block may look at.
  int64_t visible(const Attention& a, int64_t r) const { return a.causal ? std::min(keys, first + r + 1) : keys; }
  const int64_t first, rows, keys;
};

// keep / (1 - p) of `n` scores of a row, from the launch's random numbers.
void dropout_row(const Attention& a, const Shape& s, int64_t b, int64_t h, int64_t row, int64_t n, float* factors) {
  std::fill(factors, factors + n, 1.0f);
  const int64_t number = ((b * s.heads + h) * s.length + row) * s.keys;
  dropout(factors, factors, nullptr, n, a.dropout, Source{a.seed, a.offset, /*threads=*/1}, number);
}

// An empty (batch, heads, length, width) whose memory is in the order of `like`'s dimensions.
at::Tensor empty_ordered(const at::Tensor& like, int64_t width) {
  const int64_t b = like.size(0), h = like.size(1), l = like.size(2);
  if (like.stride(1) < like.stride(2)) return at::empty({b, l, h, width}, like.options()).transpose(1, 2);
  return at::empty({b, h, l, width}, like.options());
}

}  // namespace

bool flash_present() { return sgemm() != nullptr; }

std::tuple<at::Tensor, at::Tensor> flash_forward(const Attention& a) {
  const Shape s(a);
  const RowKernels& row_ops = row_kernels();
  at::Tensor out = empty_ordered(a.q, s.value_width);
  at::Tensor sums = at::empty({s.batch, s.heads, s.length}, a.q.options());
  float* sum = sums.mutable_data_ptr<float>();
  const int64_t area = s.rows * s.keys;
  parallel(s.batch * s.heads * s.blocks, 1, host_threads(), [&](int64_t begin, int64_t end) {
    const SerialBlas serial;
    float* scores = scratch(area + s.keys);
    float* factors = scores + area;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t h = task / s.blocks % s.heads, b = task / s.blocks / s.heads;
      // The longest blocks of a causal attention first, so that the threads finish together.
      const Block block(a, s, s.blocks - 1 - task % s.blocks);
      const Matrix q = from_row(head(a.q, b, h), block.first), k = head(a.k, b, h / s.group),
                   v = head(a.v, b, h / s.group), o = from_row(head(out, b, h), block.first);
      multiply(false, true, block.rows, block.keys, s.width, s.scale, q, k, 0.0f, scores, block.keys);
      float inverse[kMostRows];
      for (int64_t r = 0; r < block.rows; ++r) {
        float* row = scores + r * block.keys;
        const int64_t n = block.visible(a, r), i = block.first + r;
        const float most = row_ops.largest(row, s.mask_row(b, h, i), n);
        const bool blind = most == -std::numeric_limits<float>::infinity();  // may look at nothing: zeros
        const float total = row_ops.exponentials(row, blind ? 0.0f : most, n);
        std::fill(row + n, row + block.keys, 0.0f);
        sum[(b * s.heads + h) * s.length + i] = most + std::log(total);
        inverse[r] = blind ? 0.0f : 1.0f / total;
        if (a.dropout > 0.0) {
          dropout_row(a, s, b, h, i, n, factors);
          for (int64_t j = 0; j < n; ++j) row[j] *= factors[j];
        }
      }
      multiply(false, false, block.rows, s.value_width, block.keys, 1.0f, {scores, block.keys}, v, 0.0f, writable(o),
               o.stride);
      for (int64_t r = 0; r < block.rows; ++r) {
        float* row = writable(from_row(o, r));
        for (int64_t j = 0; j < s.value_width; ++j) row[j] *= inverse[r];
      }
    }
  });
  return {out, sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_backward(const Attention& a,
                                                                          const at::Tensor& grad_out,
                                                                          const at::Tensor& sums, bool want_mask) {
  const Shape s(a);
  const RowKernels& row_ops = row_kernels();
  at::Tensor grad_q = empty_ordered(a.q, s.width), grad_k = empty_ordered(a.k, s.width),
             grad_v = empty_ordered(a.v, s.value_width), grad_scores;
  grad_k.zero_();
  grad_v.zero_();
  if (want_mask) grad_scores = at::zeros({s.batch, s.heads, s.length, s.keys}, a.q.options());
  const at::Tensor row_sums = sums.contiguous();
  const float* sum = row_sums.const_data_ptr<float>();
  const int64_t area = s.rows * s.keys;
  // One task owns a head of keys and values, so that their gradients add up without locks.
  parallel(s.batch * s.kv_heads, 1, host_threads(), [&](int64_t begin, int64_t end) {
    const SerialBlas serial;
    float* p = scratch(2 * area + s.keys);
    float* d = p + area;
    float* factors = d + area;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / s.kv_heads, kv = task % s.kv_heads;
      const Matrix k = head(a.k, b, kv), v = head(a.v, b, kv), gk = head(grad_k, b, kv), gv = head(grad_v, b, kv);
      for (int64_t pass = 0; pass < s.group * s.blocks; ++pass) {
        const int64_t h = kv * s.group + pass / s.blocks;
        const Block block(a, s, pass % s.blocks);
        const int64_t n = block.keys;
        const Matrix q = from_row(head(a.q, b, h), block.first), g = from_row(head(grad_out, b, h), block.first),
                     gq = from_row(head(grad_q, b, h), block.first);
        multiply(false, true, block.rows, n, s.width, s.scale, q, k, 0.0f, p, n);
        multiply(false, true, block.rows, n, s.value_width, 1.0f, g, v, 0.0f, d, n);
        for (int64_t r = 0; r < block.rows; ++r) {
          float *p_row = p + r * n, *d_row = d + r * n;
          const int64_t visible = block.visible(a, r), i = block.first + r;
          const float total = sum[(b * s.heads + h) * s.length + i];
          if (total == -std::numeric_limits<float>::infinity()) {
            std::fill(p_row, p_row + n, 0.0f);
            std::fill(d_row, d_row + n, 0.0f);
            continue;
          }
          // `total` is rounded, and off by that much are all probabilities of the row: their sum is 1 by division.
          const float all = row_ops.probabilities(p_row, s.mask_row(b, h, i), total, visible);
          if (a.dropout > 0.0) {
            dropout_row(a, s, b, h, i, visible, factors);
            for (int64_t j = 0; j < visible; ++j) d_row[j] *= factors[j];
          }
          row_ops.gradient(d_row, p_row, 1.0f / all, visible);
          if (a.dropout > 0.0) {
            for (int64_t j = 0; j < visible; ++j) p_row[j] *= factors[j];
          }
          std::fill(p_row + visible, p_row + n, 0.0f);
          std::fill(d_row + visible, d_row + n, 0.0f);
          if (want_mask) std::copy(d_row, d_row + n, writable(from_row(head(grad_scores, b, h), i)));
        }
        multiply(true, false, n, s.value_width, block.rows, 1.0f, {p, n}, g, 1.0f, writable(gv), gv.stride);
        multiply(false, false, block.rows, s.width, n, s.scale, {d, n}, k, 0.0f, writable(gq), gq.stride);
        multiply(true, false, n, s.width, block.rows, s.scale, {d, n}, q, 1.0f, writable(gk), gk.stride);
      }
    }
  });
  return {grad_q, grad_k, grad_v, grad_scores};
}

}  // namespace neuron::engine
