// What stream.cpp and trace.cpp share: the state behind the device clock. One lock guards all of it, because waits and
// the host's present reach across cores and streams; it is held for some tens of nanoseconds.
#pragma once
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "device/stream.h"
#include "device/trace.h"

namespace neuron::device {

struct Stream {
  Nanos end = 0;  // when everything submitted so far is done
  int priority = 0;
};

constexpr size_t kEngines = 6;  // tensor, vector, scalar, gpsimd, link, dma

struct Core {
  std::vector<Stream> streams;       // by StreamId; streams are never destroyed, an id stays valid
  Nanos end = 0;                     // latest end of its streams
  std::array<Nanos, kEngines> busy;  // until when each engine has work
  uint64_t launches = 0;
  std::array<std::vector<StreamId>, 2> pool;  // of normal and of urgent streams
  std::array<size_t, 2> next_in_pool{};
};

struct Ring {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  uint64_t capacity = 0;
  // Raw memory: a slot is written before it is read, and pages that no launch has reached cost nothing.
  std::unique_ptr<LaunchRecord[], Free> slots;
  uint64_t next = 0;   // sequence number of the next launch
  uint64_t first = 0;  // launches before this one were cleared
};

struct Clock {
  std::mutex mutex;
  Nanos host_now = 0;
  std::vector<Core> cores;
  Ring ring;
};

Clock& clock();

}  // namespace neuron::device
