// The caching allocator of HBM and the pinned host allocator, as PyTorch sees them.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace neuron::aten {

constexpr auto kNeuron = c10::DeviceType::PrivateUse1;

c10::DeviceAllocator* device_allocator();       // registered for PrivateUse1
c10::DataPtr allocate(int core, size_t bytes);  // on the core's current stream; device tag neuron:core
bool owns(const c10::DataPtr& ptr) noexcept;    // came from allocate(): deleter comparison, no lock

}  // namespace neuron::aten
