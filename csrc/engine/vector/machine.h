// What the handlers of a vector program and the code that builds and runs it agree on.
//
// A program is a chain of handlers. Eight vector registers, the accumulator, hold one chunk of a value and travel from
// handler to handler as arguments: each works on them and jumps to the next, so a chunk goes through a whole chain
// without a store. The second operand of an operation comes from memory, from a slot (a chunk kept in the scratch of
// the thread) or from the instruction itself.
#pragma once
#include <cstdint>

#include "engine/vector/ops.h"

namespace neuron::engine::vector {

#define NEURON_VECTOR_NAME(name) name,
enum class Unary : uint8_t { NEURON_VECTOR_UNARY(NEURON_VECTOR_NAME) count };
enum class Binary : uint8_t { NEURON_VECTOR_BINARY(NEURON_VECTOR_NAME) count };
enum class Reduce : uint8_t { NEURON_VECTOR_REDUCE(NEURON_VECTOR_NAME) count };
#undef NEURON_VECTOR_NAME

// Types in memory.
enum class Type : uint8_t { kFloat32, kBFloat16, kFloat16, kBool, kInt32, kInt64, count };
constexpr int kTypes = static_cast<int>(Type::count);
constexpr int kTypeBytes[kTypes] = {4, 2, 2, 1, 4, 8};

// Where the second operand of a binary operation is.
enum class From : uint8_t { kFloat32, kBFloat16, kSlot, kImmediate, count };
constexpr int kFroms = static_cast<int>(From::count);

using Handler = void (*)();  // of the signature that the instruction set's file knows

struct Instruction {
  Handler handler;
  int32_t index;  // of an operand, a slot (in floats from the start of the scratch) or a reduction
  int32_t other;  // a second slot
  float immediate;
};

constexpr int kMaxReductions = 8;  // at one time, in one pass over a row
constexpr int kMaxLanes = 16;

struct Context {
  int64_t offset;      // of this chunk in the row, in elements
  int64_t left;        // elements of the row from `offset` on
  char* const* bases;  // operand -> its first element of this row
  float* scratch;
  alignas(64) float reductions[kMaxReductions][kMaxLanes];
  alignas(64) float passing[8 * kMaxLanes];  // a chunk on its way through a handler that works in memory
};

// The handlers for one instruction set.
struct Machine {
  const char* name;
  int lanes;  // floats in a register
  int chunk;  // floats in the accumulator: eight registers
  void (*run)(const Instruction*, Context*);
  Handler unary[static_cast<int>(Unary::count)];
  Handler binary[static_cast<int>(Binary::count)][kFroms];
  // The same for values that are equal in all places, in one register only.
  Handler row_unary[static_cast<int>(Unary::count)];
  Handler row_binary[static_cast<int>(Binary::count)][kFroms];  // slot and immediate only
  Handler row_select;
  Handler load[kTypes];                            // accumulator = operand[offset ...]
  Handler load_one[kTypes];                        // first register = operand[0] everywhere
  Handler store[kTypes];                           // operand[offset ...] = accumulator; null for integers
  Handler store_one[kTypes];                       // operand[0] = accumulator's first element
  Handler keep;                                    // slot = accumulator
  Handler keep_row;                                // slot = first register everywhere
  Handler select;                                  // accumulator = accumulator != 0 ? slot : other slot
  Handler column;                                  // operand[offset ...] (float32) += accumulator
  Handler reset[static_cast<int>(Reduce::count)];  // before the first chunk of a row
  Handler total[static_cast<int>(Reduce::count)];  // first register = the reduction of the row
  Handler reduce[static_cast<int>(Reduce::count)];
  Handler reduce_tail[static_cast<int>(Reduce::count)];  // the first `left` elements only
  Handler end;
};

// The best that this processor can run; TORCH_NEURONX_VECTOR_ISA names another (portable, avx2, avx512) for tests.
const Machine& machine();
const Machine* find_machine(const char* name);  // nullptr: not in this build, or this processor lacks it

}  // namespace neuron::engine::vector
