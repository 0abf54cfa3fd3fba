// Fills memory with random numbers. Element i of a launch depends on (seed, offset, i) alone: not on the number of
// threads, not on the instruction set. docs/random.md says which number an element gets.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace neuron::engine {

// Where a launch's numbers come from. `threads` is how many threads the caller may use.
struct Source {
  uint64_t seed = 0;
  uint64_t offset = 0;  // multiple of 4
  int threads = 1;
};

// All functions fill n elements of dense memory.

// Uniform in [from, to); `to` itself never, unless from == to. T: float, double, c10::Half, c10::BFloat16. As many
// random bits as the type's significand holds.
template <typename T>
void fill_uniform(T* out, int64_t n, double from, double to, const Source& source);

// Normal, by the Box-Muller transform.
template <typename T>
void fill_normal(T* out, int64_t n, double mean, double std, const Source& source);

// Exponential with rate lambda: > 0, finite.
template <typename T>
void fill_exponential(T* out, int64_t n, double lambda, const Source& source);

// 1 with probability p in [0, 1], else 0, resolved to 2^-32. T: any type that is made from an int.
template <typename T>
void fill_bernoulli(T* out, int64_t n, double p, const Source& source);

// Integers in [from, from + range); range 0 stands for 2^64. T: any type that is made from an int64_t.
template <typename T>
void fill_integers(T* out, int64_t n, int64_t from, uint64_t range, const Source& source);

// out[i] = transform(u[i]) for u uniform in (0, 1] with 53 bits; `context` is handed to transform.
template <typename T>
void fill_transformed(T* out, int64_t n, double (*transform)(double u, const double* parameters),
                      const double* parameters, const Source& source);

// Dropout: keep[i] = 1 with probability 1 - p, out[i] = keep[i] ? in[i] / (1 - p) : 0. `keep` may be null; out may be
// in. `first` is the number of the first element in the launch, for a launch that is worked on in blocks.
template <typename T>
void dropout(const T* in, T* out, bool* keep, int64_t n, double p, const Source& source, int64_t first = 0);

// --- the numbers themselves ------------------------------------------------------------------------------------------

constexpr int64_t kTile = 1024;  // 32-bit numbers made at a time; a multiple of the Philox group

// The 32-bit numbers of tile `tile`: number i of the launch is out[i - tile * kTile].
void tile_words(uint64_t seed, uint64_t offset, int64_t tile, uint32_t* out);

// Position in a tile of the low half of its 64-bit number j; the high half is kPhiloxLanes further.
constexpr int64_t wide_position(int64_t j) { return j / 16 * 32 + j % 16; }

}  // namespace neuron::engine
