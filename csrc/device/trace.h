// A bounded ring of the latest launches. Events, the profiler and the predictor read it.
#pragma once
#include <cstdint>
#include <vector>

#include "device/stream.h"

namespace neuron::device {

struct LaunchRecord {
  uint64_t sequence;  // counts from 0; gaps at the front mean the ring has dropped older ones
  const char* name;
  int core;
  StreamId stream;
  Nanos start, end;
  Work work;
  Cost cost;
};

std::vector<LaunchRecord> trace_snapshot();  // oldest first
void trace_clear();                          // forgets the records; sequence numbers go on
uint64_t trace_dropped();                    // launches since the last clear that the ring no longer holds
uint64_t trace_capacity();                   // TORCH_NEURONX_TRACE_LENGTH, default 65536; std::invalid_argument
uint64_t launch_count(int core);             // launches since the process started

}  // namespace neuron::device
