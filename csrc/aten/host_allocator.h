// Pinned host memory.
#pragma once
#include <c10/core/Allocator.h>

namespace neuron::aten {

c10::Allocator* host_allocator();
bool is_pinned_ptr(const void* ptr) noexcept;

}  // namespace neuron::aten
