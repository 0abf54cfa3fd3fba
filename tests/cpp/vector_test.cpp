// Vector programs without PyTorch: random ones on every instruction set that this processor has, against plain loops.
// Operands are allocated to the byte, so that the address sanitizer sees a tail that reads or writes too far; several
// threads run one program, so that the thread sanitizer sees what they share. Exit status 0 is success.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/vector/program.h"

namespace {

using namespace neuron::engine::vector;
using Kind = Node::Kind;

void check(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "vector_test: %s\n", what.c_str());
  std::exit(1);
}

// Operations whose float32 result IEEE arithmetic fixes, and what they are.
struct OneOperand {
  Unary op;
  float (*reference)(float);
};
struct TwoOperands {
  Binary op;
  float (*reference)(float, float);
};
const OneOperand kUnary[] = {
    {Unary::neg, [](float a) { return -a; }},
    {Unary::abs, [](float a) { return std::fabs(a); }},
    {Unary::square, [](float a) { return a * a; }},
    {Unary::floor, [](float a) { return std::floor(a); }},
    {Unary::ceil, [](float a) { return std::ceil(a); }},
    {Unary::trunc, [](float a) { return std::trunc(a); }},
    {Unary::round, [](float a) { return std::nearbyint(a); }},
    {Unary::relu, [](float a) { return a > 0 ? a : 0.0f; }},
    {Unary::is_zero, [](float a) { return a == 0 ? 1.0f : 0.0f; }},
    {Unary::not_zero, [](float a) { return a != 0 ? 1.0f : 0.0f; }},
};
const TwoOperands kBinary[] = {
    {Binary::add, [](float a, float b) { return a + b; }},
    {Binary::sub, [](float a, float b) { return a - b; }},
    {Binary::rsub, [](float a, float b) { return b - a; }},
    {Binary::mul, [](float a, float b) { return a * b; }},
    {Binary::maximum, [](float a, float b) { return std::max(a, b); }},
    {Binary::minimum, [](float a, float b) { return std::min(a, b); }},
    {Binary::eq, [](float a, float b) { return a == b ? 1.0f : 0.0f; }},
    {Binary::lt, [](float a, float b) { return a < b ? 1.0f : 0.0f; }},
    {Binary::ge, [](float a, float b) { return a >= b ? 1.0f : 0.0f; }},
};

// Small multiples of 1/4: sums, squares and products of a few of them are exact in float32, in any order.
float quarter(std::mt19937& random) { return static_cast<float>(static_cast<int>(random() % 33) - 16) * 0.25f; }

// Every value of the program for every element; rows have one value where a node is of the row.
struct Case {
  std::vector<Operand> operands;
  std::vector<Node> nodes;
  int inputs = 0, outputs = 0;
};

Node node(Kind kind, uint8_t op, int a, int b = 0, int c = 0, float immediate = 0) {
  return Node{kind, op, a, b, c, immediate};
}

// A pointwise program of float32 inputs, all full, with one output for the last value and one on the way. Values stay
// small: each result is clamped to [-4, 4] before it is used again.
Case random_case(std::mt19937& random) {
  Case c;
  c.inputs = 1 + static_cast<int>(random() % 3);
  std::vector<int> values;
  for (int i = 0; i < c.inputs; ++i) {
    c.operands.push_back({Type::kFloat32, false});
    values.push_back(static_cast<int>(c.nodes.size()));
    c.nodes.push_back(node(Kind::kInput, 0, i));
  }
  const auto keep = [&](Node n) {
    c.nodes.push_back(n);
    return static_cast<int>(c.nodes.size()) - 1;
  };
  const int limit = keep(node(Kind::kConstant, 0, 0, 0, 0, 4.0f)),
            floor = keep(node(Kind::kConstant, 0, 0, 0, 0, -4.0f));
  const auto clamped = [&](int value) {
    const int below = keep(node(Kind::kBinary, static_cast<uint8_t>(Binary::minimum), value, limit));
    return keep(node(Kind::kBinary, static_cast<uint8_t>(Binary::maximum), below, floor));
  };
  const int length = 1 + static_cast<int>(random() % 12);
  for (int i = 0; i < length; ++i) {
    const auto any = [&] { return values[random() % values.size()]; };
    int made;
    switch (random() % 5) {
      case 0:
        made = keep(node(Kind::kUnary, static_cast<uint8_t>(kUnary[random() % std::size(kUnary)].op), any()));
        break;
      case 1: {
        const int condition = any(), yes = any();
        made = keep(node(Kind::kSelect, 0, condition, yes, any()));
        break;
      }
      default: {
        const int left = any();
        made = keep(node(Kind::kBinary, static_cast<uint8_t>(kBinary[random() % std::size(kBinary)].op), left, any()));
      }
    }
    values.push_back(clamped(made));
  }
  for (const int value : {values.back(), values[values.size() / 2]}) {
    c.operands.push_back({Type::kFloat32, false});
    c.nodes.push_back(node(Kind::kStore, 0, value, c.inputs + c.outputs++));
  }
  return c;
}

std::vector<float> reference(const Case& c, const std::vector<std::unique_ptr<float[]>>& data, int64_t element) {
  std::vector<float> value(c.nodes.size()), out(c.outputs);
  for (size_t i = 0; i < c.nodes.size(); ++i) {
    const Node& n = c.nodes[i];
    switch (n.kind) {
      case Kind::kInput:
        value[i] = data[n.a][element];
        break;
      case Kind::kConstant:
        value[i] = n.immediate;
        break;
      case Kind::kUnary:
        for (const auto& one : kUnary) {
          if (static_cast<uint8_t>(one.op) == n.op) value[i] = one.reference(value[n.a]);
        }
        break;
      case Kind::kBinary:
        for (const auto& two : kBinary) {
          if (static_cast<uint8_t>(two.op) == n.op) value[i] = two.reference(value[n.a], value[n.b]);
        }
        break;
      case Kind::kSelect:
        value[i] = value[n.a] != 0 ? value[n.b] : value[n.c];
        break;
      default:
        out[n.b - c.inputs] = value[n.a];
    }
  }
  return out;
}

std::vector<const Machine*> machines() {
  std::vector<const Machine*> found;
  for (const char* name : {"portable", "avx2", "avx512"}) {
    if (const Machine* m = find_machine(name)) found.push_back(m);
  }
  return found;
}

constexpr int64_t kLengths[] = {1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129, 1000};

void random_programs_equal_plain_loops(const Machine& machine) {
  std::mt19937 random(20261);
  for (int round = 0; round < 60; ++round) {
    const Case c = random_case(random);
    const Program program(c.operands, c.nodes, machine);
    const int64_t row = kLengths[random() % std::size(kLengths)], rows = 1 + static_cast<int64_t>(random() % 5);
    std::vector<std::unique_ptr<float[]>> data;
    std::vector<char*> bases;
    Space space{row, {rows}, {}};
    for (size_t i = 0; i < c.operands.size(); ++i) {
      data.push_back(std::make_unique<float[]>(static_cast<size_t>(row * rows)));
      for (int64_t e = 0; e < row * rows; ++e) data.back()[e] = quarter(random);
      bases.push_back(reinterpret_cast<char*>(data.back().get()));
      space.strides.push_back({row * static_cast<int64_t>(sizeof(float))});
    }
    program.run(space, bases.data(), 1 + static_cast<int>(random() % 3));
    for (int64_t e = 0; e < row * rows; ++e) {
      const std::vector<float> expected = reference(c, data, e);
      for (int o = 0; o < c.outputs; ++o) {
        check(data[c.inputs + o][e] == expected[o],
              std::string(machine.name) + ": program " + std::to_string(round) + ", output " + std::to_string(o) +
                  ", element " + std::to_string(e) + " of rows of " + std::to_string(row) + ": " +
                  std::to_string(data[c.inputs + o][e]) + " instead of " + std::to_string(expected[o]));
      }
    }
  }
}

// y = x - sum(x), z = max(x): a value of the row that the next pass uses, and one that is a result of its own.
void rows_are_reduced(const Machine& machine) {
  const std::vector<Operand> operands = {{Type::kFloat32, false}, {Type::kFloat32, false}, {Type::kFloat32, true}};
  const std::vector<Node> nodes = {
      node(Kind::kInput, 0, 0),
      node(Kind::kReduce, static_cast<uint8_t>(Reduce::sum), 0),
      node(Kind::kBinary, static_cast<uint8_t>(Binary::sub), 0, 1),
      node(Kind::kStore, 0, 2, 1),
      node(Kind::kReduce, static_cast<uint8_t>(Reduce::largest), 0),
      node(Kind::kStore, 0, 4, 2),
  };
  const Program program(operands, nodes, machine);
  std::mt19937 random(7);
  for (const int64_t row : kLengths) {
    constexpr int64_t kRows = 3;
    const auto x = std::make_unique<float[]>(row * kRows), y = std::make_unique<float[]>(row * kRows);
    const auto z = std::make_unique<float[]>(kRows);
    for (int64_t e = 0; e < row * kRows; ++e) x[e] = quarter(random);
    char* bases[] = {reinterpret_cast<char*>(x.get()), reinterpret_cast<char*>(y.get()),
                     reinterpret_cast<char*>(z.get())};
    const int64_t bytes = row * static_cast<int64_t>(sizeof(float));
    program.run(Space{row, {kRows}, {{bytes}, {bytes}, {sizeof(float)}}}, bases, 2);
    for (int64_t r = 0; r < kRows; ++r) {
      float sum = 0, largest = -INFINITY;
      for (int64_t i = 0; i < row; ++i) {
        sum += x[r * row + i];
        largest = std::max(largest, x[r * row + i]);
      }
      check(z[r] == largest, std::string(machine.name) + ": the largest of a row of " + std::to_string(row));
      for (int64_t i = 0; i < row; ++i) {
        check(y[r * row + i] == x[r * row + i] - sum,
              std::string(machine.name) + ": a row of " + std::to_string(row) + " less its sum");
      }
    }
  }
}

// Types in memory: each is read into float32 and, where it can be, written back without a change.
void types_are_read_and_written(const Machine& machine) {
  for (int t = 0; t < kTypes; ++t) {
    const auto type = static_cast<Type>(t);
    const size_t width = kTypeBytes[t];
    const bool integer = type == Type::kInt32 || type == Type::kInt64;
    const std::vector<Operand> operands = {{type, false}, {integer ? Type::kFloat32 : type, false}};
    const Program program(operands, {node(Kind::kInput, 0, 0), node(Kind::kStore, 0, 0, 1)}, machine);
    for (const int64_t row : kLengths) {
      std::vector<char> in(row * width), out(row * (integer ? sizeof(float) : width));
      for (int64_t i = 0; i < row; ++i) {
        const int64_t number = type == Type::kBool ? i % 2 : i % 100;
        const float one = static_cast<float>(i % 100);
        const uint16_t half = static_cast<uint16_t>(0x3C00 + i);
        if (integer || type == Type::kBool) std::memcpy(&in[i * width], &number, width);  // little-endian
        if (type == Type::kFloat32) std::memcpy(&in[i * width], &one, width);
        if (width == 2) std::memcpy(&in[i * width], &half, width);
      }
      char* bases[] = {in.data(), out.data()};
      program.run(Space{row, {1}, {{0}, {0}}}, bases, 1);
      for (int64_t i = 0; i < row && integer; ++i) {
        float value;
        std::memcpy(&value, &out[i * sizeof value], sizeof value);
        check(value == static_cast<float>(i % 100), std::string(machine.name) + ": an integer was not read");
      }
      check(integer || in == out, std::string(machine.name) + ": type " + std::to_string(t) +
                                      " does not come back, rows of " + std::to_string(row));
    }
  }
}

// One program, called by several threads at once, each with its own data.
void threads_share_a_program(const Machine& machine) {
  const std::vector<Operand> operands = {{Type::kFloat32, false}, {Type::kFloat32, false}};
  const std::vector<Node> nodes = {
      node(Kind::kInput, 0, 0),
      node(Kind::kReduce, static_cast<uint8_t>(Reduce::sum), 0),
      node(Kind::kBinary, static_cast<uint8_t>(Binary::sub), 0, 1),
      node(Kind::kStore, 0, 2, 1),
  };
  const Program program(operands, nodes, machine);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      constexpr int64_t kRow = 129, kRows = 40;
      std::vector<float> x(kRow * kRows, static_cast<float>(t)), y(kRow * kRows);
      char* bases[] = {reinterpret_cast<char*>(x.data()), reinterpret_cast<char*>(y.data())};
      constexpr int64_t kBytes = kRow * sizeof(float);
      for (int i = 0; i < 20; ++i) program.run(Space{kRow, {kRows}, {{kBytes}, {kBytes}}}, bases, 3);
      for (const float value : y) check(value == static_cast<float>(t - t * kRow), "threads mix up their rows");
    });
  }
  for (auto& thread : threads) thread.join();
}

void wrong_programs_are_refused(const Machine& machine) {
  const std::vector<Operand> operands = {{Type::kFloat32, false}, {Type::kFloat32, false}};
  bool refused = false;
  try {
    Program(operands, {node(Kind::kInput, 0, 0), node(Kind::kUnary, 0, 5), node(Kind::kStore, 0, 1, 1)}, machine);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  check(refused, "a node that uses a value which is not there was accepted");
}

}  // namespace

int main() {
  check(!machines().empty(), "no instruction set");
  for (const Machine* machine : machines()) {
    random_programs_equal_plain_loops(*machine);
    rows_are_reduced(*machine);
    types_are_read_and_written(*machine);
    threads_share_a_program(*machine);
    wrong_programs_are_refused(*machine);
  }
  std::printf("vector_test: ok on %zu instruction sets\n", machines().size());
}
