#include "aten/allocator.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "aten/core_allocator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/heap.h"
#include "device/stream.h"
#include "device/topology.h"

namespace neuron::aten {
namespace {

std::atomic<CoreAllocator*> cores[device::kMaxVisibleCores];
std::mutex cores_mutex;

// Nothing here is ever destroyed: tensors may outlive every static object.
class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return aten::allocate(device::current_core(), bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    const OpenMemory open;
    std::memcpy(dest, src, count);
    const int core = device::core_of(dest);
    device::Work work;
    work.kind = device::Kind::kMove;
    work.read_bytes = work.write_bytes = count;
    if (core >= 0) device::launch(core, device::current_stream(core), "allocator::copy_data", work);
  }

  bool initialized() override { return is_initialized(); }
  // Private pools do not exist here, so that there is nothing to do for another id.
  void emptyCache(c10::MempoolId_t pool) override {
    if (pool == c10::MempoolId_t{0, 0}) release_all_caches();
  }

  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    if (!owns(ptr) || ptr.get() == nullptr) return;  // memory that another library owns: its stream is not our affair
    TORCH_CHECK(stream.device_type() == kNeuron, "record_stream: expected a stream of neuron, but got ", stream);
    core_allocator(device::core_of(ptr.get())).record_stream(ptr.get(), stream.device_index(), stream.id());
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_ordinal(index);
    CoreAllocator* const core = existing_core_allocator(index);
    return core == nullptr ? c10::CachingDeviceAllocator::DeviceStats{} : core->stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    check_ordinal(index);
    if (CoreAllocator* const core = existing_core_allocator(index)) core->reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    check_ordinal(index);
    if (CoreAllocator* const core = existing_core_allocator(index)) core->reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    check_ordinal(index);
    const uint64_t total = device::topology().hbm_bytes_per_core;
    const uint64_t mapped = existing_core_allocator(index) == nullptr ? 0 : device::heap(index).mapped();
    return {total - mapped, total};
  }
};

}  // namespace

CoreAllocator* existing_core_allocator(int core) noexcept {
  return core >= 0 && core < device::kMaxVisibleCores ? cores[core].load(std::memory_order_acquire) : nullptr;
}

CoreAllocator& core_allocator(int core) {
  if (CoreAllocator* const existing = existing_core_allocator(core)) return *existing;
  check_ordinal(core);
  std::lock_guard<std::mutex> lock(cores_mutex);
  CoreAllocator* made = cores[core].load();
  if (made == nullptr) cores[core].store(made = new CoreAllocator(core), std::memory_order_release);
  return *made;
}

void release_all_caches() {
  for (auto& core : cores) {
    if (CoreAllocator* const allocator = core.load()) allocator->release_cache();
  }
}

c10::DeviceAllocator* device_allocator() {
  static auto* allocator = new NeuronAllocator();
  return allocator;
}

c10::DataPtr allocate(int core, size_t bytes) {
  ensure_init();
  const c10::Device device(kNeuron, static_cast<c10::DeviceIndex>(core));
  if (bytes == 0) {
    check_ordinal(core);
    return {nullptr, nullptr, &free_memory, device};
  }
  void* const ptr = core_allocator(core).allocate(bytes, device::current_stream(core));
  return {ptr, ptr, &free_memory, device};
}

void free_memory(void* ptr) {
  // A forked child inherits the tensors of its parent, but neither their memory nor an unlocked allocator.
  if (ptr == nullptr || in_bad_fork()) return;
  core_allocator(device::core_of(ptr)).free(ptr);
}

bool owns(const c10::DataPtr& ptr) noexcept { return ptr.get_deleter() == &free_memory; }

void set_memory_fraction(int core, double fraction) {
  check_ordinal(core);
  core_allocator(core).set_fraction(fraction);
}

double memory_fraction(int core) {
  check_ordinal(core);
  CoreAllocator* const allocator = existing_core_allocator(core);
  return allocator == nullptr ? 1.0 : allocator->fraction();
}

std::vector<PoolReport> pool_report(int core) {
  check_ordinal(core);
  CoreAllocator* const allocator = existing_core_allocator(core);
  return allocator == nullptr ? std::vector<PoolReport>{} : allocator->pools();
}

REGISTER_ALLOCATOR(kNeuron, device_allocator());

}  // namespace neuron::aten
