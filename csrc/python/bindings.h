// One bind function per area of the extension module, each in the file of the same name.
#pragma once
#include <pybind11/pybind11.h>

namespace neuron::python {

void bind_device(pybind11::module_& m);  // device.cpp: topology, chip, clock, trace, cost
void bind_memory(pybind11::module_& m);  // memory.cpp: statistics, history, snapshots
void bind_vector(pybind11::module_& m);  // vector.cpp: fused vector programs

}  // namespace neuron::python
