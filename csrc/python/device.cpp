// The emulated chip for Python: topology, chip numbers, the device clock, the trace and the cost of work.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <optional>

#include "device/chip.h"
#include "device/cost.h"
#include "device/stream.h"
#include "device/topology.h"
#include "device/trace.h"
#include "python/bindings.h"

namespace py = pybind11;
namespace neuron::python {
namespace {

constexpr std::array<const char*, 7> kKinds = {"none", "move", "host_copy", "vector", "scalar", "tensor", "gather"};

py::dict topology_dict() {
  const auto& t = device::topology();
  py::dict d;
  d["instance"] = t.instance;
  d["chip"] = t.chip->name;
  d["chips"] = t.chips;
  d["lnc"] = t.lnc;
  d["logical_cores"] = t.logical_cores;
  d["visible"] = t.visible;
  d["hbm_bytes_per_core"] = t.hbm_bytes_per_core;
  d["initial_core"] = t.initial_core;
  return d;
}

const device::ChipSpec& chip_named(const std::string& name) {
  if (const auto* chip = device::find_chip(name)) return *chip;
  std::string known;
  for (const auto& chip : device::chips()) known += (known.empty() ? "" : ", ") + std::string(chip.name);
  throw py::value_error("there is no chip '" + name + "'; there are " + known);
}

py::dict chip_dict(const std::string& name) {
  const auto& chip = chip_named(name);
  py::dict d;
  d["name"] = chip.name;
  for (const auto& field : device::chip_fields()) d[field.name] = chip.*field.value;
  return d;
}

py::list instance_list() {
  py::list rows;
  for (const auto& instance : device::instances()) {
    py::dict d;
    d["name"] = instance.name;
    d["chip"] = instance.chip;
    d["chips"] = instance.chips;
    d["ultraserver_chips"] = instance.ultraserver_chips;
    d["efa_bits_per_second"] = instance.efa_bits_per_second;
    rows.append(d);
  }
  return rows;
}

device::Kind parse_kind(const std::string& text) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (text == kKinds[i]) return static_cast<device::Kind>(i);
  }
  throw py::value_error("kind '" + text + "' is not one of none, move, host_copy, vector, scalar, tensor, gather");
}

device::Work parse_work(const py::dict& d) {
  device::Work work;
  for (const auto& [key, value] : d) {
    const auto name = key.cast<std::string>();
    if (name == "kind") {
      work.kind = parse_kind(value.cast<std::string>());
    } else if (name == "element_bytes") {
      work.element_bytes = value.cast<uint8_t>();
    } else if (name == "float32_matmul") {
      work.float32_matmul = value.cast<bool>();
    } else if (name == "read_bytes") {
      work.read_bytes = value.cast<uint64_t>();
    } else if (name == "write_bytes") {
      work.write_bytes = value.cast<uint64_t>();
    } else if (name == "elements") {
      work.elements = value.cast<uint64_t>();
    } else if (name == "passes") {
      work.passes = value.cast<uint32_t>();
    } else if (name == "macs") {
      work.macs = value.cast<uint64_t>();
    } else if (name == "descriptors") {
      work.descriptors = value.cast<uint64_t>();
    } else {
      throw py::value_error("work has no '" + name + "'");
    }
  }
  return work;
}

py::dict work_dict(const device::Work& work) {
  py::dict d;
  d["kind"] = kKinds[static_cast<size_t>(work.kind)];
  d["element_bytes"] = work.element_bytes;
  d["float32_matmul"] = work.float32_matmul;
  d["read_bytes"] = work.read_bytes;
  d["write_bytes"] = work.write_bytes;
  d["elements"] = work.elements;
  d["passes"] = work.passes;
  d["macs"] = work.macs;
  d["descriptors"] = work.descriptors;
  return d;
}

py::dict cost_dict(const device::Cost& cost) {
  py::dict d;
  d["dispatch"] = cost.dispatch;
  d["tensor"] = cost.tensor;
  d["vector"] = cost.vector;
  d["scalar"] = cost.scalar;
  d["gpsimd"] = cost.gpsimd;
  d["dma"] = cost.dma;
  d["link"] = cost.link;
  d["total"] = cost.total;
  return d;
}

py::dict cost_of(const py::dict& work, const std::optional<std::string>& chip, int lnc) {
  if (!chip) return cost_dict(device::cost(parse_work(work)));
  if (lnc != 1 && lnc != 2) throw py::value_error("lnc is 1 or 2, not " + std::to_string(lnc));
  return cost_dict(device::cost(parse_work(work), chip_named(*chip), lnc));
}

py::list snapshot() {
  py::list rows;
  for (const auto& record : device::trace_snapshot()) {
    py::dict d;
    d["sequence"] = record.sequence;
    d["name"] = record.name;
    d["core"] = record.core;
    d["stream"] = record.stream;
    d["start"] = record.start;
    d["end"] = record.end;
    d["work"] = work_dict(record.work);
    d["cost"] = cost_dict(record.cost);
    rows.append(d);
  }
  return rows;
}

// Events of the device layer itself, for tests of the clock without PyTorch's event objects.
void bind_event(py::module_& m) {
  py::class_<device::Event>(m, "_DeviceEvent")
      .def(py::init<>())
      .def_readonly("core", &device::Event::core)
      .def_readonly("stream", &device::Event::stream)
      .def_readonly("time", &device::Event::time, "Nanoseconds on the device clock; -1: not recorded.")
      .def("record", &device::record, py::arg("core"), py::arg("stream"))
      .def("wait", &device::wait, py::arg("core"), py::arg("stream"))
      .def("query", &device::query)
      .def("synchronize", [](const device::Event& event) { device::synchronize(event); })
      .def("elapsed_ms",
           [](const device::Event& start, const device::Event& end) { return device::elapsed_ms(start, end); });
}

}  // namespace

void bind_device(py::module_& m) {
  m.def("topology", &topology_dict,
        "The machine and what this process sees of it. ValueError when an environment variable is wrong.");
  m.def("chip", &chip_dict, py::arg("name"), "Numbers of a chip generation by name, as in torch_neuronx.chips.");
  m.def("instances", &instance_list, "The machines that can be emulated.");

  m.def("host_now_ns", &device::host_now, "Where the host is on the device clock, in nanoseconds.");
  m.def("stream_end_ns", &device::stream_end, py::arg("core"), py::arg("stream"),
        "When the work submitted to a stream so far ends, in nanoseconds on the device clock.");
  m.def("launch_count", &device::launch_count, py::arg("core"), "Launches on a core since the process started.");
  m.def("trace_snapshot", &snapshot, "The latest launches, oldest first, times in nanoseconds on the device clock.");
  m.def("trace_clear", &device::trace_clear, "Forget the launches recorded so far.");
  m.def("trace_dropped", &device::trace_dropped, "Launches since the last clear that no longer fit the trace.");
  m.def("trace_capacity", &device::trace_capacity, "Launches that the trace holds.");
  m.def("cost", &cost_of, py::arg("work"), py::arg("chip") = py::none(), py::arg("lnc") = 2,
        "What a piece of work costs, in nanoseconds by engine: on this process's chip, or on another.");

  m.def(
      "_launch",
      [](int core, device::StreamId stream, const py::dict& work) {
        device::launch(core, stream, "test", parse_work(work));
      },
      py::arg("core"), py::arg("stream"), py::arg("work"), "Puts work on the device clock without computing anything.");
  m.def("_new_stream", &device::new_stream, py::arg("core"), py::arg("priority") = 0);
  m.def("_pooled_stream", &device::pooled_stream, py::arg("core"), py::arg("high_priority") = false);
  m.def("_stream_priority", &device::stream_priority, py::arg("core"), py::arg("stream"));
  m.def("_query_stream", &device::query_stream, py::arg("core"), py::arg("stream"));
  m.def("_synchronize_stream", &device::synchronize_stream, py::arg("core"), py::arg("stream"));
  bind_event(m);
}

}  // namespace neuron::python
