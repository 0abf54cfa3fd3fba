// A thread pool whose caller takes part. OpenMP's barrier waits for every thread of the team, so one busy neighbour
// stretches a loop of microseconds to a scheduling quantum; here the caller takes chunks itself and waits only for
// chunks that a worker has begun.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace neuron::engine {

// Calls f(chunk) once for every chunk in [0, chunks), on at most `threads` threads including the caller. Returns when
// all are done. The first exception of a chunk is rethrown here; chunks not begun by then are skipped. A call from
// inside a chunk, and one while another thread uses the pool, runs on the caller alone. Works in a forked child.
// Limit: 2^32 - 1 chunks.
void run_chunks(int64_t chunks, int threads, void (*f)(void* context, int64_t chunk), void* context);

// f(begin, end) over [0, n) in pieces of `grain` (the last may be shorter).
template <typename F>
void parallel(int64_t n, int64_t grain, int threads, const F& f) {
  if (n <= 0) return;
  if (n <= grain || threads <= 1) {
    f(int64_t{0}, n);
    return;
  }
  struct Call {
    const F& f;
    int64_t n, grain;
  } call{f, n, grain};
  run_chunks((n + grain - 1) / grain, threads,
             [](void* context, int64_t chunk) {
               const Call& c = *static_cast<const Call*>(context);
               c.f(chunk * c.grain, std::min(c.n, (chunk + 1) * c.grain));
             },
             &call);
}

}  // namespace neuron::engine
