// Counters behind the memory statistics, cheap enough to keep on every allocation.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>

namespace neuron::aten {

// One statistic of the small pool, the large pool and both together. What is freed and the sums over the pools follow
// from the rest, so they are worked out when somebody asks.
class PoolCounter {
 public:
  void up(bool small, int64_t amount) {
    One& one = pools_[small];
    one.current += amount;
    one.allocated += amount;
    if (one.current > one.peak) one.peak = one.current;
    const int64_t both = current();
    if (both > peak_) peak_ = both;
  }
  void down(bool small, int64_t amount) { pools_[small].current -= amount; }
  void change(bool small, int64_t amount) {
    if (amount > 0) {
      up(small, amount);
    } else {
      down(small, -amount);
    }
  }
  int64_t current() const { return pools_[0].current + pools_[1].current; }

  c10::CachingAllocator::StatArray stats() const {
    const auto small = pools_[true].stat(), large = pools_[false].stat();
    c10::CachingAllocator::Stat both;
    both.current = current();
    both.peak = peak_;
    both.allocated = small.allocated + large.allocated;
    both.freed = small.freed + large.freed;
    return {both, small, large};
  }
  void reset_accumulated() {
    for (One& one : pools_) {
      one.allocated = 0;
      one.base = one.current;
    }
  }
  void reset_peak() {
    for (One& one : pools_) one.peak = one.current;
    peak_ = current();
  }

 private:
  struct One {
    int64_t current = 0, peak = 0, allocated = 0;
    int64_t base = 0;  // current when the sums were reset
    c10::CachingAllocator::Stat stat() const {
      c10::CachingAllocator::Stat stat;
      stat.current = current;
      stat.peak = peak;
      stat.allocated = allocated;
      stat.freed = base + allocated - current;
      return stat;
    }
  };
  One pools_[2];  // large, small
  int64_t peak_ = 0;
};

// The counters of c10::CachingDeviceAllocator::DeviceStats that have a pool, under the same names.
struct MemoryCounters {
  PoolCounter allocation, allocated_bytes, active, active_bytes, requested_bytes;
  PoolCounter inactive_split, inactive_split_bytes, segment, reserved_bytes;
};

}  // namespace neuron::aten
