#include "engine/pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace neuron::engine {
namespace {

constexpr auto kSpin = std::chrono::microseconds(20);  // a worker looks for the next loop this long before it sleeps
constexpr int64_t kMaxChunks = (int64_t{1} << 32) - 1;

thread_local bool in_chunk = false;

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Pool {
 public:
  bool try_run(int64_t chunks, int threads, void (*f)(void*, int64_t), void* context) {
    std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (!owner.owns_lock()) return false;
    start_workers(threads - 1);
    f_ = f;
    context_ = context;
    error_ = nullptr;
    failed_.store(false, std::memory_order_relaxed);
    unfinished_.store(chunks, std::memory_order_relaxed);
    limit_.store(threads - 1, std::memory_order_relaxed);
    ++epoch_;
    open_.store(epoch_ << 32 | static_cast<uint64_t>(chunks));
    if (sleepers_.load() > 0) {
      std::lock_guard<std::mutex> lock(sleep_);
      wake_.notify_all();
    }
    while (take_chunk()) {
    }
    for (int spins = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < 1000) {
        relax();
      } else {
        std::this_thread::yield();  // the worker that has the last chunk may want this core
      }
    }
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }

 private:
  // Claims one chunk and runs it. The word holds the loop's number and how many chunks are left, so a claim is valid
  // only for the loop it was made for; the loop's fields stay as they are until every claimed chunk is finished.
  bool take_chunk() {
    uint64_t word = open_.load(std::memory_order_acquire);
    do {
      if ((word & 0xffffffffu) == 0) return false;
    } while (!open_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire));
    if (!failed_.load(std::memory_order_relaxed)) {
      in_chunk = true;
      try {
        f_(context_, static_cast<int64_t>((word & 0xffffffffu) - 1));
      } catch (...) {
        std::lock_guard<std::mutex> lock(sleep_);
        if (!failed_.load(std::memory_order_relaxed)) {
          error_ = std::current_exception();
          failed_.store(true, std::memory_order_release);
        }
      }
      in_chunk = false;
    }
    unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    return true;
  }

  void start_workers(int count) {
    for (; workers_ < count; ++workers_) std::thread(&Pool::work, this, workers_).detach();
  }

  bool anything(int id) const {
    return id < limit_.load(std::memory_order_relaxed) && (open_.load() & 0xffffffffu) != 0;
  }

  void work(int id) {
    for (;;) {
      const auto until = std::chrono::steady_clock::now() + kSpin;
      while (!anything(id) && std::chrono::steady_clock::now() < until) relax();
      if (!anything(id)) {
        std::unique_lock<std::mutex> lock(sleep_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return anything(id); });
        sleepers_.fetch_sub(1);
      }
      while (anything(id) && take_chunk()) {
      }
    }
  }

  std::mutex owner_;
  int workers_ = 0;
  uint64_t epoch_ = 0;
  void (*f_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  std::atomic<int> limit_{0};
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<uint64_t> open_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};
  std::mutex sleep_;
  std::condition_variable wake_;
};

std::atomic<Pool*> current{nullptr};

// A child has none of its parent's threads, and may have inherited locked mutexes: it starts over.
void forget() {
  current.store(nullptr);
  in_chunk = false;
}

Pool& pool() {
  if (Pool* p = current.load(std::memory_order_acquire)) return *p;
  static const int registered = pthread_atfork(nullptr, nullptr, &forget);
  (void)registered;
  // Never destroyed: workers may outlive the destructors of static objects.
  auto* fresh = new Pool();
  Pool* expected = nullptr;
  if (!current.compare_exchange_strong(expected, fresh)) {
    delete fresh;  // another thread was quicker; no worker has been started in this one
    return *expected;
  }
  return *fresh;
}

}  // namespace

void run_chunks(int64_t chunks, int threads, void (*f)(void* context, int64_t chunk), void* context) {
  if (chunks > kMaxChunks) {
    throw std::length_error("a loop of " + std::to_string(chunks) + " chunks is longer than " +
                            std::to_string(kMaxChunks) + "; ask for larger chunks");
  }
  if (chunks > 1 && threads > 1 && !in_chunk && pool().try_run(chunks, threads, f, context)) return;
  for (int64_t i = 0; i < chunks; ++i) f(context, i);
}

}  // namespace neuron::engine
