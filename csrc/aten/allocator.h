// The caching allocator of HBM, as PyTorch sees it. How it works: docs/memory.md.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <vector>

namespace neuron::aten {

constexpr auto kNeuron = c10::DeviceType::PrivateUse1;

c10::DeviceAllocator* device_allocator();  // registered for PrivateUse1
// On the core's current stream; device tag neuron:core. The context of the DataPtr is the pointer itself, because
// Allocator::raw_allocate demands that and oneDNN's scratch memory goes through it.
c10::DataPtr allocate(int core, size_t bytes);
void free_memory(void* ptr);                  // the deleter of allocate()'s DataPtr
bool owns(const c10::DataPtr& ptr) noexcept;  // came from allocate(): deleter comparison, no lock

// Share of the core's HBM that this process may map, in [0, 1]; beyond it allocations fail as if HBM were that small.
void set_memory_fraction(int core, double fraction);
double memory_fraction(int core);

struct PoolReport {  // one per pool and stream; bytes
  bool large = false;
  int64_t stream = 0;
  uint64_t segments = 0;   // runs of mapped pages
  uint64_t reserved = 0;   // mapped
  uint64_t allocated = 0;  // held by tensors
  uint64_t waiting = 0;    // freed, but another stream may still use it (record_stream)
  uint64_t free = 0;       // cached
  uint64_t free_blocks = 0;
  uint64_t largest_free = 0;  // largest request served without mapping or moving anything
  uint64_t pinned = 0;        // free bytes on pages that live blocks share: cannot be given back or moved
};
std::vector<PoolReport> pool_report(int core);

}  // namespace neuron::aten
