// Memory statistics, limits and the pinned host allocator. History and snapshots: memory_snapshot.cpp.
#include <torch/csrc/utils/pybind.h>

#include "aten/allocator.h"
#include "aten/core_allocator.h"
#include "aten/host_allocator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/heap.h"
#include "python/bindings.h"

namespace py = pybind11;
namespace neuron::python {

void bind_memory_history(py::module_& m);  // memory_snapshot.cpp

namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

py::dict dict_of(const Stat& stat) {
  py::dict dict;
  dict["current"] = stat.current;
  dict["peak"] = stat.peak;
  dict["allocated"] = stat.allocated;
  dict["freed"] = stat.freed;
  return dict;
}

py::dict dict_of(const StatArray& stats) {
  py::dict dict;
  dict["all"] = dict_of(stats[0]);
  dict["small_pool"] = dict_of(stats[1]);
  dict["large_pool"] = dict_of(stats[2]);
  return dict;
}

py::dict dict_of(const DurationStat& stat) {
  py::dict dict;
  dict["total"] = stat.total;
  dict["max"] = stat.max;
  dict["min"] = stat.min;
  dict["count"] = stat.count;
  dict["avg"] = stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return dict;
}

py::dict memory_stats(int index) {
  const auto stats = aten::device_allocator()->getDeviceStats(static_cast<c10::DeviceIndex>(index));
  py::dict dict;
  dict["allocation"] = dict_of(stats.allocation);
  dict["segment"] = dict_of(stats.segment);
  dict["active"] = dict_of(stats.active);
  dict["inactive_split"] = dict_of(stats.inactive_split);
  dict["allocated_bytes"] = dict_of(stats.allocated_bytes);
  dict["reserved_bytes"] = dict_of(stats.reserved_bytes);
  dict["active_bytes"] = dict_of(stats.active_bytes);
  dict["inactive_split_bytes"] = dict_of(stats.inactive_split_bytes);
  dict["requested_bytes"] = dict_of(stats.requested_bytes);
  dict["oversize_allocations"] = dict_of(stats.oversize_allocations);
  dict["oversize_segments"] = dict_of(stats.oversize_segments);
  dict["num_alloc_retries"] = stats.num_alloc_retries;
  dict["num_ooms"] = stats.num_ooms;
  dict["num_sync_all_streams"] = stats.num_sync_all_streams;
  dict["num_device_alloc"] = stats.num_device_alloc;
  dict["num_device_free"] = stats.num_device_free;
  dict["max_split_size"] = stats.max_split_size;
  return dict;
}

py::dict host_memory_stats() {
  const auto stats = aten::host_allocator()->get_stats();
  py::dict dict;
  dict["allocations"] = dict_of(stats.allocations);
  dict["allocated_bytes"] = dict_of(stats.allocated_bytes);
  dict["active_requests"] = dict_of(stats.active_requests);
  dict["active_bytes"] = dict_of(stats.active_bytes);
  dict["num_host_alloc"] = stats.num_host_alloc;
  dict["num_host_free"] = stats.num_host_free;
  dict["host_alloc_time"] = dict_of(stats.host_alloc_time);
  dict["host_free_time"] = dict_of(stats.host_free_time);
  return dict;
}

py::list pool_report(int index) {
  py::list rows;
  for (const aten::PoolReport& pool : aten::pool_report(index)) {
    py::dict row;
    row["pool"] = pool.large ? "large" : "small";
    row["stream"] = pool.stream;
    row["segments"] = pool.segments;
    row["reserved"] = pool.reserved;
    row["allocated"] = pool.allocated;
    row["waiting"] = pool.waiting;
    row["free"] = pool.free;
    row["free_blocks"] = pool.free_blocks;
    row["largest_free"] = pool.largest_free;
    row["pinned"] = pool.pinned;
    rows.append(std::move(row));
  }
  return rows;
}

uint64_t raw_allocate(int index, uint64_t bytes, int64_t stream) {
  aten::ensure_init();
  if (bytes == 0) return 0;
  return reinterpret_cast<uint64_t>(aten::core_allocator(index).allocate(bytes, stream));
}

void raw_free(uint64_t address) {
  auto* const ptr = reinterpret_cast<void*>(address);
  TORCH_CHECK(ptr == nullptr || device::core_of(ptr) >= 0, "invalid device pointer: ", ptr);
  aten::free_memory(ptr);
}

}  // namespace

void bind_memory(py::module_& m) {
  using namespace pybind11::literals;
  m.def("_memory_stats", &memory_stats, "index"_a);
  m.def("_memory_info", [](int index) { return aten::device_allocator()->getMemoryInfo(index); }, "index"_a);
  m.def("_empty_cache", &aten::release_all_caches, py::call_guard<py::gil_scoped_release>());
  m.def("_reset_accumulated_memory_stats", [](int index) { aten::device_allocator()->resetAccumulatedStats(index); });
  m.def("_reset_peak_memory_stats", [](int index) { aten::device_allocator()->resetPeakStats(index); });
  m.def("_set_memory_fraction", &aten::set_memory_fraction, "index"_a, "fraction"_a);
  m.def("_memory_fraction", &aten::memory_fraction, "index"_a);
  m.def("_pool_report", &pool_report, "index"_a);
  m.def("_raw_allocate", &raw_allocate, "index"_a, "bytes"_a, "stream"_a);
  m.def("_raw_free", &raw_free, "address"_a);
  m.def("_host_memory_stats", &host_memory_stats);
  m.def("_reset_accumulated_host_memory_stats", [] { aten::host_allocator()->reset_accumulated_stats(); });
  m.def("_reset_peak_host_memory_stats", [] { aten::host_allocator()->reset_peak_stats(); });
  bind_memory_history(m);
}

}  // namespace neuron::python
