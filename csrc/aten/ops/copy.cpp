// Copies inside HBM, between cores, and between host and device.
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>

#include <cstring>

#include "aten/boundary.h"
#include "aten/host_allocator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "aten/launch.h"

namespace neuron::aten {
namespace {

device::StreamId stream_of(const at::Tensor& t) { return device::current_stream(t.device().index()); }

// Bytes up to which one memcpy by this thread beats the library's threads.
constexpr size_t kOneCopy = 1 << 16;

// Both hold the same values in the same order of bytes, so that copying is moving them.
bool same_bytes(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() && dst.is_contiguous() &&
         src.is_contiguous() && ready(dst) && ready(src) && dst.nbytes() <= kOneCopy &&
         !dst.storage().is_alias_of(src.storage());
}

// alias(dst) = alias(src). The CPU's kernel does not resolve a lazy conjugate and a lazy minus of complex32 at once, so
// there the values are copied as they lie and the signs turned in the real and imaginary parts.
void copy_values(const at::Tensor& dst, const at::Tensor& src) {
  const at::Tensor to = aten::alias(dst), from = aten::alias(src);
  if (src.scalar_type() != at::kComplexHalf || dst.scalar_type() != at::kComplexHalf || !src.is_neg()) {
    to.copy_(from);
    return;
  }
  const auto plain = [](const at::Tensor& t) {
    const at::Tensor unsigned_view = t.is_neg() ? at::_neg_view(t) : t;
    return at::view_as_real(unsigned_view.is_conj() ? unsigned_view.conj() : unsigned_view);
  };
  const at::Tensor parts = plain(to);
  parts.copy_(plain(from));
  const bool conj = src.is_conj() != dst.is_conj(), neg = src.is_neg() != dst.is_neg();
  if (neg) parts.neg_();
  if (conj) parts.select(-1, 1).neg_();
}

void copy_within(const at::Tensor& dst, const at::Tensor& src) {
  if (same_bytes(dst, src)) {
    Launch launch("copy_", dst, device::Kind::kMove);
    launch.reads(src);
    if (dst.nbytes() > 0) std::memcpy(dst.mutable_data_ptr(), src.const_data_ptr(), dst.nbytes());
    launch.done(dst);
    return;
  }
  KernelScope scope("copy_", dst.device());
  scope.work() = {.kind = device::Kind::kMove,
                  .element_bytes = static_cast<uint8_t>(dst.element_size()),
                  .read_bytes = touched_bytes(src),
                  .write_bytes = touched_bytes(dst),
                  .elements = static_cast<uint64_t>(dst.numel())};
  copy_values(dst, src);
}

// Between two cores both streams take part: the source must be ready, and must not be reused before the copy is done.
void copy_across(const at::Tensor& dst, const at::Tensor& src) {
  device::Event ready, done;
  device::record(ready, src.device().index(), stream_of(src));
  device::wait(ready, dst.device().index(), stream_of(dst));
  copy_within(dst, src);
  device::record(done, dst.device().index(), stream_of(dst));
  device::wait(done, src.device().index(), stream_of(src));
}

void copy_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const at::Tensor& ours = on_neuron(dst) ? dst : src;
  const at::Tensor& host = on_neuron(dst) ? src : dst;
  TORCH_CHECK_NOT_IMPLEMENTED(host.device().is_cpu() && host.layout() == at::kStrided, "Could not copy between ",
                              src.device(), " and ", dst.device(),
                              ": neuron exchanges dense tensors with the CPU only. Copy through the CPU.");
  {
    KernelScope scope("copy_", ours.device());
    scope.work() = {.kind = device::Kind::kHostCopy,
                    .element_bytes = static_cast<uint8_t>(ours.element_size()),
                    .read_bytes = touched_bytes(src),
                    .elements = static_cast<uint64_t>(dst.numel())};
    copy_values(dst, src);
  }
  // As with cuda, only pinned memory makes a copy asynchronous for the host. Its block must then not serve another
  // tensor before the device clock has passed the copy.
  const c10::DataPtr& pinned = host.storage().data_ptr();
  const c10::Stream stream(c10::Stream::UNSAFE, ours.device(), stream_of(ours));
  if (!non_blocking || !host_allocator()->record_event(pinned.get(), pinned.get_context(), stream)) {
    device::synchronize_stream(ours.device().index(), stream.id());
  }
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined() && src.defined(), "copy_: self and src must be defined");
  if (self.is_same(src)) return self;
  CoreGuard guard(on_neuron(self) ? self.device().index() : src.device().index());
  if (on_neuron(self) && on_neuron(src)) {
    if (self.device() == src.device()) {
      copy_within(self, src);
    } else {
      copy_across(self, src);
    }
  } else {
    copy_host(self, src, non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Device device = self.device();
  device::synchronize_stream(device.index(), stream_of(self));
  KernelScope scope("_local_scalar_dense", device);
  scope.work() = {.kind = device::Kind::kHostCopy,
                  .element_bytes = static_cast<uint8_t>(self.element_size()),
                  .read_bytes = self.element_size(),
                  .elements = 1};
  return at::_local_scalar_dense(aten::alias(self));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("record_stream", record_stream);
  note_native("copy", "copy_", device::Kind::kMove);
  note_native("copy", "_copy_from", device::Kind::kMove);
  note_native("copy", "_copy_from_and_resize", device::Kind::kMove);
  note_native("copy", "_local_scalar_dense", device::Kind::kHostCopy);
  note_native("copy", "record_stream", device::Kind::kNone);
}

// The generic conj and neg fallbacks would materialise the source with copy_ and so call themselves for ever; these
// copies honour both bits themselves.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace neuron::aten
