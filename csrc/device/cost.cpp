#include "device/cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/chip.h"
#include "device/topology.h"

// src/torch_neuronx/chips/cost.py has the same formulas with their reasons; a test holds the two to the same results.
// Times are whole nanoseconds, each rounded up from one product of doubles, so every machine gets the same.
namespace neuron::device {
namespace {

constexpr double kLongest = 9e15;  // nanoseconds, 104 days: sums of a few such still fit

constexpr double kIndex = 8;  // bytes of an index: int64

double per_unit(uint64_t units_per_second) { return 1e9 / static_cast<double>(units_per_second); }

int64_t nanos(double amount, double each) { return static_cast<int64_t>(std::min(std::ceil(amount * each), kLongest)); }

// Nanoseconds that one unit takes on a logical core.
struct Rates {
  double mac, mac_float32, mac_float8;
  // by size of the element in bytes: 1, 2, 4 and 8, which are two elements of 4
  std::array<double, 9> vector, vector_many, scalar;
  double gpsimd, descriptor;
  double hbm_byte, host_byte;
  int64_t dispatch, load, load_and_store, table_load;
};

Rates make_rates(const ChipSpec& chip, uint64_t lnc) {
  Rates r{};
  const uint64_t macs =
      chip.tensor_rows * chip.tensor_cols * chip.tensor_clock_hz * lnc * chip.tensor_sustained_permille / 1000;
  r.mac = per_unit(macs);
  r.mac_float32 = per_unit(macs / chip.tensor_float32_passes);
  r.mac_float8 = per_unit(macs * chip.tensor_float8_speedup);

  const uint64_t vector = chip.vector_lanes * chip.vector_clock_hz * lnc;
  const uint64_t scalar = chip.scalar_elements_per_cycle * chip.scalar_clock_hz * lnc;
  const uint64_t scalar_narrow = chip.scalar_elements_per_cycle_narrow * chip.scalar_clock_hz * lnc;
  for (size_t bytes = 0; bytes < r.vector.size(); ++bytes) {
    const uint64_t speedup = bytes == 2   ? chip.vector_binary_speedup_16bit
                             : bytes == 1 ? chip.vector_binary_speedup_8bit
                                          : 1;
    const uint64_t halves = bytes > 4 ? 2 : 1;
    r.vector[bytes] = per_unit(vector * speedup / halves);
    r.vector_many[bytes] = per_unit(vector / halves);
    r.scalar[bytes] = per_unit((bytes <= 2 ? scalar_narrow : scalar) / halves);
  }
  r.gpsimd = per_unit(chip.gpsimd_elements_per_cycle * chip.gpsimd_clock_hz * lnc);
  r.descriptor = static_cast<double>(chip.gpsimd_descriptor_ps) / static_cast<double>(1000 * lnc);

  const uint64_t hbm = chip.hbm_bytes_per_second * lnc / chip.cores * chip.hbm_sustained_permille / 1000;
  r.hbm_byte = per_unit(std::min(hbm, chip.dma_sustained_bytes_per_second * lnc));
  r.host_byte = per_unit(chip.host_link_bytes_per_second);
  r.dispatch = static_cast<int64_t>(chip.dispatch_ns);
  r.load = static_cast<int64_t>(chip.dma_load_ns);
  r.load_and_store = static_cast<int64_t>(chip.dma_load_ns + chip.dma_to_engine_ns + chip.dma_store_ns);
  r.table_load = static_cast<int64_t>(chip.scalar_table_load_ns);
  return r;
}

Cost cost(const Work& work, const Rates& r) {
  Cost c;
  c.dispatch = r.dispatch;
  if (work.kind == Kind::kNone) return c;

  const double bytes = static_cast<double>(work.read_bytes) + static_cast<double>(work.write_bytes);
  const double elements = static_cast<double>(work.elements) * static_cast<double>(work.passes);
  const size_t size = std::min<size_t>(work.element_bytes, 8);
  int64_t fixed = r.load_and_store;
  c.dma = nanos(bytes, r.hbm_byte);
  switch (work.kind) {
    case Kind::kNone:
      break;
    case Kind::kMove:
      fixed = r.load;
      break;
    case Kind::kHostCopy: {
      // Callers may give the bytes as read, as written or as both: they cross the link once, and HBM once.
      const double crossing = static_cast<double>(std::max(work.read_bytes, work.write_bytes));
      fixed = r.load;
      c.dma = nanos(crossing, r.hbm_byte);
      c.link = nanos(crossing, r.host_byte);
      break;
    }
    case Kind::kVector:
      // Results between passes are float32, so the fast modes of narrow types apply to a single pass only.
      c.vector = nanos(elements, (work.passes > 1 ? r.vector_many : r.vector)[size]);
      break;
    case Kind::kScalar:
      fixed += r.table_load;
      c.scalar = nanos(elements, r.scalar[size]);
      break;
    case Kind::kTensor: {
      const double each = work.float32_matmul || size > 4 ? r.mac_float32 : size == 1 ? r.mac_float8 : r.mac;
      c.tensor = nanos(static_cast<double>(work.macs), each);
      break;
    }
    case Kind::kGather:
      if (work.descriptors == 0) {
        c.gpsimd = nanos(elements, r.gpsimd);
        break;
      }
      // Of the tensor that is picked from, only what is picked is read: as much as is written, and the indices.
      c.gpsimd = nanos(static_cast<double>(work.descriptors), r.descriptor);
      c.dma =
          nanos(static_cast<double>(work.write_bytes) +
                    std::min(static_cast<double>(work.read_bytes),
                             static_cast<double>(work.write_bytes) + kIndex * static_cast<double>(work.descriptors)),
                r.hbm_byte);
      break;
  }
  c.total = fixed + std::max({c.tensor, c.vector, c.scalar, c.gpsimd, c.dma, c.link});
  return c;
}

}  // namespace

Cost cost(const Work& work) {
  static const Rates rates = make_rates(*topology().chip, static_cast<uint64_t>(topology().lnc));
  return cost(work, rates);
}

Cost cost(const Work& work, const ChipSpec& chip, int lnc) {
  return cost(work, make_rates(chip, static_cast<uint64_t>(lnc)));
}

}  // namespace neuron::device
