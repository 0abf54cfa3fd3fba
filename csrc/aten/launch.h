// What the short ways of operators share: kernels that run on the memory of neuron tensors as they are, allocate
// nothing else and call no operator, so that neither aliases nor a KernelScope are needed.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "aten/init.h"
#include "aten/kernel.h"

namespace neuron::aten {

// A neuron tensor whose bytes are its values.
inline bool ready(const at::Tensor& t) { return on_neuron(t) && !t.is_conj() && !t.is_neg() && !t.is_quantized(); }

// One launch of such a kernel.
class Launch {
 public:
  Launch(const char* name, const at::Tensor& like, device::Kind kind)
      : name_(name), core_(like.device().index()), op_name_(name) {
    ensure_init();
    work_.kind = kind;
    work_.element_bytes = static_cast<uint8_t>(like.element_size());
    device::open_memory();
  }
  ~Launch() { device::close_memory(); }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  device::Work& work() { return work_; }
  void reads(const at::Tensor& t) { work_.read_bytes += touched_bytes(t); }
  void done(const at::Tensor& out) { finish(static_cast<uint64_t>(out.numel()), 1, touched_bytes(out)); }
  void finish(uint64_t elements, uint32_t passes, uint64_t written) {
    work_.write_bytes = written;
    work_.elements = elements;
    work_.passes = passes;
    device::launch(core_, device::current_stream(core_), name_, work_);
  }

 private:
  const char* name_;
  int core_;
  OpName op_name_;
  device::Work work_;
};

// An uninitialised contiguous tensor beside `like`.
inline at::Tensor make_out(const at::Tensor& like, at::IntArrayRef size, at::ScalarType dtype) {
  CoreGuard guard(like.device().index());
  return at::detail::empty_generic(size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype,
                                   std::nullopt);
}

}  // namespace neuron::aten
