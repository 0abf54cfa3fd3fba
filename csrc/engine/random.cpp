#include "engine/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/philox.h"
#include "engine/pool.h"

// Each marked function is compiled for AVX2 too and chosen at load time. AVX-512 is left out on purpose: its baseline
// contains fused multiply-add, and the same numbers must come out on every machine (this file is compiled with
// -ffp-contract=off for the same reason).
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define NEURON_VECTOR __attribute__((target_clones("avx2", "default")))
#else
#define NEURON_VECTOR
#endif

namespace neuron::engine {
namespace {

constexpr int64_t kGrain = 32;  // tiles a thread takes at a time
constexpr float kTwoPi = 6.283185307179586f;

// Natural logarithm of x in [2^-32, 1]: exponent plus the series of 2 artanh((m - 1) / (m + 1)) for m in
// [sqrt(1/2), sqrt(2)]. Relative error below 2e-7.
[[gnu::always_inline]] inline float log_unit(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t shifted = bits - 0x3f3504f3u;  // sqrt(1/2)
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  const uint32_t mantissa = (shifted & 0x007fffffu) + 0x3f3504f3u;
  float m;
  std::memcpy(&m, &mantissa, sizeof(m));
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float series = 2.0f + z * (2.0f / 3 + z * (2.0f / 5 + z * (2.0f / 7 + z * (2.0f / 9))));
  return static_cast<float>(exponent) * 0.693147181f + s * series;
}

// (0, 1] with 31 bits. The lowest value bounds what the logarithm can give: normal numbers reach 6.6.
[[gnu::always_inline]] inline float open_unit(uint32_t x) {
  return static_cast<float>(static_cast<int32_t>(x >> 1)) * 0x1p-31f + 0x1p-32f;
}

NEURON_VECTOR void words(uint64_t seed, uint64_t offset, uint64_t first_block, int64_t groups, uint32_t* out) {
  for (int64_t g = 0; g < groups; ++g) {
    const uint64_t counter[2] = {first_block + static_cast<uint64_t>(g) * kPhiloxLanes, offset / 4};
    philox(seed, counter, out + g * kPhiloxGroup);
  }
}

NEURON_VECTOR void uniform_tile(const uint32_t* x, float* out, int64_t n, int digits, float range, float from) {
  const int shift = 32 - digits;
  const float unit = 1.0f / static_cast<float>(1u << digits);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(static_cast<int32_t>(x[i] >> shift)) * unit * range + from;
  }
}

// Numbers 0..15 of 32 are radii and 16..31 angles: radius * cos and radius * sin take their places.
NEURON_VECTOR void normal_tile(const uint32_t* x, float* out, int64_t n, float mean, float std) {
  for (int64_t base = 0; base < n; base += 2 * kPhiloxLanes) {
    for (int l = 0; l < kPhiloxLanes; ++l) {
      const float radius = std::sqrt(-2.0f * log_unit(open_unit(x[base + l]))) * std;
      // The angle in turns: nearest quarter q and the rest r in [-1/8, 1/8].
      const uint32_t turns = x[base + kPhiloxLanes + l];
      const uint32_t quarter = (turns + 0x20000000u) >> 30;
      const int32_t rest = static_cast<int32_t>(turns - (quarter << 30));
      const float a = static_cast<float>(rest) * (kTwoPi * 0x1p-32f), z = a * a;
      const float sine = a * (1.0f + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880)))));
      const float cosine = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
      // Quarter 1: (-sin, cos), 2: (-cos, -sin), 3: (sin, -cos).
      const bool swap = (quarter & 1u) != 0;
      const float c = swap ? sine : cosine, s = swap ? cosine : sine;
      const float c_sign = ((quarter + 1u) & 2u) != 0 ? -1.0f : 1.0f, s_sign = (quarter & 2u) != 0 ? -1.0f : 1.0f;
      out[base + l] = radius * (c * c_sign) + mean;
      out[base + kPhiloxLanes + l] = radius * (s * s_sign) + mean;
    }
  }
}

NEURON_VECTOR void exponential_tile(const uint32_t* x, float* out, int64_t n, float inverse_rate) {
  constexpr float kTop = 1.0f - 0x1p-24f;
  for (int64_t i = 0; i < n; ++i) {
    const float u = open_unit(x[i]);
    // log(1) = 0 is not a value of the distribution, and sampling code divides by it.
    const float log = u > kTop ? -0x1p-24f : log_unit(u);
    out[i] = -log * inverse_rate;
  }
}

// Calls f(words, out_index, count) for the pieces of elements [first, first + n) that lie in one tile each; `words`
// points at the piece's first number. Elements per tile: kTile for 32-bit numbers, kTile / 2 for 64-bit ones, for which
// f gets the whole tile and the piece's position in it instead.
template <typename F>
void for_tiles(int64_t first, int64_t n, int64_t per_tile, const Source& source, const F& f) {
  const int64_t first_tile = first / per_tile, last_tile = (first + n + per_tile - 1) / per_tile;
  parallel(last_tile - first_tile, kGrain, source.threads, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t tile_of_words[kTile];
    for (int64_t t = first_tile + begin; t < first_tile + end; ++t) {
      tile_words(source.seed, source.offset, t, tile_of_words);
      const int64_t from = std::max(first, t * per_tile), to = std::min(first + n, (t + 1) * per_tile);
      f(tile_of_words, from - t * per_tile, from - first, to - from);
    }
  });
}

inline uint64_t wide(const uint32_t* tile, int64_t j) {
  const int64_t at = wide_position(j);
  return static_cast<uint64_t>(tile[at + kPhiloxLanes]) << 32 | tile[at];
}
inline double unit64(uint64_t x) { return static_cast<double>(x >> 11) * 0x1p-53; }
inline double open_unit64(uint64_t x) { return static_cast<double>((x >> 11) + 1) * 0x1p-53; }

template <typename T>
void store(const float* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

// A distribution over float32: `make(words, out)` fills a whole tile. Tiles go straight to the output where they can.
template <typename T, typename F>
void fill_floats(T* out, int64_t n, const Source& source, const F& make) {
  for_tiles(0, n, kTile, source, [&](const uint32_t* tile, int64_t, int64_t at, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      if (count == kTile) {
        make(tile, out + at);
        return;
      }
    }
    alignas(64) float values[kTile];
    make(tile, values);
    store(values, out + at, count);
  });
}

template <typename T>
constexpr int kDigits = std::is_same_v<T, c10::BFloat16> ? 8
                        : std::is_same_v<T, c10::Half>   ? 11
                                                         : 24;

// p as a count of the 2^32 values of a number.
uint64_t threshold(double p) { return static_cast<uint64_t>(std::ldexp(p, 32)); }

}  // namespace

void tile_words(uint64_t seed, uint64_t offset, int64_t tile, uint32_t* out) {
  words(seed, offset, static_cast<uint64_t>(tile) * (kTile / 4), kTile / kPhiloxGroup, out);
}

template <typename T>
void fill_uniform(T* out, int64_t n, double from, double to, const Source& source) {
  if constexpr (std::is_same_v<T, double>) {
    for_tiles(0, n, kTile / 2, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double value = unit64(wide(tile, start + i)) * (to - from) + from;
        out[at + i] = value < to ? value : from;
      }
    });
  } else {
    const float low = static_cast<float>(from), range = static_cast<float>(to - from);
    fill_floats(out, n, source, [&](const uint32_t* tile, float* values) {
      uniform_tile(tile, values, kTile, kDigits<T>, range, low);
    });
    // Rounding may reach the excluded end, unless the interval is [0, 1), whose numbers are exact.
    if (low == 0.0f && range == 1.0f) return;
    const T top = static_cast<T>(static_cast<float>(to)), bottom = static_cast<T>(low);
    parallel(n, kGrain * kTile, source.threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = out[i] < top ? out[i] : bottom;
    });
  }
}

template <typename T>
void fill_normal(T* out, int64_t n, double mean, double std, const Source& source) {
  if constexpr (std::is_same_v<T, double>) {
    // Numbers j and j + 16 of 32 are one pair.
    for_tiles(0, n, kTile / 2, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t j = start + i, first = j / 32 * 32 + j % 16;
        const double radius = std::sqrt(-2.0 * std::log(open_unit64(wide(tile, first))));
        const double angle = 2.0 * M_PI * unit64(wide(tile, first + 16));
        out[at + i] = radius * (j == first ? std::cos(angle) : std::sin(angle)) * std + mean;
      }
    });
  } else {
    const float m = static_cast<float>(mean), s = static_cast<float>(std);
    fill_floats(out, n, source, [&](const uint32_t* tile, float* values) { normal_tile(tile, values, kTile, m, s); });
  }
}

template <typename T>
void fill_exponential(T* out, int64_t n, double lambda, const Source& source) {
  if constexpr (std::is_same_v<T, double>) {
    for_tiles(0, n, kTile / 2, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double u = open_unit64(wide(tile, start + i));
        out[at + i] = (u < 1.0 ? -std::log(u) : 0x1p-54) / lambda;
      }
    });
  } else {
    const float inverse = static_cast<float>(1.0 / lambda);
    fill_floats(out, n, source,
                [&](const uint32_t* tile, float* values) { exponential_tile(tile, values, kTile, inverse); });
  }
}

template <typename T>
void fill_bernoulli(T* out, int64_t n, double p, const Source& source) {
  const uint64_t below = threshold(p);
  const bool always = below > std::numeric_limits<uint32_t>::max();
  const uint32_t limit = static_cast<uint32_t>(below);
  for_tiles(0, n, kTile, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out[at + i] = static_cast<T>(static_cast<int>(always | (tile[start + i] < limit)));
  });
}

template <typename T>
void fill_integers(T* out, int64_t n, int64_t from, uint64_t range, const Source& source) {
  // The product with the range, shifted down, favours no value by more than range / 2^32 (2^64): 1.5e-5 at most.
  if (range != 0 && range <= (uint64_t{1} << 16)) {
    for_tiles(0, n, kTile, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        out[at + i] = static_cast<T>(from + static_cast<int64_t>((tile[start + i] * range) >> 32));
      }
    });
    return;
  }
  for_tiles(0, n, kTile / 2, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t x = wide(tile, start + i);
      const uint64_t r = range == 0 ? x : static_cast<uint64_t>((static_cast<unsigned __int128>(x) * range) >> 64);
      out[at + i] = static_cast<T>(static_cast<int64_t>(r + static_cast<uint64_t>(from)));
    }
  });
}

template <typename T>
void fill_transformed(T* out, int64_t n, double (*transform)(double u, const double* parameters),
                      const double* parameters, const Source& source) {
  for_tiles(0, n, kTile / 2, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[at + i] = static_cast<T>(transform(open_unit64(wide(tile, start + i)), parameters));
    }
  });
}

template <typename T>
void dropout(const T* in, T* out, bool* keep, int64_t n, double p, const Source& source, int64_t first) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const uint64_t below = threshold(p);
  const bool never = below > std::numeric_limits<uint32_t>::max();
  const uint32_t limit = static_cast<uint32_t>(below);
  const Compute scale = p < 1.0 ? static_cast<Compute>(1.0 / (1.0 - p)) : Compute(0);
  for_tiles(first, n, kTile, source, [&](const uint32_t* tile, int64_t start, int64_t at, int64_t count) {
    const uint32_t* x = tile + start;
    for (int64_t i = 0; i < count; ++i) {
      const Compute value = static_cast<Compute>(in[at + i]) * scale;
      out[at + i] = static_cast<T>(!never && x[i] >= limit ? value : Compute(0));
    }
    if (keep == nullptr) return;
    for (int64_t i = 0; i < count; ++i) keep[at + i] = !never & (x[i] >= limit);
  });
}

#define FOR_REALS(T)                                                                                               \
  template void fill_uniform<T>(T*, int64_t, double, double, const Source&);                                       \
  template void fill_normal<T>(T*, int64_t, double, double, const Source&);                                        \
  template void fill_exponential<T>(T*, int64_t, double, const Source&);                                           \
  template void fill_transformed<T>(T*, int64_t, double (*)(double, const double*), const double*, const Source&); \
  template void dropout<T>(const T*, T*, bool*, int64_t, double, const Source&, int64_t);
#define FOR_ALL(T)                                                     \
  template void fill_bernoulli<T>(T*, int64_t, double, const Source&); \
  template void fill_integers<T>(T*, int64_t, int64_t, uint64_t, const Source&);
#define FOR_INTEGERS(T) \
  template void fill_transformed<T>(T*, int64_t, double (*)(double, const double*), const double*, const Source&);
FOR_REALS(float)
FOR_REALS(double)
FOR_REALS(c10::Half)
FOR_REALS(c10::BFloat16)
FOR_ALL(float)
FOR_ALL(double)
FOR_ALL(c10::Half)
FOR_ALL(c10::BFloat16)
FOR_ALL(bool)
FOR_ALL(int8_t)
FOR_ALL(uint8_t)
FOR_ALL(int16_t)
FOR_ALL(uint16_t)
FOR_ALL(int32_t)
FOR_ALL(uint32_t)
FOR_ALL(int64_t)
FOR_ALL(uint64_t)
FOR_INTEGERS(int8_t)
FOR_INTEGERS(uint8_t)
FOR_INTEGERS(int16_t)
FOR_INTEGERS(int32_t)
FOR_INTEGERS(int64_t)
#undef FOR_REALS
#undef FOR_ALL
#undef FOR_INTEGERS

}  // namespace neuron::engine
