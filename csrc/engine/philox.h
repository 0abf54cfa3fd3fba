// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter in, four numbers
// out. Counter = (block index, offset / 4), key = seed: number i of a launch depends on (seed, offset, i) and nothing
// else.
#pragma once
#include <cstdint>

namespace neuron::engine {

constexpr int kPhiloxLanes = 16;  // counters worked on together, so that the compiler can use vector registers

// Fills out[word][lane] for blocks first .. first + kPhiloxLanes - 1.
inline void philox(uint64_t seed, uint64_t offset, uint64_t first, uint32_t (&out)[4][kPhiloxLanes]) {
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57, kAdd0 = 0x9E3779B9, kAdd1 = 0xBB67AE85;
  const uint64_t high = offset / 4;
  for (int l = 0; l < kPhiloxLanes; ++l) {
    out[0][l] = static_cast<uint32_t>(first + l);
    out[1][l] = static_cast<uint32_t>((first + l) >> 32);
    out[2][l] = static_cast<uint32_t>(high);
    out[3][l] = static_cast<uint32_t>(high >> 32);
  }
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kPhiloxLanes; ++l) {
      const uint64_t p0 = static_cast<uint64_t>(kMul0) * out[0][l], p1 = static_cast<uint64_t>(kMul1) * out[2][l];
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ out[1][l] ^ key0;
      const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ out[3][l] ^ key1;
      out[0][l] = n0;
      out[1][l] = static_cast<uint32_t>(p1);
      out[2][l] = n2;
      out[3][l] = static_cast<uint32_t>(p0);
    }
    key0 += kAdd0;
    key1 += kAdd1;
  }
}

}  // namespace neuron::engine
