// The HBM of one logical core: a window of host address space, backed by host memory only where it is mapped
// and touched. Knows pages, not tensors; the caching allocator above it decides who holds what.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>

namespace neuron::device {

// The host cannot back the memory that the chip would have. The message names the bytes asked for, what the host has,
// and the remedies.
struct HostMemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Heap {
 public:
  static constexpr size_t kPage = 64u << 10;     // bytes: granularity of map() and unmap()
  static constexpr size_t kHugePage = 2u << 20;  // bytes: pages that are mapped together, aligned, are faster to touch

  // HBM of `capacity` bytes in the address range [base, base + window), which the caller has reserved. heap() makes
  // the process's own; tests make small ones.
  Heap(char* base, uint64_t capacity, uint64_t window);
  ~Heap();  // for tests: the process's own heaps live until it ends
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  uint64_t capacity() const { return capacity_; }                              // bytes of HBM of this core
  uint64_t mapped() const { return mapped_.load(std::memory_order_relaxed); }  // bytes mapped now, <= capacity
  char* base() const { return base_; }                                         // start of the window, kHugePage-aligned
  uint64_t window() const { return window_; }  // bytes of address space, several times the capacity
  // Makes pages usable; their content is zero. False: over capacity. Throws HostMemoryError: the host cannot back it.
  // Both take whole pages inside the window: map() unmapped ones, unmap() mapped ones (std::invalid_argument
  // otherwise).
  bool map(void* ptr, size_t bytes);
  void unmap(void* ptr, size_t bytes);  // gives the pages back to the host
  uint64_t resident() const;            // bytes of the mapped pages that the host backs now; reads page tables

 private:
  friend void open_memory();
  friend void close_memory();
  uint64_t offset_of(const void* ptr, size_t bytes) const;  // throws unless these are whole pages of the window
  void protect_all(int protection);

  char* const base_;
  const uint64_t capacity_;
  const uint64_t window_;
  std::atomic<uint64_t> mapped_{0};
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> runs_;  // mapped ranges, start -> end (offsets); neighbours are joined
};

Heap& heap(int core);                   // creates the window at first use
int core_of(const void* ptr) noexcept;  // device index whose window holds ptr, or -1

// Debug mode (TORCH_NEURONX_DEBUG_MEMORY=1): device memory is inaccessible unless some thread is inside a kernel,
// so that a stray host access traps. Nested and thread-safe; one relaxed load when the mode is off.
bool debug_memory() noexcept;
void open_memory();
void close_memory();

}  // namespace neuron::device
