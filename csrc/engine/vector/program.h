// A vector program: pointwise operations, reductions over rows and sums over columns, fused into a few passes over
// memory. It is given as values in order of definition and run on an iteration space of rows; a value has one element
// for each place of a row ("full"), or one for the whole row (inputs declared so, and results of reductions).
//
// Full values travel through the accumulator and slots of the thread. A reduction ends a pass over its row; what a
// later pass needs again is kept in a buffer of the thread as long as a row. All arithmetic is in float32.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/vector/machine.h"

namespace neuron::engine::vector {

struct Operand {
  Type type;
  bool row;  // one element for each row
};

struct Node {
  enum class Kind : uint8_t {
    kInput,     // operand a
    kConstant,  // immediate
    kCount,     // number of elements in a row; one over it if `immediate` is negative
    kUnary,     // op(a)
    kBinary,    // op(a, b)
    kSelect,    // a != 0 ? b : c
    kReduce,    // op over the row of a
    kStore,     // a to operand b
    kColumn,    // sum of a over all rows to operand b: float32, as long as a row
  };
  Kind kind;
  uint8_t op;
  int32_t a, b, c;
  float immediate;
};

// Where the rows of a call are: sizes of the outer dimensions, and for each operand the byte strides over them.
struct Space {
  int64_t row;  // elements
  std::vector<int64_t> outer;
  std::vector<std::vector<int64_t>> strides;
};

class Program {
 public:
  // Throws std::invalid_argument for nodes that do not make a program, naming the node.
  Program(std::vector<Operand> operands, const std::vector<Node>& nodes, const Machine& machine);

  // data: the first element of each operand. Outputs may be the memory of an input that has the same place in every
  // row, if no reduction lies between reading and writing it. Up to `threads` threads; results do not depend on how
  // many.
  void run(const Space& space, char* const* data, int threads) const;

  bool reduces() const { return passes_.size() > 1 || columns_ > 0; }

 private:
  friend class Builder;
  struct Pass {
    std::vector<Instruction> once;         // values of the row, from the reductions of the pass before
    std::vector<Instruction> chunk, tail;  // full values
    std::vector<int> reads, writes;        // operands of full values
  };
  struct Row;
  void run_rows(const Space& space, char* const* data, int64_t begin, int64_t end, char* const* columns) const;
  void run_row(Row& row, int64_t begin, int64_t end) const;
  void run_pass(const Pass& pass, Row& row, int64_t begin, int64_t end) const;

  const Machine& machine_;
  std::vector<Operand> operands_;
  std::vector<Pass> passes_;
  std::vector<std::pair<int, float>> constants_;  // slots that are filled once
  std::vector<std::pair<int, bool>> counts_;      // slots that hold the length of a row, or one over it
  std::vector<int> column_operands_;
  int slots_ = 0;    // chunks of scratch
  int buffers_ = 0;  // rows kept from pass to pass
  int columns_ = 0;
};

}  // namespace neuron::engine::vector
