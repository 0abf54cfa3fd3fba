// Fused vector programs for Python: the compiler describes one as rows of plain values.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <tuple>

#include "aten/vector_kernel.h"
#include "python/bindings.h"

namespace py = pybind11;
namespace neuron::python {
namespace {

using aten::VectorKernel;
using engine::vector::Node;

#define NEURON_VECTOR_NAME(name) #name,
constexpr std::array kUnary = {NEURON_VECTOR_UNARY(NEURON_VECTOR_NAME)};
constexpr std::array kBinary = {NEURON_VECTOR_BINARY(NEURON_VECTOR_NAME)};
constexpr std::array kReduce = {NEURON_VECTOR_REDUCE(NEURON_VECTOR_NAME)};
#undef NEURON_VECTOR_NAME

// ("add", a, b, c, immediate): the name of an operation, or input, constant, count, select, store, column.
using Row = std::tuple<std::string, int32_t, int32_t, int32_t, double>;

template <size_t N>
int find(const std::array<const char*, N>& names, const std::string& name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

Node to_node(const Row& row) {
  const auto& [name, a, b, c, immediate] = row;
  using Kind = Node::Kind;
  Node node{Kind::kInput, 0, a, b, c, static_cast<float>(immediate)};
  static const std::array<std::pair<const char*, Kind>, 6> kinds = {{{"input", Kind::kInput},
                                                                     {"constant", Kind::kConstant},
                                                                     {"count", Kind::kCount},
                                                                     {"select", Kind::kSelect},
                                                                     {"store", Kind::kStore},
                                                                     {"column", Kind::kColumn}}};
  for (const auto& [known, kind] : kinds) {
    if (name == known) {
      node.kind = kind;
      return node;
    }
  }
  const auto take = [&](int op, Kind kind) {
    if (op < 0) return false;
    node.kind = kind;
    node.op = static_cast<uint8_t>(op);
    return true;
  };
  if (take(find(kUnary, name), Kind::kUnary) || take(find(kBinary, name), Kind::kBinary) ||
      take(find(kReduce, name), Kind::kReduce)) {
    return node;
  }
  throw py::value_error("vector programs have no operation '" + name + "'");
}

VectorKernel::Extent to_extent(const std::string& name) {
  if (name == "full") return VectorKernel::Extent::kFull;
  if (name == "row") return VectorKernel::Extent::kRow;
  if (name == "column") return VectorKernel::Extent::kColumn;
  throw py::value_error("extent '" + name + "' is not one of full, row, column");
}

std::unique_ptr<VectorKernel> make(const std::string& name, const std::vector<std::tuple<at::ScalarType, bool>>& inputs,
                                   const std::vector<std::tuple<at::ScalarType, std::string, int64_t, bool>>& outputs,
                                   const std::vector<Row>& rows, std::vector<int64_t> order, int64_t inner) {
  std::vector<VectorKernel::Input> in;
  for (const auto& [dtype, row] : inputs) in.push_back({dtype, row});
  std::vector<VectorKernel::Output> out;
  for (const auto& [dtype, extent, in_place, keeps] : outputs) {
    out.push_back({dtype, to_extent(extent), in_place, keeps});
  }
  std::vector<Node> nodes;
  for (const Row& row : rows) nodes.push_back(to_node(row));
  return std::make_unique<VectorKernel>(name, std::move(in), std::move(out), std::move(nodes), std::move(order), inner);
}

}  // namespace

void bind_vector(py::module_& m) {
  py::class_<VectorKernel>(m, "_VectorKernel")
      .def(py::init(&make), py::arg("name"), py::arg("inputs"), py::arg("outputs"), py::arg("nodes"), py::arg("order"),
           py::arg("inner"))
      .def("run", &VectorKernel::run, py::arg("inputs"), py::call_guard<py::gil_scoped_release>());
  m.def("_vector_operations", [] {
    py::dict d;
    d["unary"] = kUnary;
    d["binary"] = kBinary;
    d["reduce"] = kReduce;
    return d;
  });
}

}  // namespace neuron::python
