// PyTorch's accelerator hooks for the device.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "aten/generator.h"
#include "aten/host_allocator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/heap.h"
#include "device/topology.h"

namespace neuron::aten {

void resize_storage_bytes(c10::StorageImpl* storage, size_t bytes);  // ops/factory.cpp

namespace {

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override {
    try {
      return device::core_count() > 0;
    } catch (...) {
      return false;
    }
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return is_initialized(); }
  void init() const override { ensure_init(); }

  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device::core_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_ordinal(index);
    ensure_init();
    device::set_current_core(index);
  }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(device::current_core()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto previous = getCurrentDevice();
    setCurrentDevice(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned_ptr(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  at::Device getDeviceFromPtr(void* data) const override {
    const int core = device::core_of(data);
    TORCH_CHECK(core >= 0, "The pointer ", data, " does not point into the memory of a neuron device.");
    return {kNeuron, static_cast<c10::DeviceIndex>(core)};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    const int core = index < 0 ? device::current_core() : index;
    check_ordinal(core);
    return default_generator(static_cast<c10::DeviceIndex>(core));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    const int core = index < 0 ? device::current_core() : index;
    check_ordinal(core);
    return new_generator(static_cast<c10::DeviceIndex>(core));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage_bytes(storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
  return true;
}();

}  // namespace
}  // namespace neuron::aten
