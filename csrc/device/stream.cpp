#include "device/stream.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "device/clock.h"
#include "device/topology.h"

namespace neuron::device {
namespace {

constexpr size_t kPoolSize = 32;  // streams of one priority and core that are handed out in turn, as CUDA does
constexpr Nanos kPoll = 1'000;    // a host that asks in vain has spent this long: a polling loop comes to its end
constexpr size_t kDma = kEngines - 1;

// The stream that each core's next launch of this thread goes to. All zero at first: the default streams.
thread_local StreamId current_streams[kMaxVisibleCores];

[[noreturn, gnu::cold]] void unknown(int core, StreamId stream, size_t streams) {
  if (core < 0 || core >= core_count()) {
    throw std::invalid_argument("There is no neuron:" + std::to_string(core) + ": this process sees " +
                                std::to_string(core_count()) +
                                " logical core(s). NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and "
                                "TORCH_NEURONX_INSTANCE_TYPE decide how many.");
  }
  throw std::invalid_argument("There is no stream " + std::to_string(stream) + " on neuron:" + std::to_string(core) +
                              ", which has streams 0 to " + std::to_string(streams - 1) +
                              ". Use a stream made by this process for this device.");
}

Core& find_core(Clock& c, int core) {
  if (static_cast<size_t>(core) >= c.cores.size()) [[unlikely]] {
    unknown(core, 0, 0);
  }
  return c.cores[static_cast<size_t>(core)];
}

Stream& find_stream(Core& core, int index, StreamId stream) {
  if (static_cast<size_t>(stream) >= core.streams.size()) [[unlikely]] {
    unknown(index, stream, core.streams.size());
  }
  return core.streams[static_cast<size_t>(stream)];
}

StreamId add_stream(Core& core, int priority) {
  core.streams.push_back({0, std::clamp(priority, -1, 0)});
  return static_cast<StreamId>(core.streams.size() - 1);
}

Clock* make_clock() {
  auto* c = new Clock;
  c->cores.resize(static_cast<size_t>(core_count()));
  for (Core& core : c->cores) {
    core.busy.fill(0);
    add_stream(core, 0);  // stream 0, the default
  }
  c->ring.capacity = trace_capacity();
  void* memory = std::malloc(c->ring.capacity * sizeof(LaunchRecord));
  if (memory == nullptr) {
    throw std::invalid_argument("The host has no memory for a trace of " + std::to_string(c->ring.capacity) +
                                " launches: set TORCH_NEURONX_TRACE_LENGTH to less.");
  }
  c->ring.slots.reset(static_cast<LaunchRecord*>(memory));
  // Another thread may hold the lock while this one forks. The fork waits until the state is whole, so that the child
  // finds a free lock; what was submitted before the fork is the parent's, so the child's clock and trace start anew.
  static Clock* forked = nullptr;
  forked = c;
  pthread_atfork([] { forked->mutex.lock(); }, [] { forked->mutex.unlock(); },
                 [] {
                   forked->host_now = 0;
                   forked->ring.next = forked->ring.first = 0;
                   for (Core& core : forked->cores) {
                     core.end = 0;
                     core.busy.fill(0);
                     core.launches = 0;
                     for (Stream& stream : core.streams) stream.end = 0;
                   }
                   forked->mutex.unlock();
                 });
  return c;
}

// The launch's place on the core's engines. Engines that compute, and the link to the host, serve one launch at a time;
// the DMA queues are shared, so a launch may start while they work for another, and ends when they have done its share.
Nanos place(Core& core, Nanos start, const Cost& cost, Nanos& end) {
  const Nanos active[kEngines] = {cost.tensor, cost.vector, cost.scalar, cost.gpsimd, cost.link, cost.dma};
  for (size_t i = 0; i < kDma; ++i) {
    if (active[i] > 0) start = std::max(start, core.busy[i]);
  }
  for (size_t i = 0; i < kDma; ++i) {
    if (active[i] > 0) core.busy[i] = start + active[i];
  }
  end = start + cost.total;
  if (active[kDma] > 0) {
    core.busy[kDma] = std::max(core.busy[kDma], start) + active[kDma];
    end = std::max(end, core.busy[kDma]);
  }
  return start;
}

}  // namespace

Clock& clock() {
  static Clock* const c = make_clock();
  return *c;
}

StreamId new_stream(int core, int priority) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return add_stream(find_core(c, core), priority);
}

StreamId pooled_stream(int core, bool high_priority) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  Core& k = find_core(c, core);
  auto& pool = k.pool[high_priority ? 1 : 0];
  if (pool.size() < kPoolSize) {
    pool.push_back(add_stream(k, high_priority ? -1 : 0));
    return pool.back();
  }
  return pool[k.next_in_pool[high_priority ? 1 : 0]++ % kPoolSize];
}

int stream_priority(int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return find_stream(find_core(c, core), core, stream).priority;
}

void check_stream(int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  find_stream(find_core(c, core), core, stream);
}

StreamId current_stream(int core) {
  if (static_cast<size_t>(core) >= static_cast<size_t>(kMaxVisibleCores)) [[unlikely]] {
    unknown(core, 0, 0);
  }
  return current_streams[core];
}

void set_current_stream(int core, StreamId stream) {
  check_stream(core, stream);
  current_streams[core] = stream;
}

void launch(int core, StreamId stream, const char* name, const Work& work) {
  Clock& c = clock();
  const Cost cost = device::cost(work);
  std::lock_guard<std::mutex> lock(c.mutex);
  Core& k = find_core(c, core);
  Stream& s = find_stream(k, core, stream);
  c.host_now += cost.dispatch;
  Nanos end = 0;
  const Nanos start = place(k, std::max(s.end, c.host_now), cost, end);
  s.end = end;
  k.end = std::max(k.end, end);
  ++k.launches;
  Ring& ring = c.ring;
  new (&ring.slots[ring.next % ring.capacity]) LaunchRecord{ring.next, name, core, stream, start, end, work, cost};
  ++ring.next;
}

void record(Event& event, int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  // An idle stream reaches the event when the host submits it.
  const Nanos time = std::max(find_stream(find_core(c, core), core, stream).end, c.host_now);
  event = {core, stream, time};
}

void wait(const Event& event, int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  Core& k = find_core(c, core);
  Stream& s = find_stream(k, core, stream);
  s.end = std::max(s.end, event.time);  // an event that was not recorded is in the past
  k.end = std::max(k.end, s.end);
}

namespace {

bool poll(Clock& c, Nanos time) {
  if (time <= c.host_now) return true;
  c.host_now += kPoll;
  return time <= c.host_now;
}

}  // namespace

bool query(const Event& event) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return poll(c, event.time);
}

bool passed(const Event& event) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return event.time <= c.host_now;
}

bool query_stream(int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return poll(c, find_stream(find_core(c, core), core, stream).end);
}

void synchronize(const Event& event) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.host_now = std::max(c.host_now, event.time);
}

void synchronize_stream(int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.host_now = std::max(c.host_now, find_stream(find_core(c, core), core, stream).end);
}

void synchronize_core(int core) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.host_now = std::max(c.host_now, find_core(c, core).end);
}

double elapsed_ms(const Event& start, const Event& end) {
  if (start.time < 0 || end.time < 0) {
    throw std::invalid_argument("Both events must be recorded before calculating elapsed time.");
  }
  return static_cast<double>(end.time - start.time) * 1e-6;
}

Nanos host_now() {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return c.host_now;
}

Nanos stream_end(int core, StreamId stream) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return find_stream(find_core(c, core), core, stream).end;
}

uint64_t launch_count(int core) {
  Clock& c = clock();
  std::lock_guard<std::mutex> lock(c.mutex);
  return find_core(c, core).launches;
}

}  // namespace neuron::device
