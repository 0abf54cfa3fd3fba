// Pinned host memory.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

namespace neuron::aten {

// Registered for PrivateUse1. Blocks that record_event() named for a stream are reused when the device clock has passed
// that point of the stream.
at::HostAllocator* host_allocator();
bool is_pinned_ptr(const void* ptr) noexcept;  // also for addresses inside a block

}  // namespace neuron::aten
