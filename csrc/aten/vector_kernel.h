// A fused vector program on neuron tensors: what a compiled graph calls in place of a group of operators.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/vector/program.h"

namespace neuron::aten {

class VectorKernel {
 public:
  enum class Extent : uint8_t { kFull, kRow, kColumn };
  struct Input {
    at::ScalarType dtype;
    bool row;  // of size 1 in the inner dimensions
  };
  struct Output {
    at::ScalarType dtype;
    Extent extent;
    int64_t in_place;  // the input whose memory it goes to, or -1
    bool keeps_dims;   // a row result keeps its inner dimensions, as 1
  };

  // The iteration space is the broadcast of all inputs. `order`: its dimensions from the slowest to the fastest in the
  // memory of the outputs. `inner`: how many of these at the end make a row (of a pointwise program: at most). Operands
  // of `nodes` are the inputs and then the outputs. Throws c10::ValueError for what is no program.
  VectorKernel(std::string name, std::vector<Input> inputs, std::vector<Output> outputs,
               std::vector<engine::vector::Node> nodes, std::vector<int64_t> order, int64_t inner);

  // New tensors for the outputs that are not in place, in order. Inputs of another dtype or device are errors.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Geometry;
  Geometry geometry(const std::vector<at::Tensor>& inputs) const;

  const char* name_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<int64_t> order_;
  int64_t inner_;
  bool fixed_inner_ = false;  // the rows are those that are reduced
  uint32_t vector_passes_ = 0, scalar_passes_ = 0;
  std::unique_ptr<engine::vector::Program> program_;
};

}  // namespace neuron::aten
