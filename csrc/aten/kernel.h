// What every kernel on the neuron device does around its computation: open the device's memory, send the host's
// allocations to HBM, and put the launch on the device clock.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <initializer_list>

#include "aten/allocator.h"
#include "device/heap.h"
#include "device/stream.h"

namespace neuron::aten {

inline bool on_neuron(const at::Tensor& t) { return t.device().type() == kNeuron; }

// Initialises the device once per process. Throws in a child forked after initialisation.
void ensure_init();
bool is_initialized() noexcept;
bool in_bad_fork() noexcept;

// Sets the calling thread's core for a scope; index -1 keeps the current one. An index out of range throws.
class CoreGuard {
 public:
  explicit CoreGuard(int core);
  ~CoreGuard();
  CoreGuard(const CoreGuard&) = delete;
  CoreGuard& operator=(const CoreGuard&) = delete;

 private:
  int previous_;
};

// While alive on this thread, memory asked of the CPU allocator comes from the HBM of `device` (so that outputs and
// temporaries of host kernels are device memory), autograd and autocast are excluded, and device memory is open.
// The destructor launches `work()` on the device clock, unless an exception is passing through.
class KernelScope {
 public:
  KernelScope(const char* op_name, at::Device device);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  device::Work& work() { return work_; }
  int core() const { return core_; }

 private:
  const char* name_;
  int core_;
  int previous_core_;
  const char* previous_name_;
  int exceptions_;
  device::Work work_;
  c10::impl::ExcludeDispatchKeyGuard below_;
};

// Opens device memory (debug mode) without launching anything: for metadata operations that touch bytes.
class OpenMemory {
 public:
  OpenMemory() { device::open_memory(); }
  ~OpenMemory() { device::close_memory(); }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

// Names the operator that runs on this thread, for the records of the memory it allocates.
class OpName {
 public:
  explicit OpName(const char* name) noexcept;
  ~OpName();
  OpName(const OpName&) = delete;
  OpName& operator=(const OpName&) = delete;

 private:
  const char* previous_;
};

// Name of the operator whose kernel runs on this thread, or nullptr: who allocates.
const char* current_op() noexcept;

// A CPU tensor on the memory of a neuron tensor: same sizes, strides, offset, conj and neg bits. No copy. Valid inside
// a KernelScope. A tensor that is already on the CPU, or undefined, is returned as it is.
at::Tensor alias(const at::Tensor& tensor);

// A CPU result computed inside a KernelScope as a neuron tensor: takes over its memory without a copy where that memory
// is HBM and nobody else holds it, copies otherwise. Undefined stays undefined.
at::Tensor adopt(const at::Tensor& result, at::Device device);

// Neuron storage of the given memory.
c10::Storage make_storage(c10::DataPtr data, size_t bytes);

// An uninitialised neuron tensor from the HBM allocator.
at::Tensor empty_on(at::Device device, at::IntArrayRef size, at::ScalarType dtype);
at::Tensor empty_strided_on(at::Device device, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype);

// Throws CUDA's error unless all defined tensors are on `tensors[0]`'s device. CPU scalars (0-dim) pass if allowed.
at::Device check_same_device(const char* op_name, std::initializer_list<at::Tensor> tensors, bool cpu_scalars = false);

// Interned copy of a name, alive until the process ends (launch records keep the pointer).
const char* intern(const std::string& name);

// Bytes that a kernel reads or writes of this tensor: distinct elements, so that a broadcast dimension counts once.
uint64_t touched_bytes(const at::Tensor& tensor);

}  // namespace neuron::aten
