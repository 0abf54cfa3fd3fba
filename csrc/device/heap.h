// The HBM of one logical core: a window of host address space, backed by host memory only where it is mapped
// and touched. Knows pages, not tensors; the caching allocator above it decides who holds what.
#pragma once
#include <cstddef>
#include <cstdint>

namespace neuron::device {

class Heap {
 public:
  static constexpr size_t kPage = 2u << 20;  // bytes: granularity of map() and unmap()
  uint64_t capacity() const;                 // bytes of HBM of this core
  uint64_t mapped() const;                   // bytes mapped now, <= capacity
  char* base() const;                        // start of the window, kPage-aligned
  uint64_t window() const;                   // bytes of address space, several times the capacity
  bool map(void* ptr, size_t bytes);         // false: over capacity. Throws HostMemoryError: the host cannot back it
  void unmap(void* ptr, size_t bytes);       // gives the pages back to the host
};

Heap& heap(int core);                        // creates the window at first use
int core_of(const void* ptr) noexcept;       // device index whose window holds ptr, or -1

// Debug mode (TORCH_NEURONX_DEBUG_MEMORY=1): device memory is inaccessible unless some thread is inside a kernel,
// so that a stray host access traps. Nested and thread-safe; one relaxed load when the mode is off.
bool debug_memory() noexcept;
void open_memory();
void close_memory();

}  // namespace neuron::device
