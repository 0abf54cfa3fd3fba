#include "engine/vector/program.h"

#include <algorithm>
#include <cstring>

#include "engine/pool.h"

namespace neuron::engine::vector {
namespace {

constexpr int64_t kGrain = 16384;    // elements worth another thread
constexpr int64_t kColumnParts = 8;  // sums over rows are made of at most so many parts, however many threads there are

// Memory of a thread that programs use in turn.
float* thread_scratch(size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats + 16) memory.resize(floats + 16);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<float*>((address + 63) / 64 * 64);
}

}  // namespace

// The memory of one thread for one program.
struct Program::Row {
  Row(const Program& p, int64_t row) {
    const size_t chunk = static_cast<size_t>(p.machine_.chunk);
    const size_t padded = (static_cast<size_t>(row) + chunk - 1) / chunk * chunk;
    const size_t tails = p.operands_.size() * chunk * 2;  // 8 bytes an element
    const size_t slots = static_cast<size_t>(p.slots_) * chunk;
    float* memory = thread_scratch(slots + tails + static_cast<size_t>(p.buffers_) * padded);
    context.scratch = memory;
    tail = reinterpret_cast<char*>(memory + slots);
    saved.resize(p.operands_.size());
    bases.resize(p.operands_.size() + static_cast<size_t>(p.buffers_));
    for (int i = 0; i < p.buffers_; ++i) {
      bases[p.operands_.size() + static_cast<size_t>(i)] =
          reinterpret_cast<char*>(memory + slots + tails + static_cast<size_t>(i) * padded);
    }
    for (const auto& [slot, value] : p.constants_) std::fill_n(memory + slot, chunk, value);
    for (const auto& [slot, inverse] : p.counts_) {
      std::fill_n(memory + slot, chunk, inverse ? 1.0f / static_cast<float>(row) : static_cast<float>(row));
    }
  }
  Context context;
  std::vector<char*> bases, saved;
  char* tail;
};

// [begin, end) of a row.
void Program::run_pass(const Pass& pass, Row& row, int64_t begin, int64_t end) const {
  Context& c = row.context;
  const int64_t chunk = machine_.chunk;
  c.bases = row.bases.data();
  int64_t at = begin;
  for (; at + chunk <= end; at += chunk) {
    c.offset = at;
    machine_.run(pass.chunk.data(), &c);
  }
  if (at == end) return;
  // What is left of the row goes through buffers of a whole chunk.
  c.offset = at;
  c.left = end - at;
  const auto swap = [&](int operand, bool in) {
    const int64_t bytes = kTypeBytes[static_cast<int>(operands_[operand].type)];
    char* buffer = row.tail + static_cast<int64_t>(operand) * chunk * 8;
    char* there = row.bases[operand] + at * bytes;
    if (in) std::memcpy(buffer, there, static_cast<size_t>(c.left * bytes));
    row.saved[operand] = row.bases[operand];
    row.bases[operand] = buffer - at * bytes;
  };
  for (const int operand : pass.reads) swap(operand, true);
  for (const int operand : pass.writes) swap(operand, false);
  machine_.run(pass.tail.data(), &c);
  for (const int operand : pass.writes) {
    const int64_t bytes = kTypeBytes[static_cast<int>(operands_[operand].type)];
    std::memcpy(row.saved[operand] + at * bytes, row.bases[operand] + at * bytes, static_cast<size_t>(c.left * bytes));
  }
  for (const int operand : pass.reads) row.bases[operand] = row.saved[operand];
  for (const int operand : pass.writes) row.bases[operand] = row.saved[operand];
}

void Program::run_rows(const Space& space, char* const* data, int64_t begin, int64_t end, char* const* columns) const {
  Row row(*this, space.row);
  const size_t dims = space.outer.size();
  std::vector<int64_t> index(dims);
  int64_t rest = begin;
  for (size_t d = dims; d-- > 0;) {
    index[d] = rest % space.outer[d];
    rest /= space.outer[d];
  }
  for (size_t o = 0; o < operands_.size(); ++o) {
    row.bases[o] = data[o];
    for (size_t d = 0; d < dims; ++d) row.bases[o] += index[d] * space.strides[o][d];
  }
  for (size_t k = 0; k < column_operands_.size(); ++k) row.bases[column_operands_[k]] = columns[k];
  for (int64_t r = begin; r < end; ++r) {
    run_row(row, 0, space.row);
    if (r + 1 == end) break;
    for (size_t d = dims; d-- > 0;) {
      const bool carry = ++index[d] == space.outer[d];
      for (size_t o = 0; o < operands_.size(); ++o) {
        row.bases[o] += carry ? (1 - space.outer[d]) * space.strides[o][d] : space.strides[o][d];
      }
      if (!carry) break;
      index[d] = 0;
    }
  }
}

void Program::run_row(Row& row, int64_t begin, int64_t end) const {
  for (const Pass& pass : passes_) {
    row.context.bases = row.bases.data();
    row.context.offset = 0;
    if (!pass.once.empty()) machine_.run(pass.once.data(), &row.context);
    if (!pass.chunk.empty()) run_pass(pass, row, begin, end);
  }
}

void Program::run(const Space& space, char* const* data, int threads) const {
  int64_t rows = 1;
  for (const int64_t n : space.outer) rows *= n;
  if (column_operands_.empty()) {
    if (rows == 1 && !reduces()) {
      parallel(space.row, kGrain, threads, [&](int64_t begin, int64_t end) {
        Row row(*this, 0);
        std::copy(data, data + operands_.size(), row.bases.begin());
        run_row(row, begin, end);
      });
      return;
    }
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(space.row, 1));
    parallel(rows, grain, threads, [&](int64_t begin, int64_t end) { run_rows(space, data, begin, end, nullptr); });
    return;
  }
  // Every part adds up its own rows; the parts are added in order.
  const int64_t least = std::max<int64_t>(1, kGrain / std::max<int64_t>(space.row, 1));
  const int64_t parts = std::clamp<int64_t>(rows / least, 1, kColumnParts);
  const int64_t grain = std::max<int64_t>(1, (rows + parts - 1) / parts);
  const int64_t padded = (space.row + machine_.chunk - 1) / machine_.chunk * machine_.chunk;
  const int64_t width = padded * static_cast<int64_t>(column_operands_.size());
  std::vector<float> sums(static_cast<size_t>(width * parts), 0.0f);
  parallel(rows, grain, threads, [&](int64_t begin, int64_t end) {
    // Without threads `parallel` calls once for all rows.
    for (int64_t part = begin / grain; part * grain < end; ++part) {
      std::vector<char*> columns;
      for (size_t k = 0; k < column_operands_.size(); ++k) {
        columns.push_back(reinterpret_cast<char*>(sums.data() + part * width + static_cast<int64_t>(k) * padded));
      }
      run_rows(space, data, part * grain, std::min(end, (part + 1) * grain), columns.data());
    }
  });
  for (size_t k = 0; k < column_operands_.size(); ++k) {
    auto* out = reinterpret_cast<float*>(data[column_operands_[k]]);
    for (int64_t i = 0; i < space.row; ++i) {
      float sum = 0.0f;
      for (int64_t part = 0; part < parts; ++part) sum += sums[part * width + static_cast<int64_t>(k) * padded + i];
      out[i] = sum;
    }
  }
}

}  // namespace neuron::engine::vector
