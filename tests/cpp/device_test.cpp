// The chip layer without Python and PyTorch: what needs real threads, and that the layer stands alone.
// Plain checks that also work in release builds; the process's exit status is the result.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/chip.h"
#include "device/cost.h"
#include "device/stream.h"
#include "device/topology.h"
#include "device/trace.h"

using namespace neuron::device;

namespace {

int failures = 0;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                                  \
    }                                                                              \
  } while (false)

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Work kTiny{.kind = Kind::kVector, .elements = 1};
const Work kProduct{.kind = Kind::kTensor, .element_bytes = 2, .macs = 1'000'000'000'000};

void test_bad_environment() {  // before anything has read the environment
  setenv("NEURON_LOGICAL_NC_CONFIG", "7", 1);
  CHECK(contains(error_of([] { topology(); }), "NEURON_LOGICAL_NC_CONFIG='7' is not valid"));
  CHECK(current_core() == 0);  // noexcept: answers, and leaves the report to topology()
  setenv("NEURON_LOGICAL_NC_CONFIG", "2", 1);
}

void test_topology() {
  const Topology& t = topology();
  CHECK(t.instance == "trn2.3xlarge");
  CHECK(core_count() == 4);
  CHECK(t.hbm_bytes_per_core == uint64_t{24} << 30);
  CHECK(t.chip == find_chip("trn2"));
  CHECK(find_chip("trn1") == nullptr);
  CHECK(std::string(smallest_instance("trn3")->name) == "trn3pd98.3xlarge");
  CHECK(smallest_instance("trn1") == nullptr);
  CHECK(find_instance("trn2u.48xlarge")->ultraserver_chips == 64);
}

void test_current_core_and_stream_belong_to_the_thread() {
  set_current_core(2);
  const StreamId side = new_stream(2, 0);
  set_current_stream(2, side);
  int core = -1;
  StreamId stream = -1;
  std::thread([&] {
    core = current_core();
    stream = current_stream(2);
  }).join();
  CHECK(core == 0 && stream == 0);
  CHECK(current_core() == 2 && current_stream(2) == side && current_stream(1) == 0);
  CHECK(contains(error_of([] { set_current_stream(2, 12345); }), "There is no stream 12345 on neuron:2"));
  CHECK(contains(error_of([] { current_stream(-1); }), "There is no neuron:-1"));
  CHECK(current_stream(2) == side);
  set_current_stream(2, 0);
  set_current_core(0);
}

void test_launch() {
  const Nanos before = host_now();
  launch(0, 0, "product", kProduct);
  const Cost c = cost(kProduct);
  Event event;
  record(event, 0, 0);
  CHECK(host_now() == before + c.dispatch);
  CHECK(stream_end(0, 0) == before + c.dispatch + c.total);
  for (int i = 0; i < 3; ++i) CHECK(!passed(event));
  CHECK(host_now() == before + c.dispatch);  // the runtime's own questions cost nothing
  CHECK(!query(event));
  CHECK(host_now() == before + c.dispatch + 1000);
  synchronize_core(0);
  CHECK(host_now() == stream_end(0, 0));
  CHECK(passed(event) && query(event) && host_now() == event.time);
  const auto trace = trace_snapshot();
  CHECK(trace.size() == 1 && std::string(trace[0].name) == "product" && trace[0].cost.tensor == c.tensor);
}

void test_many_threads() {
  constexpr int kThreads = 8, kLaunches = 5000;
  trace_clear();
  const uint64_t before = launch_count(1);
  const Nanos start = host_now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      const StreamId stream = new_stream(1, 0);
      set_current_stream(1, stream);
      Event event;
      for (int n = 0; n < kLaunches; ++n) {
        launch(1, current_stream(1), "tiny", kTiny);
        if (n % 64 == 0) {
          record(event, 1, stream);
          wait(event, 2, 0);
          query(event);
        }
      }
      synchronize_stream(1, stream);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(launch_count(1) == before + kThreads * kLaunches);
  CHECK(host_now() >= start + kThreads * kLaunches * cost(kTiny).dispatch);  // no launch was lost
  const auto trace = trace_snapshot();
  CHECK(trace.size() == kThreads * kLaunches);
  std::set<StreamId> seen;
  std::vector<Nanos> ends(4096, 0);
  for (size_t i = 0; i < trace.size(); ++i) {
    CHECK(trace[i].sequence == trace[0].sequence + i);
    CHECK(trace[i].start >= ends[static_cast<size_t>(trace[i].stream)]);  // in order within its stream
    ends[static_cast<size_t>(trace[i].stream)] = trace[i].end;
    seen.insert(trace[i].stream);
  }
  CHECK(seen.size() == kThreads);
}

void test_snapshots_are_whole_while_others_launch() {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) launch(2, 0, "tiny", kTiny);
  });
  for (int i = 0; i < 20; ++i) {
    const auto trace = trace_snapshot();
    for (size_t n = 1; n < trace.size(); ++n) {
      if (trace[n].sequence != trace[n - 1].sequence + 1) {
        CHECK(!"a snapshot has a gap");
        break;
      }
    }
    if (i % 5 == 0) trace_clear();
  }
  stop = true;
  writer.join();
}

void test_fork_while_others_launch() {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) launch(3, 0, "tiny", kTiny);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a deadlock ends the child
      const bool fresh = host_now() == 0 && launch_count(3) == 0 && trace_snapshot().empty() && stream_end(3, 0) == 0;
      launch(3, 0, "child", kTiny);
      _exit(fresh && core_count() == 4 && launch_count(3) == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  stop = true;
  writer.join();
}

}  // namespace

int main() {
  for (const char* name : {"TORCH_NEURONX_INSTANCE_TYPE", "NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG",
                           "NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES",
                           "LOCAL_RANK", "TORCH_NEURONX_TRACE_LENGTH"}) {
    unsetenv(name);
  }
  test_bad_environment();
  test_topology();
  test_current_core_and_stream_belong_to_the_thread();
  test_launch();
  test_many_threads();
  test_snapshots_are_whole_while_others_launch();
  test_fork_while_others_launch();
  if (failures == 0) std::puts("device_test: all checks hold");
  return failures == 0 ? 0 : 1;
}
