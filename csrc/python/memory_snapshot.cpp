// Memory history and snapshots, in the format that PyTorch's memory viewer and torch.cuda._memory_viz read.
#include <c10/core/AllocatorConfig.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <unordered_map>

#include "aten/allocator_config.h"
#include "aten/core_allocator.h"
#include "aten/memory_history.h"
#include "device/topology.h"
#include "python/bindings.h"

// Declared in torch/csrc/profiler/python/combined_traceback.h, which needs a JSON library that the wheel does not ship.
namespace torch {
std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
void freeDeadCapturedTracebackFrames();
}  // namespace torch

namespace py = pybind11;
namespace neuron::python {
namespace {

using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

constexpr const char* kActions[] = {"alloc",         "free_requested", "free_completed",
                                    "segment_alloc", "segment_free",   "segment_map",
                                    "segment_unmap", "snapshot",       "oom"};

// Turns stacks into lists of frames, all at once: symbolizing shares the work between stacks with common frames.
class Stacks {
 public:
  void add(const std::shared_ptr<c10::GatheredContext>& context) {
    if (!context) return;
    auto* const stack = torch::getCapturedTracebackFromContext(context);
    if (index_.emplace(context.get(), all_.size()).second) all_.push_back(stack);
  }
  void symbolize() { frames_ = torch::py_symbolize(all_); }
  py::object frames(const std::shared_ptr<c10::GatheredContext>& context) const {
    return context ? frames_[index_.at(context.get())] : py::list();
  }

 private:
  std::unordered_map<const c10::GatheredContext*, size_t> index_;
  std::vector<torch::CapturedTraceback*> all_;
  std::vector<py::object> frames_;
};

int64_t id(void* stream) { return reinterpret_cast<int64_t>(stream); }

py::dict dict_of(const SegmentInfo& segment, const Stacks& stacks) {
  py::dict dict;
  dict["device"] = segment.device;
  dict["address"] = segment.address;
  dict["total_size"] = segment.total_size;
  dict["allocated_size"] = segment.allocated_size;
  dict["active_size"] = segment.active_size;
  dict["requested_size"] = segment.requested_size;
  dict["stream"] = id(segment.stream);
  dict["segment_type"] = segment.is_large ? "large" : "small";
  dict["segment_pool_id"] = segment.owner_private_pool_id;
  dict["is_expandable"] = segment.is_expandable;
  dict["frames"] = py::list();
  py::list blocks;
  size_t address = segment.address;
  for (const auto& info : segment.blocks) {
    py::dict block;
    block["address"] = address;
    block["size"] = info.size;
    block["requested_size"] = info.requested_size;
    block["state"] = info.allocated ? "active_allocated" : info.active ? "active_pending_free" : "inactive";
    block["frames"] = stacks.frames(info.context_when_allocated);
    blocks.append(std::move(block));
    address += info.size;
  }
  dict["blocks"] = std::move(blocks);
  return dict;
}

// Compares two readings of the clocks, far apart: one when recording starts, one at the snapshot.
c10::ApproximateClockToUnixTimeConverter& clock() {
  static auto* const converter = new c10::ApproximateClockToUnixTimeConverter();
  return *converter;
}

py::dict dict_of(const TraceEntry& entry, const Stacks& stacks,
                 const std::function<c10::time_t(c10::approx_time_t)>& to_unix) {
  py::dict dict;
  dict["action"] = kActions[entry.action_];
  dict[entry.action_ == TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
  dict["size"] = entry.size_;
  dict["stream"] = id(entry.stream_);
  dict["time_us"] = to_unix(entry.time_.approx_t_) / 1000;
  dict["pool_id"] = entry.mempool_;
  dict["frames"] = stacks.frames(entry.context_);
  return dict;
}

py::dict settings() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  const aten::AllocatorConfig own = aten::allocator_config();
  py::dict dict, divisions;
  size_t size = 1;  // MiB
  for (const size_t division : Config::roundup_power2_divisions()) {
    divisions[py::str(std::to_string(size))] = division;
    size *= 2;
  }
  dict["PYTORCH_ALLOC_CONF"] = c10::CachingAllocator::getAllocatorSettings();
  dict["max_split_size"] = own.max_split_size == SIZE_MAX ? py::int_(-1) : py::int_(own.max_split_size);
  dict["garbage_collection_threshold"] = own.collection_threshold;
  dict["expandable_segments"] = true;  // the arena always grows in place
  dict["roundup_power2_divisions"] = std::move(divisions);
  return dict;
}

py::dict snapshot(bool with_traces) {
  torch::freeDeadCapturedTracebackFrames();
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> traces(device::core_count());
  for (int i = 0; i < device::core_count(); ++i) {
    aten::CoreAllocator* const core = aten::existing_core_allocator(i);
    if (core == nullptr) continue;
    core->note_snapshot();
    for (SegmentInfo& segment : core->segments()) segments.push_back(std::move(segment));
    if (with_traces) traces[i] = core->trace();
  }
  Stacks stacks;
  for (const SegmentInfo& segment : segments) {
    for (const auto& block : segment.blocks) stacks.add(block.context_when_allocated);
  }
  for (const auto& trace : traces) {
    for (const TraceEntry& entry : trace) stacks.add(entry.context_);
  }
  stacks.symbolize();

  const auto to_unix = clock().makeConverter();
  py::list segment_list, trace_lists;
  for (const SegmentInfo& segment : segments) segment_list.append(dict_of(segment, stacks));
  for (const auto& trace : traces) {
    py::list entries;
    for (const TraceEntry& entry : trace) entries.append(dict_of(entry, stacks, to_unix));
    trace_lists.append(std::move(entries));
  }
  py::dict result;
  result["segments"] = std::move(segment_list);
  result["device_traces"] = std::move(trace_lists);
  result["allocator_settings"] = settings();
  result["external_annotations"] = py::list();
  return result;
}

// Arguments are checked in Python.
void record_history(bool events, int context, bool cpp_stacks, uint64_t max_entries, bool clear, uint32_t skipped) {
  clock();
  aten::HistorySettings settings;
  settings.events = events;
  settings.context = static_cast<RecordContext>(context);
  settings.cpp_stacks = cpp_stacks;
  settings.max_entries = std::max<uint64_t>(max_entries, 1);
  settings.skipped = skipped;
  aten::set_history(settings);
  for (int i = 0; clear && i < device::core_count(); ++i) {
    if (aten::CoreAllocator* const core = aten::existing_core_allocator(i)) core->clear_trace();
  }
}

py::object allocation_traceback(uint64_t address) {
  const int core = device::core_of(reinterpret_cast<void*>(address));
  aten::CoreAllocator* const allocator = aten::existing_core_allocator(core);
  if (allocator == nullptr) return py::none();
  for (const SegmentInfo& segment : allocator->segments()) {
    size_t start = segment.address;
    for (const auto& block : segment.blocks) {
      if (start == address && block.allocated && block.context_when_allocated) {
        Stacks stacks;
        stacks.add(block.context_when_allocated);
        stacks.symbolize();
        return stacks.frames(block.context_when_allocated);
      }
      start += block.size;
    }
  }
  return py::none();
}

}  // namespace

void bind_memory_history(py::module_& m) {
  using namespace pybind11::literals;
  m.def("_record_memory_history", &record_history, "events"_a, "context"_a, "cpp_stacks"_a, "max_entries"_a, "clear"_a,
        "skipped"_a);
  m.def("_memory_snapshot", &snapshot, "with_traces"_a);
  m.def("_allocation_traceback", &allocation_traceback, "address"_a);
  m.attr("_memory_actions") = py::cast(std::vector<std::string>(std::begin(kActions), std::end(kActions)));
}

}  // namespace neuron::python
