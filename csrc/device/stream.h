// In-order streams, events and the device clock. Results are computed by the host in program order; what lives here
// is when each launch would have started and ended on the chip. All times are nanoseconds on the device clock,
// an integer, and deterministic: they depend on the program, never on wall-clock time.
#pragma once
#include <cstdint>

#include "device/cost.h"

namespace neuron::device {

using StreamId = int64_t;  // 0 is a core's default stream
using Nanos = int64_t;

struct Event {  // owned by the caller
  int core = -1;
  StreamId stream = 0;
  Nanos time = -1;  // -1: not recorded
};

StreamId new_stream(int core, int priority);  // priority: lower is more urgent, clamped to [-1, 0] as CUDA does
StreamId pooled_stream(int core, bool high_priority);
int stream_priority(int core, StreamId stream);
void check_stream(int core, StreamId stream);  // throws std::invalid_argument for an unknown core or stream
StreamId current_stream(int core);             // of the calling thread
void set_current_stream(int core, StreamId stream);

// One launch: the host pays the dispatch cost, the stream runs the work after everything before it.
// `name` must outlive the process (interned operator name). Thread-safe. Appends to the trace.
void launch(int core, StreamId stream, const char* name, const Work& work);

void record(Event& event, int core, StreamId stream);
void wait(const Event& event, int core, StreamId stream);  // stream waits for event, also across cores
bool query(const Event& event);                            // done at the host's present device time?
bool passed(const Event& event);  // the same for the runtime itself: asking takes the host no time
bool query_stream(int core, StreamId stream);
void synchronize(const Event& event);  // host waits: its present moves forward
void synchronize_stream(int core, StreamId stream);
void synchronize_core(int core);
double elapsed_ms(const Event& start, const Event& end);
Nanos host_now();                             // where the host is on the device clock
Nanos stream_end(int core, StreamId stream);  // when the stream's last launch ends

}  // namespace neuron::device
