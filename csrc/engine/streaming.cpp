#include "engine/streaming.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "engine/blas.h"
#include "engine/pool.h"

namespace neuron::engine {
namespace {

constexpr int64_t kPieceBytes = 1 << 16;  // the buffer and the operands of a piece fit a private cache of 256 KiB
constexpr int64_t kPieces = 8;            // of one chunk of the pool
constexpr int64_t kLine = 64;

// Both aligned to a cache line, bytes a multiple of one.
void move_past_cache(char* out, const char* from, int64_t bytes) {
#if defined(__SSE2__)
  auto* target = reinterpret_cast<__m128i*>(out);
  const auto* source = reinterpret_cast<const __m128i*>(from);
  for (int64_t i = 0; i < bytes / 16; i += 4) {
    for (int64_t j = 0; j < 4; ++j) _mm_stream_si128(target + i + j, _mm_load_si128(source + i + j));
  }
#else
  std::memcpy(out, from, static_cast<size_t>(bytes));
#endif
}

}  // namespace

void stream_out(void* out, int64_t n, size_t element_bytes, void (*compute)(void*, int64_t, int64_t, void*),
                void* context) {
  const auto width = static_cast<int64_t>(element_bytes);
  const int64_t piece = kPieceBytes / width;
  const int threads = host_threads();
  parallel(n, piece * kPieces, threads, [&](int64_t begin, int64_t end) {
    alignas(kLine) thread_local char buffer[kPieceBytes];
    const SerialOpenMp serial;
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t count = std::min(piece, end - at);
      compute(context, at, count, buffer);
      char* target = static_cast<char*>(out) + at * width;
      const int64_t bytes = count * width;
      const bool aligned = reinterpret_cast<uintptr_t>(target) % kLine == 0;
      const int64_t lines = aligned ? bytes / kLine * kLine : 0;
      move_past_cache(target, buffer, lines);
      std::memcpy(target + lines, buffer + lines, static_cast<size_t>(bytes - lines));
    }
#if defined(__SSE2__)
    _mm_sfence();  // before another thread is told that this chunk is written
#endif
  });
}

}  // namespace neuron::engine
