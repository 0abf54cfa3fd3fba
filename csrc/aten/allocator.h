// The caching allocator of HBM and the pinned host allocator, as PyTorch sees them.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace neuron::aten {

constexpr auto kNeuron = c10::DeviceType::PrivateUse1;

c10::DeviceAllocator* device_allocator();  // registered for PrivateUse1
// On the core's current stream; device tag neuron:core. The context of the DataPtr is the pointer itself, because
// Allocator::raw_allocate demands that and oneDNN's scratch memory goes through it.
c10::DataPtr allocate(int core, size_t bytes);
void free_memory(void* ptr);                  // the deleter of allocate()'s DataPtr
bool owns(const c10::DataPtr& ptr) noexcept;  // came from allocate(): deleter comparison, no lock

}  // namespace neuron::aten
