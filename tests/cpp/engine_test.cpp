// The engine's parts that need no PyTorch: the pool and Philox. Fails with a message and a non-zero exit code.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/philox.h"
#include "engine/pool.h"

namespace {

using neuron::engine::parallel;

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "engine_test: %s\n", what);
  std::exit(1);
}

void pool_runs_every_element_once() {
  for (const int64_t n : {1, 7, 1000, 100003}) {
    for (const int threads : {1, 2, 5}) {
      std::vector<std::atomic<int>> seen(n);
      parallel(n, 13, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[i].fetch_add(1);
      });
      for (const auto& count : seen) check(count == 1, "an element was not run exactly once");
    }
  }
  parallel(0, 1, 4, [](int64_t, int64_t) { check(false, "an empty loop ran"); });
}

void pool_uses_several_threads() {
  std::atomic<int> together{0}, most{0};
  parallel(8, 1, 4, [&](int64_t, int64_t) {
    const int now = ++together;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --together;
  });
  check(most >= 2, "chunks that sleep did not overlap");
  check(most <= 4, "more threads than asked for");
}

// Workers that never come must not hold up the caller: chunks are claimed, not assigned.
void caller_takes_part() {
  const auto start = std::chrono::steady_clock::now();
  std::set<std::thread::id> ids;
  parallel(1, 1, 8, [&](int64_t, int64_t) { ids.insert(std::this_thread::get_id()); });
  check(ids.count(std::this_thread::get_id()) == 1, "a single chunk left the caller");
  for (int i = 0; i < 1000; ++i) parallel(4, 1, 4, [](int64_t, int64_t) {});
  const auto took = std::chrono::steady_clock::now() - start;
  check(took < std::chrono::seconds(2), "a thousand small loops took two seconds");
}

void nested_and_concurrent_loops_work() {
  std::atomic<int> sum{0};
  parallel(4, 1, 4, [&](int64_t, int64_t) {
    parallel(10, 1, 4, [&](int64_t begin, int64_t end) { sum += static_cast<int>(end - begin); });
  });
  check(sum == 40, "nested loops lost work");
  sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        parallel(16, 1, 4, [&](int64_t begin, int64_t end) { sum += static_cast<int>(end - begin); });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  check(sum == 4 * 200 * 16, "concurrent loops lost work");
}

void exceptions_reach_the_caller() {
  bool caught = false;
  try {
    parallel(100, 1, 4, [](int64_t begin, int64_t) {
      if (begin == 37) throw std::runtime_error("thirty-seven");
    });
  } catch (const std::runtime_error& error) {
    caught = std::string(error.what()) == "thirty-seven";
  }
  check(caught, "an exception of a chunk was lost");
  std::atomic<int> sum{0};
  parallel(10, 1, 4, [&](int64_t, int64_t) { ++sum; });
  check(sum == 10, "the pool does not work after an exception");
}

void a_forked_child_has_its_own_pool() {
  parallel(8, 1, 3, [](int64_t, int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> sum{0};
    parallel(100, 1, 3, [&](int64_t, int64_t) { ++sum; });
    _exit(sum == 100 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the pool hangs or fails in a forked child");
}

// Vectors published with Random123 (kat_vectors).
void philox_gives_the_known_answers() {
  struct Vector {
    uint64_t counter[2], key;
    uint32_t answer[4];
  };
  const Vector vectors[] = {
      {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0ull, ~0ull}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x85a308d3243f6a88, 0x0370734413198a2e}, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& v : vectors) {
    uint32_t out[neuron::engine::kPhiloxGroup];
    neuron::engine::philox(v.key, v.counter, out);
    for (int word = 0; word < 4; ++word) {
      check(out[word * neuron::engine::kPhiloxLanes] == v.answer[word], "Philox differs from its known answers");
    }
  }
  // Lane 5 of counter c is lane 0 of counter c + 5, also across the carry into the upper half.
  const uint64_t low[2] = {0xfffffffe, 3}, high[2] = {0xfffffffe + 5ull, 3};
  uint32_t a[neuron::engine::kPhiloxGroup], b[neuron::engine::kPhiloxGroup];
  neuron::engine::philox(11, low, a);
  neuron::engine::philox(11, high, b);
  for (int word = 0; word < 4; ++word) {
    check(a[word * neuron::engine::kPhiloxLanes + 5] == b[word * neuron::engine::kPhiloxLanes],
          "lanes are not counters");
  }
}

}  // namespace

int main() {
  pool_runs_every_element_once();
  pool_uses_several_threads();
  caller_takes_part();
  nested_and_concurrent_loops_work();
  exceptions_reach_the_caller();
  a_forked_child_has_its_own_pool();
  philox_gives_the_known_answers();
  std::puts("engine_test: ok");
}
