// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a 128-bit counter and a
// 64-bit key in, four 32-bit numbers out. The counter here is (block index, offset / 4) and the key is the seed.
#pragma once
#include <cstdint>

namespace neuron::engine {

constexpr int kPhiloxLanes = 16;                // counters worked on together, for the vector registers
constexpr int kPhiloxGroup = 4 * kPhiloxLanes;  // numbers that come out of them

// The four numbers of counters (c[0] + lane, c[1], c[2], c[3]), with the carry into c[1]: out[word * 16 + lane].
[[gnu::always_inline]] inline void philox(uint64_t key, const uint64_t (&counter)[2], uint32_t* out) {
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57, kAdd0 = 0x9E3779B9, kAdd1 = 0xBB67AE85;
  uint32_t x0[kPhiloxLanes], x1[kPhiloxLanes], x2[kPhiloxLanes], x3[kPhiloxLanes];
  for (int l = 0; l < kPhiloxLanes; ++l) {
    const uint64_t block = counter[0] + static_cast<uint64_t>(l);
    x0[l] = static_cast<uint32_t>(block);
    x1[l] = static_cast<uint32_t>(block >> 32);
    x2[l] = static_cast<uint32_t>(counter[1]);
    x3[l] = static_cast<uint32_t>(counter[1] >> 32);
  }
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kPhiloxLanes; ++l) {
      const uint64_t p0 = static_cast<uint64_t>(kMul0) * x0[l], p1 = static_cast<uint64_t>(kMul1) * x2[l];
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ x1[l] ^ key0;
      const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ x3[l] ^ key1;
      x0[l] = n0;
      x1[l] = static_cast<uint32_t>(p1);
      x2[l] = n2;
      x3[l] = static_cast<uint32_t>(p0);
    }
    key0 += kAdd0;
    key1 += kAdd1;
  }
  for (int l = 0; l < kPhiloxLanes; ++l) {
    out[l] = x0[l];
    out[kPhiloxLanes + l] = x1[l];
    out[2 * kPhiloxLanes + l] = x2[l];
    out[3 * kPhiloxLanes + l] = x3[l];
  }
}

}  // namespace neuron::engine
