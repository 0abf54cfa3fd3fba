// Elementwise results too large for the host's caches. An ordinary store reads the line it is about to overwrite, a
// third of the memory traffic of an addition; here a kernel computes a piece into a buffer that stays in the cache, and
// the piece then goes to memory past the caches.
#pragma once
#include <cstddef>
#include <cstdint>

namespace neuron::engine {

// Results from this size on are worth it: several times the last-level cache of a core.
constexpr size_t kStreamed = size_t{16} << 20;

// Calls compute(context, begin, count, buffer), which writes the elements [begin, begin + count) of the result to
// `buffer`, for all of [0, n), on several threads, each with OpenMP switched off inside; moves what was written to
// `out`. element_bytes: 1, 2, 4 or 8. The first exception of `compute` is rethrown.
void stream_out(void* out, int64_t n, size_t element_bytes, void (*compute)(void*, int64_t, int64_t, void*),
                void* context);

}  // namespace neuron::engine
