// Devices, streams and events as PyTorch's generic code sees them.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/stream.h"
#include "device/topology.h"

namespace neuron::aten {
namespace {

c10::DeviceIndex index_of(c10::Device d) {
  TORCH_CHECK(d.type() == kNeuron, "Expected a neuron device, but got ", d);
  const int index = d.has_index() ? d.index() : device::current_core();
  check_ordinal(index);
  return static_cast<c10::DeviceIndex>(index);
}

c10::Stream make_stream(c10::DeviceIndex index, device::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, index), id);
}

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kNeuron; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device previous = getDevice();
    setDevice(d);
    return previous;
  }
  c10::Device getDevice() const override { return {kNeuron, static_cast<c10::DeviceIndex>(device::current_core())}; }
  void setDevice(c10::Device d) const override {
    const auto index = index_of(d);
    ensure_init();
    device::set_current_core(index);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override { device::set_current_core(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(device::core_count());
    } catch (...) {
      return 0;
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = true;
    types.has_Half = types.has_Float = types.has_BFloat16 = types.has_Bool = true;
    return capability;
  }

  // --- streams ---
  c10::Stream getStream(c10::Device d) const override {
    const auto index = index_of(d);
    return make_stream(index, device::current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return make_stream(index_of(d), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high_priority) const override {
    ensure_init();
    const auto index = index_of(d);
    return make_stream(index, device::pooled_stream(index, high_priority));
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    ensure_init();
    const auto index = index_of(d);
    return make_stream(index, device::new_stream(index, priority));
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const auto index = index_of(s.device());
    check_stream(s);
    const auto previous = make_stream(index, device::current_stream(index));
    device::set_current_stream(index, s.id());
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream s) const override {
    check_stream(s);
    return reinterpret_cast<void*>(s.id());  // the runtime knows streams by number
  }
  bool queryStream(const c10::Stream& s) const override {
    check_stream(s);
    return device::query_stream(s.device_index(), s.id());
  }
  void synchronizeStream(const c10::Stream& s) const override {
    check_stream(s);
    device::synchronize_stream(s.device_index(), s.id());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check_ordinal(index);
    ensure_init();
    device::synchronize_core(index);
  }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator()->recordStream(data, stream);
  }

  // --- events ---
  void record(void** event, const c10::Stream& s, const c10::DeviceIndex index, const c10::EventFlag) const override {
    check_stream(s);
    TORCH_CHECK(index == -1 || index == s.device_index(), "Event device index ", static_cast<int>(index),
                " does not match recording stream's device index ", static_cast<int>(s.device_index()), ".");
    if (*event == nullptr) *event = new device::Event();
    device::record(*as_event(*event), s.device_index(), s.id());
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event == nullptr) return;
    check_stream(s);
    device::wait(*as_event(event), s.device_index(), s.id());
  }
  bool queryEvent(void* event) const override { return event == nullptr || device::query(*as_event(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) device::synchronize(*as_event(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete as_event(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    return device::elapsed_ms(*as_event(start), *as_event(end));
  }

 private:
  static device::Event* as_event(void* event) { return static_cast<device::Event*>(event); }
  static void check_stream(const c10::Stream& s) {
    try {
      device::check_stream(s.device_index(), s.id());
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, error.what());
    }
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard);

}  // namespace
}  // namespace neuron::aten
