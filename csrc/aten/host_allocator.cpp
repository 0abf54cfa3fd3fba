#include "aten/host_allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "aten/allocator.h"
#include "device/stream.h"

namespace neuron::aten {
namespace {

// Pinned blocks by their start. The blocks of the host allocator are looked up by tensors that may be views.
struct PinnedRanges {
  std::shared_mutex mutex;
  std::map<uintptr_t, size_t> sizes;
};
PinnedRanges& pinned_ranges() {
  static auto* ranges = new PinnedRanges();
  return *ranges;
}

using Base = at::CachingHostAllocatorImpl<c10::Stream, device::Event>;

class HostAllocatorImpl final : public Base {
 public:
  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }

 private:
  void allocate_host_memory(size_t size, void** ptr) override {
    const auto start = std::chrono::steady_clock::now();
    *ptr = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, *ptr != MAP_FAILED, "NEURON host out of memory. Tried to allocate ", size,
                     " bytes of pinned memory: ", std::strerror(errno),
                     ". Use fewer or smaller pinned tensors, or torch.accelerator.empty_host_cache().");
    add_time(stats_.host_alloc_time, start);
    auto& ranges = pinned_ranges();
    std::unique_lock<std::shared_mutex> lock(ranges.mutex);
    ranges.sizes.emplace(reinterpret_cast<uintptr_t>(*ptr), size);
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    const auto start = std::chrono::steady_clock::now();
    auto& ranges = pinned_ranges();
    {
      std::unique_lock<std::shared_mutex> lock(ranges.mutex);
      ranges.sizes.erase(reinterpret_cast<uintptr_t>(block->ptr_));
    }
    munmap(block->ptr_, block->size_);
    add_time(stats_.host_free_time, start);
  }

  void record_stream(std::optional<std::vector<device::Event>>& events, c10::Stream stream) override {
    device::Event event;
    device::record(event, stream.device_index(), stream.id());
    events->push_back(event);
  }
  bool query_event(device::Event& event) override { return device::passed(event); }

  void add_time(c10::CachingAllocator::DurationStat& stat, std::chrono::steady_clock::time_point start) {
    const auto spent = std::chrono::steady_clock::now() - start;
    std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stat.increase(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  }
};

void free_pinned(void* context);

struct NeuronHostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, free_pinned> {};

NeuronHostAllocator& instance() {
  static auto* allocator = new NeuronHostAllocator();  // pinned tensors may outlive every static object
  return *allocator;
}

void free_pinned(void* context) { instance().free(context); }

}  // namespace

at::HostAllocator* host_allocator() { return &instance(); }

bool is_pinned_ptr(const void* ptr) noexcept {
  auto& ranges = pinned_ranges();
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  std::shared_lock<std::shared_mutex> lock(ranges.mutex);
  auto it = ranges.sizes.upper_bound(address);
  if (it == ranges.sizes.begin()) return false;
  --it;
  return address < it->first + it->second;
}

REGISTER_HOST_ALLOCATOR(kNeuron, host_allocator());

}  // namespace neuron::aten
