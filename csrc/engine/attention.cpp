#include "engine/attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/blas.h"
#include "engine/random.h"

namespace neuron::engine {
namespace {

// Scores held at a time. Blocks keep the scratch memory bounded and in the cache, however long the sequences are.
constexpr int64_t kBlockScores = int64_t{1} << 20;

// The products of (batch * heads) matrices, in blocks of matrices.
class Blocks {
 public:
  explicit Blocks(const Attention& a)
      : a_(a),
        batch_(a.q.size(0)),
        heads_(a.q.size(1)),
        length_(a.q.size(2)),
        keys_(a.k.size(2)),
        scale_(a.scale.value_or(1.0 / std::sqrt(static_cast<double>(a.q.size(3))))),
        q_(a.q.reshape({batch_ * heads_, length_, a.q.size(3)})),
        k_(spread(a.k)),
        v_(spread(a.v)),
        step_(std::clamp<int64_t>(kBlockScores / (length_ * keys_), 1, batch_ * heads_)) {
    if (a.mask.defined()) mask_ = a.mask.expand({batch_, heads_, length_, keys_});
    if (a.causal) {
      causal_ = at::full({length_, keys_}, -std::numeric_limits<double>::infinity(), a.q.options()).triu_(1);
    }
  }

  int64_t count() const { return batch_ * heads_; }
  int64_t step() const { return step_; }
  const at::Tensor& q() const { return q_; }
  const at::Tensor& k() const { return k_; }
  const at::Tensor& v() const { return v_; }
  double scale() const { return scale_; }

  // Scores of matrices first .. first + n - 1.
  at::Tensor scores(int64_t first, int64_t n) const {
    const at::Tensor q = q_.narrow(0, first, n), k = k_.narrow(0, first, n).transpose(1, 2);
    at::Tensor s = at::empty({n, length_, keys_}, q_.options());
    at::baddbmm_out(s, s, q, k, /*beta=*/0.0, scale_);
    if (mask_.defined()) {
      // Matrices of one batch entry at a time: the mask may repeat over batch and heads, and is not copied for that.
      for (int64_t at = first; at < first + n;) {
        const int64_t entry = at / heads_, head = at % heads_, run = std::min(heads_ - head, first + n - at);
        s.narrow(0, at - first, run).add_(mask_.select(0, entry).narrow(0, head, run));
        at += run;
      }
    }
    if (causal_.defined()) s.add_(causal_);
    return s;
  }

  at::Tensor probabilities(const at::Tensor& scores) const {
    return mask_.defined() ? at::_safe_softmax(scores, -1) : at::_softmax(scores, -1, /*half_to_float=*/false);
  }

  // Multiplies by the dropout mask of these matrices and by 1 / (1 - p).
  void drop(at::Tensor& t, int64_t first) const {
    if (a_.dropout == 0.0) return;
    const Source source{a_.seed, a_.offset, host_threads()};
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "attention_dropout", [&] {
      scalar_t* data = t.mutable_data_ptr<scalar_t>();
      dropout(data, data, nullptr, t.numel(), a_.dropout, source, first * length_ * keys_);
    });
  }

  // (batch * heads, ...) of keys or values as (batch, heads / group, ...): the gradient of a shared head is the sum.
  at::Tensor gather(const at::Tensor& t, const at::Tensor& like) const {
    const int64_t kv_heads = like.size(1), group = heads_ / kv_heads;
    const at::Tensor split = t.view({batch_, kv_heads, group, t.size(1), t.size(2)});
    return group == 1 ? split.select(2, 0) : split.sum(2);
  }
  at::Tensor heads(const at::Tensor& t) const { return t.view({batch_, heads_, t.size(1), t.size(2)}); }

 private:
  at::Tensor spread(const at::Tensor& t) const {
    const int64_t kv_heads = t.size(1), group = heads_ / kv_heads;
    return t.unsqueeze(2)
        .expand({batch_, kv_heads, group, t.size(2), t.size(3)})
        .reshape({batch_ * heads_, t.size(2), t.size(3)});
  }

  const Attention& a_;
  const int64_t batch_, heads_, length_, keys_;
  const double scale_;
  const at::Tensor q_, k_, v_;
  const int64_t step_;
  at::Tensor mask_, causal_;
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention_forward(const Attention& a) {
  const Blocks blocks(a);
  at::Tensor out = at::empty({blocks.count(), a.q.size(2), a.v.size(3)}, a.q.options());
  at::Tensor sums = at::empty({blocks.count(), a.q.size(2)}, a.q.options());
  for (int64_t first = 0; first < blocks.count(); first += blocks.step()) {
    const int64_t n = std::min(blocks.step(), blocks.count() - first);
    const at::Tensor scores = blocks.scores(first, n);
    at::Tensor sum = sums.narrow(0, first, n), block = out.narrow(0, first, n);
    at::logsumexp_out(sum, scores, {-1});
    at::Tensor p = blocks.probabilities(scores);
    blocks.drop(p, first);
    at::bmm_out(block, p, blocks.v().narrow(0, first, n));
  }
  return {blocks.heads(out), sums.view({a.q.size(0), a.q.size(1), a.q.size(2)})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(const Attention& a,
                                                                              const at::Tensor& grad_out,
                                                                              bool want_mask) {
  const Blocks blocks(a);
  const at::Tensor grad = grad_out.reshape({blocks.count(), a.q.size(2), a.v.size(3)});
  at::Tensor grad_q = at::empty_like(blocks.q()), grad_k = at::empty_like(blocks.k()),
             grad_v = at::empty_like(blocks.v()), grad_scores;
  if (want_mask) grad_scores = at::empty({blocks.count(), a.q.size(2), a.k.size(2)}, a.q.options());
  for (int64_t first = 0; first < blocks.count(); first += blocks.step()) {
    const int64_t n = std::min(blocks.step(), blocks.count() - first);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, first, n); };
    const at::Tensor p = blocks.probabilities(blocks.scores(first, n));
    at::Tensor dropped = a.dropout > 0.0 ? p.clone() : p;
    blocks.drop(dropped, first);
    at::Tensor block_v = part(grad_v), block_q = part(grad_q), block_k = part(grad_k);
    at::bmm_out(block_v, dropped.transpose(1, 2), part(grad));
    at::Tensor grad_p = at::bmm(part(grad), part(blocks.v()).transpose(1, 2));
    blocks.drop(grad_p, first);
    const at::Tensor grad_s = at::_softmax_backward_data(grad_p, p, -1, p.scalar_type());
    at::baddbmm_out(block_q, block_q, grad_s, part(blocks.k()), /*beta=*/0.0, blocks.scale());
    at::baddbmm_out(block_k, block_k, grad_s.transpose(1, 2), part(blocks.q()), /*beta=*/0.0, blocks.scale());
    if (want_mask) part(grad_scores).copy_(grad_s);
  }
  return {blocks.heads(grad_q), blocks.gather(grad_k, a.k), blocks.gather(grad_v, a.v),
          want_mask ? blocks.heads(grad_scores) : at::Tensor()};
}

}  // namespace neuron::engine
