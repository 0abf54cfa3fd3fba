#include "device/heap.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "device/environment.h"
#include "device/host_memory.h"
#include "device/topology.h"

namespace neuron::device {
namespace {

constexpr int kOpen = PROT_READ | PROT_WRITE;
constexpr uint64_t kAddressSpace = 32ull << 40;  // all windows together; user space on x86-64 and aarch64 has 128 TiB

constexpr const char* kDebug = "TORCH_NEURONX_DEBUG_MEMORY";
constexpr const char* kCheck = "TORCH_NEURONX_HOST_MEMORY_CHECK";

std::optional<bool> parse_flag(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

bool flag(const char* name, bool fallback) {
  const auto text = environment(name);
  return text ? parse_flag(*text).value_or(fallback) : fallback;
}

void check_flags() {
  for (const char* name : {kDebug, kCheck}) {
    if (const auto text = environment(name); text && !parse_flag(*text)) bad_value(name, *text, "0, 1, true or false");
  }
}

// --- the process's heaps ---------------------------------------------------------------------------------------------
// One reservation holds the windows of all cores side by side, so that core_of() is a division.
struct Windows {
  char* base = nullptr;
  int shift = 0;  // a core's window is 1 << shift bytes
  int cores = 0;
  std::atomic<Heap*>* heaps = nullptr;
};
std::atomic<Windows*> windows{nullptr};
std::mutex windows_mutex;
std::atomic<bool> in_child{false};  // forked after the reservation, which the child does not have

// --- what the host can back ------------------------------------------------------------------------------------------
std::atomic<uint64_t> mapped_total{0};  // of all heaps
std::mutex backing_mutex;
uint64_t checked = 0;  // bytes that may be mapped before the host is asked again: guarded by backing_mutex

// --- debug mode ------------------------------------------------------------------------------------------------------
std::mutex debug_mutex;
std::vector<Heap*> debug_heaps;  // guarded by debug_mutex, as is `inside`
int inside = 0;                  // threads (and nesting levels) inside kernels

std::unique_lock<std::mutex> lock_debug() {  // holds nothing when the mode is off
  return debug_memory() ? std::unique_lock<std::mutex>(debug_mutex) : std::unique_lock<std::mutex>();
}

uint64_t align(uint64_t address) { return (address + Heap::kHugePage - 1) / Heap::kHugePage * Heap::kHugePage; }

// The child has no pages there (MADV_DONTFORK), and must have nothing else either: pointers that it inherited still say
// which core they belong to.
void hold_addresses_in_child() {
  in_child.store(true);
  if (const Windows* w = windows.load()) {
    mmap(w->base, static_cast<size_t>(w->cores) << w->shift, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
}

Windows* reserve() {
  check_flags();
  const int cores = core_count();
  const uint64_t capacity = topology().hbm_bytes_per_core;
  // First fit never needs more than log2(largest / smallest block) times the live bytes of address space (Robson,
  // 1977), 15 for 24 GiB in blocks of 1 MiB and up: with 16 windows fragmentation of addresses cannot happen. A host
  // with less address space gets less.
  for (int shift = std::bit_width(16 * capacity - 1); (1ull << shift) >= 2 * capacity; --shift) {
    const size_t bytes = (static_cast<uint64_t>(cores) << shift) + Heap::kHugePage;
    if (bytes > kAddressSpace && (1ull << shift) >= 4 * capacity) continue;
    void* start = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) continue;
    // A forked DataLoader worker must not share these pages: after the fork every page that the parent writes would
    // first be copied, and the child may not use the device anyway.
    madvise(start, bytes, MADV_DONTFORK);
    auto* result = new Windows;
    result->base = reinterpret_cast<char*>(align(reinterpret_cast<uintptr_t>(start)));
    result->shift = shift;
    result->cores = cores;
    result->heaps = new std::atomic<Heap*>[cores]();
    pthread_atfork(nullptr, nullptr, hold_addresses_in_child);
    return result;
  }
  throw HostMemoryError("Cannot reserve " + format_bytes(2 * capacity * cores) + " of address space for the HBM of " +
                        std::to_string(cores) + " logical NeuronCore(s): " + std::strerror(errno) +
                        ". Raise the limit on address space (ulimit -v), or use fewer cores (NEURON_RT_NUM_CORES).");
}

// Throws unless the host can back `bytes` more. Pages that are mapped but were never touched will be claimed too.
void check_backing(uint64_t bytes) {
  static const bool enabled = flag(kCheck, true);
  if (!enabled) return;
  std::lock_guard<std::mutex> lock(backing_mutex);
  if (bytes <= checked) {
    checked -= bytes;
    return;
  }
  const HostMemory host = host_memory();
  uint64_t claimed = mapped_total.load();  // as if none of it were touched: cheap, and mostly enough
  if (claimed + bytes > host.available) {
    uint64_t resident = 0;
    if (Windows* w = windows.load()) {
      for (int i = 0; i < w->cores; ++i) {
        if (const Heap* h = w->heaps[i].load()) resident += h->resident();
      }
    }
    claimed -= std::min(claimed, resident);
  }
  if (claimed + bytes > host.available) {
    throw HostMemoryError(
        "NEURON host out of memory. The emulated HBM is host memory: " + format_bytes(bytes) +
        " more were asked for, but this host has only " + format_bytes(host.available) + " available of " +
        format_bytes(host.total) +
        (claimed > 0 ? ", of which " + format_bytes(claimed) + " are promised already" : "") +
        ". Use a smaller model or batch, fewer devices (NEURON_RT_NUM_CORES), or a host with more memory; "
        "TORCH_NEURONX_HOST_MEMORY_CHECK=0 turns this check off and leaves it to the operating system.");
  }
  checked = std::min<uint64_t>((host.available - claimed - bytes) / 4, 1ull << 30);
}

[[noreturn]] void fail_map(size_t bytes) {
  throw HostMemoryError("NEURON host out of memory. The host refused " + format_bytes(bytes) +
                        " of HBM: " + std::strerror(errno) +
                        ". Use a smaller model or batch, fewer devices (NEURON_RT_NUM_CORES), or raise the limits on "
                        "this process's memory (ulimit -d, vm.overcommit_memory).");
}

}  // namespace

Heap::Heap(char* base, uint64_t capacity, uint64_t window) : base_(base), capacity_(capacity), window_(window) {
  // Touching one byte then brings 2 MiB in one fault instead of 512. Without huge pages in the kernel this fails, and
  // small ones do.
  madvise(base, window, MADV_HUGEPAGE);
  if (debug_memory()) {
    std::lock_guard<std::mutex> lock(debug_mutex);
    debug_heaps.push_back(this);
  }
}

Heap::~Heap() {
  mapped_total -= mapped();
  if (debug_memory()) {
    std::lock_guard<std::mutex> lock(debug_mutex);
    std::erase(debug_heaps, this);
  }
}

uint64_t Heap::offset_of(const void* ptr, size_t bytes) const {
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(ptr) - base_);
  const bool inside_window = ptr >= base_ && offset <= window_ && bytes <= window_ - offset;
  if (!inside_window || bytes == 0 || offset % kPage != 0 || bytes % kPage != 0) {
    throw std::invalid_argument("Heap: not a range of whole pages of this window");
  }
  return offset;
}

bool Heap::map(void* ptr, size_t bytes) {
  uint64_t start = offset_of(ptr, bytes), end = start + bytes;
  if (bytes > capacity_ - mapped()) return false;
  check_backing(bytes);  // looks at all heaps, so before this one is locked
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = runs_.lower_bound(start);
  const bool overlaps_next = next != runs_.end() && next->first < end;
  const bool overlaps_prev = next != runs_.begin() && std::prev(next)->second > start;
  if (overlaps_next || overlaps_prev) throw std::invalid_argument("Heap: page is mapped");
  if (bytes > capacity_ - mapped()) return false;
  const auto debug = lock_debug();
  const int protection = debug && inside == 0 ? PROT_NONE : kOpen;
  if (protection != PROT_NONE && mprotect(ptr, bytes, protection) != 0) {
    // Many separate runs of pages can exhaust the kernel's table of mappings (vm.max_map_count). Opening the whole
    // window makes one run of them: stray accesses no longer trap, but the program goes on.
    if (errno != ENOMEM || mprotect(base_, window_, protection) != 0) fail_map(bytes);
  }
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    next = runs_.erase(next);
  }
  if (next != runs_.begin() && std::prev(next)->second == start) {
    std::prev(next)->second = end;
  } else {
    runs_.emplace_hint(next, start, end);
  }
  mapped_ += bytes;
  mapped_total += bytes;
  return true;
}

void Heap::unmap(void* ptr, size_t bytes) {
  const uint64_t start = offset_of(ptr, bytes), end = start + bytes;
  std::lock_guard<std::mutex> lock(mutex_);
  auto run = runs_.upper_bound(start);
  if (run == runs_.begin() || (--run)->second < end) throw std::invalid_argument("Heap: page is not mapped");
  const auto debug = lock_debug();
  const uint64_t run_end = run->second;
  if (run->first == start) {
    runs_.erase(run);
  } else {
    run->second = start;
  }
  if (end < run_end) runs_.emplace(end, run_end);
  mapped_ -= bytes;
  mapped_total -= bytes;
  if (in_child.load()) return;
  madvise(ptr, bytes, MADV_DONTNEED);
  // Failure (vm.max_map_count) leaves the pages accessible, and empty.
  mprotect(ptr, bytes, PROT_NONE);
}

uint64_t Heap::resident() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto host_page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_core(kHugePage / host_page);
  uint64_t bytes = 0;
  for (const auto& [start, end] : runs_) {
    for (uint64_t at = start; at < end; at += kHugePage) {
      const uint64_t length = std::min<uint64_t>(kHugePage, end - at);
      if (mincore(base_ + at, length, in_core.data()) != 0) continue;
      bytes += host_page * std::count_if(in_core.begin(), in_core.begin() + length / host_page,
                                         [](unsigned char c) { return (c & 1) != 0; });
    }
  }
  return bytes;
}

void Heap::protect_all(int protection) {
  for (const auto& [start, end] : runs_) mprotect(base_ + start, end - start, protection);
}

Heap& heap(int core) {
  Windows* w = windows.load(std::memory_order_acquire);
  if (w != nullptr && core >= 0 && core < w->cores) {
    if (Heap* h = w->heaps[core].load(std::memory_order_acquire)) return *h;
  }
  std::lock_guard<std::mutex> lock(windows_mutex);
  if ((w = windows.load()) == nullptr) windows.store(w = reserve());
  if (core < 0 || core >= w->cores) {
    throw std::invalid_argument("Heap: there is no core " + std::to_string(core) + ", this process sees " +
                                std::to_string(w->cores));
  }
  Heap* h = w->heaps[core].load();
  if (h == nullptr) {
    const uint64_t window = 1ull << w->shift;
    h = new Heap(w->base + core * window, topology().hbm_bytes_per_core, window);
    w->heaps[core].store(h, std::memory_order_release);
  }
  return *h;
}

int core_of(const void* ptr) noexcept {
  const Windows* w = windows.load(std::memory_order_acquire);
  if (w == nullptr || ptr < w->base) return -1;
  const uint64_t index = static_cast<uint64_t>(static_cast<const char*>(ptr) - w->base) >> w->shift;
  return index < static_cast<uint64_t>(w->cores) ? static_cast<int>(index) : -1;
}

bool debug_memory() noexcept {
  static const bool on = flag(kDebug, false);
  return on;
}

void open_memory() {
  if (!debug_memory()) return;
  std::lock_guard<std::mutex> lock(debug_mutex);
  if (inside++ > 0) return;
  for (Heap* h : debug_heaps) h->protect_all(kOpen);
}

void close_memory() {
  if (!debug_memory()) return;
  std::lock_guard<std::mutex> lock(debug_mutex);
  if (--inside > 0) return;
  for (Heap* h : debug_heaps) h->protect_all(PROT_NONE);
}

}  // namespace neuron::device
