#include "aten/vector_kernel.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "aten/launch.h"
#include "engine/blas.h"

namespace neuron::aten {
namespace {

namespace vector = engine::vector;
using Sizes = c10::SmallVector<int64_t, 8>;

vector::Type type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return vector::Type::kFloat32;
    case at::kBFloat16:
      return vector::Type::kBFloat16;
    case at::kHalf:
      return vector::Type::kFloat16;
    case at::kBool:
      return vector::Type::kBool;
    case at::kInt:
      return vector::Type::kInt32;
    case at::kLong:
      return vector::Type::kInt64;
    default:
      TORCH_CHECK_VALUE(false, "vector programs have no type ", dtype);
  }
}

bool is_function(const vector::Node& n) {
  using vector::Unary;
  if (n.kind != vector::Node::Kind::kUnary) return false;
  for (const Unary u : {Unary::sqrt, Unary::rsqrt, Unary::reciprocal, Unary::exp, Unary::log, Unary::tanh,
                        Unary::sigmoid, Unary::erf}) {
    if (n.op == static_cast<uint8_t>(u)) return true;
  }
  return false;
}

}  // namespace

// Sizes in loop order, and each input's strides (elements) over them.
struct VectorKernel::Geometry {
  Sizes natural;  // sizes in the order of the tensors' dimensions
  Sizes sizes;
  std::vector<Sizes> strides;
};

VectorKernel::VectorKernel(std::string name, std::vector<Input> inputs, std::vector<Output> outputs,
                           std::vector<vector::Node> nodes, std::vector<int64_t> order, int64_t inner)
    : name_(intern(name)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      order_(std::move(order)),
      inner_(inner) {
  TORCH_CHECK_VALUE(!inputs_.empty(), "a vector program needs an input");
  TORCH_CHECK_VALUE(inner_ >= 0 && inner_ <= static_cast<int64_t>(order_.size()), "rows of ", inner_,
                    " dimensions in a space of ", order_.size());
  std::vector<vector::Operand> operands;
  for (const Input& in : inputs_) operands.push_back({type_of(in.dtype), in.row});
  for (const Output& out : outputs_) {
    TORCH_CHECK_VALUE(out.in_place < static_cast<int64_t>(inputs_.size()), "output in the place of input ",
                      out.in_place, " of ", inputs_.size());
    // Sums over rows are made in float32.
    const auto type = out.extent == Extent::kColumn ? vector::Type::kFloat32 : type_of(out.dtype);
    operands.push_back({type, out.extent == Extent::kRow});
    fixed_inner_ = fixed_inner_ || out.extent != Extent::kFull;
  }
  using Kind = vector::Node::Kind;
  for (const vector::Node& n : nodes) {
    fixed_inner_ = fixed_inner_ || n.kind == Kind::kReduce || n.kind == Kind::kColumn;
    const bool computes = n.kind == Kind::kUnary || n.kind == Kind::kBinary || n.kind == Kind::kSelect ||
                          n.kind == Kind::kReduce || n.kind == Kind::kColumn;
    (is_function(n) ? scalar_passes_ : vector_passes_) += computes ? 1 : 0;
  }
  try {
    program_ = std::make_unique<vector::Program>(std::move(operands), nodes, vector::machine());
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

VectorKernel::Geometry VectorKernel::geometry(const std::vector<at::Tensor>& inputs) const {
  Geometry g;
  const size_t dims = order_.size();
  g.natural.assign(dims, 1);
  for (const at::Tensor& t : inputs) {
    const size_t missing = dims - static_cast<size_t>(t.dim());
    TORCH_CHECK_VALUE(static_cast<size_t>(t.dim()) <= dims, name_, ": input of ", t.dim(), " dimensions in a space of ",
                      dims);
    for (size_t d = 0; d < static_cast<size_t>(t.dim()); ++d) {
      int64_t& size = g.natural[d + missing];
      const int64_t mine = t.sizes()[d];
      if (size == 1) size = mine;
      TORCH_CHECK_VALUE(mine == 1 || mine == size, name_, ": sizes ", mine, " and ", size, " in dimension ",
                        d + missing);
    }
  }
  for (const int64_t d : order_) g.sizes.push_back(g.natural[d]);
  for (const at::Tensor& t : inputs) {
    Sizes strides;
    const int64_t missing = static_cast<int64_t>(dims) - t.dim();
    for (const int64_t d : order_) {
      strides.push_back(d < missing || t.sizes()[d - missing] == 1 ? 0 : t.strides()[d - missing]);
    }
    g.strides.push_back(std::move(strides));
  }
  return g;
}

namespace {

// Elements in the last `inner` dimensions, if an operand with these strides is dense (full) or constant (row) there.
bool packed(const Sizes& sizes, const Sizes& strides, int64_t inner, bool row) {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > sizes.size() - static_cast<size_t>(inner);) {
    if (sizes[d] != 1 && strides[d] != (row ? 0 : expected)) return false;
    expected *= sizes[d];
  }
  return true;
}

Sizes dense_strides(const Sizes& natural, const std::vector<int64_t>& order) {
  Sizes strides(natural.size(), 1);
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next *= std::max<int64_t>(natural[order[i]], 1);
  }
  return strides;
}

}  // namespace

std::vector<at::Tensor> VectorKernel::run(const std::vector<at::Tensor>& given) const {
  TORCH_CHECK_VALUE(given.size() == inputs_.size(), name_, ": ", given.size(), " inputs, not ", inputs_.size());
  const at::Device device = given[0].device();
  for (size_t i = 0; i < given.size(); ++i) {
    TORCH_CHECK_VALUE(ready(given[i]) && given[i].device() == device && given[i].scalar_type() == inputs_[i].dtype,
                      name_, ": input ", i, " is ", given[i].scalar_type(), " on ", given[i].device(), ", not ",
                      inputs_[i].dtype, " on ", device);
  }
  CoreGuard core(device.index());
  std::vector<at::Tensor> inputs = given;
  Geometry g = geometry(inputs);
  const auto dims = static_cast<int64_t>(g.sizes.size());

  // How many dimensions make a row: those that are reduced, or as many as are dense in all operands.
  int64_t inner = inner_;
  const auto fits = [&](int64_t k) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!packed(g.sizes, g.strides[i], k, inputs_[i].row)) return false;
    }
    return true;
  };
  if (!fixed_inner_) {
    while (inner > 1 && !fits(inner)) --inner;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (packed(g.sizes, g.strides[i], inner, inputs_[i].row)) continue;
    at::Tensor dense = empty_strided_on(device, g.natural, dense_strides(g.natural, order_), inputs[i].scalar_type());
    at::_ops::copy_::call(dense, inputs[i], false);
    inputs[i] = dense;
    for (int64_t d = 0; d < dims; ++d) g.strides[i][d] = g.sizes[d] == 1 ? 0 : dense.strides()[order_[d]];
  }

  Launch launch(name_, inputs[0], scalar_passes_ > vector_passes_ ? device::Kind::kScalar : device::Kind::kVector);
  vector::Space space;
  space.row = 1;
  for (int64_t d = dims - inner; d < dims; ++d) space.row *= g.sizes[d];
  std::vector<char*> data;
  std::vector<Sizes> strides = g.strides;
  std::vector<int64_t> bytes;
  for (const at::Tensor& t : inputs) {
    data.push_back(static_cast<char*>(const_cast<void*>(t.const_data_ptr())));
    bytes.push_back(static_cast<int64_t>(t.element_size()));
    launch.reads(t);
  }
  std::vector<at::Tensor> results;
  uint64_t written = 0;
  for (const Output& out : outputs_) {
    at::Tensor t;
    Sizes over(static_cast<size_t>(dims), 0);
    if (out.in_place >= 0) {
      t = inputs[out.in_place];
      over = g.strides[out.in_place];
    } else if (out.extent == Extent::kFull) {
      const Sizes dense = dense_strides(g.natural, order_);
      t = empty_strided_on(device, g.natural, dense, out.dtype);
      for (int64_t d = 0; d < dims; ++d) over[d] = dense[order_[d]];
    } else if (out.extent == Extent::kRow) {
      Sizes sizes(g.sizes.begin(), g.sizes.end() - inner);
      int64_t next = 1;
      for (int64_t d = dims - inner; d-- > 0;) {
        over[d] = next;
        next *= std::max<int64_t>(g.sizes[d], 1);
      }
      if (out.keeps_dims) sizes.append(static_cast<size_t>(inner), 1);
      t = empty_on(device, sizes, out.dtype);
    } else {
      t = empty_on(device, Sizes(g.sizes.end() - inner, g.sizes.end()), at::kFloat);
    }
    data.push_back(static_cast<char*>(t.mutable_data_ptr()));
    bytes.push_back(static_cast<int64_t>(t.element_size()));
    strides.push_back(over);
    written += touched_bytes(t);
    results.push_back(std::move(t));
  }
  // Outer dimensions that follow one another in every operand are one.
  space.strides.resize(data.size());
  for (int64_t d = 0; d < dims - inner; ++d) {
    if (g.sizes[d] == 1) continue;
    bool joins = !space.outer.empty();
    for (size_t o = 0; o < data.size() && joins; ++o) {
      joins = space.strides[o].back() == strides[o][d] * bytes[o] * g.sizes[d];
    }
    if (joins) {
      space.outer.back() *= g.sizes[d];
    } else {
      space.outer.push_back(g.sizes[d]);
    }
    for (size_t o = 0; o < data.size(); ++o) {
      if (joins) {
        space.strides[o].back() = strides[o][d] * bytes[o];
      } else {
        space.strides[o].push_back(strides[o][d] * bytes[o]);
      }
    }
  }
  program_->run(space, data.data(), engine::host_threads());

  int64_t elements = 1;
  for (const int64_t size : g.sizes) elements *= size;
  launch.finish(static_cast<uint64_t>(elements), std::max<uint32_t>(1, std::max(vector_passes_, scalar_passes_)),
                written);
  std::vector<at::Tensor> fresh;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const int64_t place = outputs_[i].in_place;
    if (results[i].scalar_type() != outputs_[i].dtype) {
      at::Tensor rounded = empty_on(device, results[i].sizes(), outputs_[i].dtype);
      at::_ops::copy_::call(rounded, results[i], false);
      fresh.push_back(std::move(rounded));
    } else if (place < 0) {
      fresh.push_back(std::move(results[i]));
    } else if (!inputs[place].is_same(given[place])) {
      at::Tensor target = given[place];
      at::_ops::copy_::call(target, inputs[place], false);
    }
  }
  return fresh;
}

}  // namespace neuron::aten
