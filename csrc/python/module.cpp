// The extension module `torch_neuronx._C`: thin bindings, one file per area.
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/boundary.h"
#include "aten/generator.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "device/topology.h"
#include "python/bindings.h"

namespace py = pybind11;
namespace neuron::python {
namespace {

aten::Policy parse_policy(const std::string& text) {
  if (text == "allow") return aten::Policy::kAllow;
  if (text == "warn") return aten::Policy::kWarn;
  if (text == "raise") return aten::Policy::kRaise;
  throw py::value_error("fallback policy '" + text + "' is not one of allow, warn, raise");
}

const char* policy_name(aten::Policy policy) {
  switch (policy) {
    case aten::Policy::kAllow:
      return "allow";
    case aten::Policy::kWarn:
      return "warn";
    default:
      return "raise";
  }
}

void set_current(int index) {
  aten::check_ordinal(index);
  aten::ensure_init();
  device::set_current_core(index);
}

void bind_core(py::module_& m) {
  m.def("_init", &aten::ensure_init, "Initialises the device. Raises in a child forked after initialisation.");
  m.def("_is_initialized", &aten::is_initialized);
  m.def("_is_in_bad_fork", &aten::in_bad_fork);
  m.def("_device_count", [] { return device::core_count(); });
  m.def("_current_device", [] { return device::current_core(); });
  m.def("_set_device", &set_current, py::arg("index"));
  m.def("_exchange_device", [](int index) {
    const int previous = device::current_core();
    if (index >= 0) set_current(index);
    return previous;
  });
  m.def("_maybe_exchange_device", [](int index) {
    const int previous = device::current_core();
    if (index >= 0) set_current(index);
    return previous;
  });
  m.def("_synchronize", [](int index) {
    aten::check_ordinal(index);
    aten::ensure_init();
    device::synchronize_core(index);
  });
  m.def("_default_generator", [](int index) {
    aten::check_ordinal(index);
    return aten::default_generator(static_cast<c10::DeviceIndex>(index));
  });
}

void bind_fallback(py::module_& m) {
  m.def("_fallback_stats", [] {
    py::list rows;
    for (const auto& row : aten::fallback_stats()) rows.append(py::make_tuple(row.op, row.kind, row.count, row.bytes));
    return rows;
  });
  m.def("_reset_fallbacks", &aten::reset_fallbacks);
  m.def("_fallback_policy", [] { return policy_name(aten::fallback_policy()); });
  m.def("_set_fallback_policy", [](const std::string& text) { aten::set_fallback_policy(parse_policy(text)); });
  m.def("_native_ops", [] {
    py::list rows;
    for (const auto& row : aten::native_ops()) {
      rows.append(py::make_tuple(row.name, row.family, static_cast<int>(row.kind)));
    }
    return rows;
  });
}

}  // namespace
}  // namespace neuron::python

PYBIND11_MODULE(_C, m) {
  m.doc() = "The compiled part of torch_neuronx. Private: use torch.neuron and torch_neuronx.";
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const std::invalid_argument& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  neuron::python::bind_core(m);
  neuron::python::bind_fallback(m);
  neuron::python::bind_memory(m);
  neuron::python::bind_device(m);
  neuron::python::bind_vector(m);
}
