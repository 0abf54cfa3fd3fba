// From the values of a program to instructions.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "engine/vector/program.h"

namespace neuron::engine::vector {

using Kind = Node::Kind;

namespace {

[[noreturn]] void fail(size_t node, const std::string& what) {
  throw std::invalid_argument("vector program: value " + std::to_string(node) + ": " + what);
}

// The operation with its operands exchanged; Binary::count where there is none.
Binary reversed(Binary op) {
  switch (op) {
    case Binary::sub:
      return Binary::rsub;
    case Binary::rsub:
      return Binary::sub;
    case Binary::div:
      return Binary::rdiv;
    case Binary::rdiv:
      return Binary::div;
    case Binary::lt:
      return Binary::gt;
    case Binary::gt:
      return Binary::lt;
    case Binary::le:
      return Binary::ge;
    case Binary::ge:
      return Binary::le;
    case Binary::add:
    case Binary::mul:
    case Binary::maximum:
    case Binary::minimum:
    case Binary::eq:
    case Binary::ne:
      return op;
    default:
      return Binary::count;
  }
}

bool is_sink(const Node& n) { return n.kind == Kind::kStore || n.kind == Kind::kColumn || n.kind == Kind::kReduce; }

int operand_count(const Node& n) {
  switch (n.kind) {
    case Kind::kInput:
    case Kind::kConstant:
    case Kind::kCount:
      return 0;
    case Kind::kBinary:
      return 2;
    case Kind::kSelect:
      return 3;
    default:
      return 1;
  }
}

}  // namespace

class Builder {
 public:
  Builder(Program& program, const std::vector<Node>& nodes) : p_(program), nodes_(nodes), m_(program.machine_) {}

  void build() {
    classify();
    assign();
    for (int level = 0; level <= last_; ++level) {
      p_.passes_.emplace_back();
      emit_once(level);
      emit_loop(level);
      begin(p_.passes_.back().once, level, false);
      for (const auto& [index, op] : resets_) emit(m_.reset[op], index);
      if (!code_->empty()) emit(m_.end);
    }
    p_.slots_ = slots_;
    p_.buffers_ = static_cast<int>(buffer_.size());
    p_.columns_ = static_cast<int>(p_.column_operands_.size());
  }

 private:
  int32_t operand(const Node& n, int i) const { return i == 0 ? n.a : i == 1 ? n.b : n.c; }
  bool constant(int v) const { return nodes_[v].kind == Kind::kConstant; }
  bool input(int v) const { return nodes_[v].kind == Kind::kInput; }

  // Which values are full, and after how many reductions each is known.
  void classify() {
    const size_t count = nodes_.size();
    full_.assign(count, false);
    level_.assign(count, 0);
    for (size_t i = 0; i < count; ++i) {
      const Node& n = nodes_[i];
      for (int k = 0; k < operand_count(n); ++k) {
        const int32_t v = operand(n, k);
        if (v < 0 || static_cast<size_t>(v) >= i) fail(i, "operand " + std::to_string(v) + " is not defined before it");
        if (is_sink(nodes_[v]) && nodes_[v].kind != Kind::kReduce) fail(i, "operand is a store");
        full_[i] = full_[i] || full_[v];
        level_[i] = std::max(level_[i], level_[v]);
      }
      if (n.kind == Kind::kInput || n.kind == Kind::kStore || n.kind == Kind::kColumn) {
        const int32_t o = n.kind == Kind::kInput ? n.a : n.b;
        if (o < 0 || static_cast<size_t>(o) >= p_.operands_.size()) fail(i, "no operand " + std::to_string(o));
        if (n.kind == Kind::kInput) full_[i] = !p_.operands_[o].row;
        if (n.kind == Kind::kStore && p_.operands_[o].row == full_[i]) fail(i, "stores a full value to a row operand");
        if (n.kind == Kind::kStore && m_.store[static_cast<int>(p_.operands_[o].type)] == nullptr) {
          fail(i, "integers cannot be stored");
        }
      }
      if (n.kind == Kind::kReduce || n.kind == Kind::kColumn) {
        if (!full_[i]) fail(i, "reduces a value that has no elements");
      }
      if (n.kind == Kind::kReduce) {
        reduce_level_.emplace(static_cast<int>(i), level_[i]);
        full_[i] = false;
        ++level_[i];
      }
      last_ = std::max(last_, level_[i]);
    }
  }

  // In which loop each full value is computed: the first that needs it. Which values a later loop needs again.
  void assign() {
    home_.assign(nodes_.size(), -1);
    for (int level = 0; level <= last_; ++level) {
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (is_sink(nodes_[i]) && in_loop(static_cast<int>(i)) && sink_level(static_cast<int>(i)) == level) {
          demand(nodes_[i].a, level);
        }
      }
    }
  }
  bool in_loop(int sink) const { return full_[nodes_[sink].a]; }
  int sink_level(int sink) const { return nodes_[sink].kind == Kind::kReduce ? reduce_level_.at(sink) : level_[sink]; }
  void demand(int v, int level) {
    if (!full_[v] || input(v)) return;
    if (home_[v] >= 0) {
      if (home_[v] < level && buffer_.find(v) == buffer_.end()) {
        const int index = static_cast<int>(p_.operands_.size() + buffer_.size());
        buffer_.emplace(v, index);
      }
      return;
    }
    home_[v] = level;
    for (int k = 0; k < operand_count(nodes_[v]); ++k) demand(operand(nodes_[v], k), level);
  }

  // --- emission: one straight piece of code at a time ---
  void begin(std::vector<Instruction>& code, int level, bool loop) {
    code_ = &code;
    loop_ = loop;
    now_ = level;
    accumulator_ = -1;
    slot_.clear();
    free_.clear();
  }
  void emit(Handler handler, int index = 0, float immediate = 0.0f, int other = 0) {
    code_->push_back({handler, index, other, immediate});
  }
  int new_slot() { return slots_++ * m_.chunk; }

  int row_slot(int v) {
    auto [at, made] = row_slot_.emplace(v, 0);
    if (made) at->second = new_slot();
    return at->second;
  }
  int constant_slot(int v) {
    auto [at, made] = constant_slot_.emplace(v, 0);
    if (made) {
      at->second = new_slot();
      p_.constants_.emplace_back(at->second, nodes_[v].immediate);
    }
    return at->second;
  }

  // Where a value can be read as the second operand of an operation, without touching the accumulator.
  struct Place {
    bool known;
    From from;
    int index;
    float immediate;
  };
  Place place(int v) {
    const Node& n = nodes_[v];
    if (n.kind == Kind::kConstant) return {true, From::kImmediate, 0, n.immediate};
    if (!full_[v]) return {true, From::kSlot, row_slot(v), 0.0f};
    if (const auto at = slot_.find(v); at != slot_.end()) return {true, From::kSlot, at->second, 0.0f};
    if (input(v)) {
      const Type type = p_.operands_[n.a].type;
      if (type == Type::kFloat32) return {true, From::kFloat32, n.a, 0.0f};
      if (type == Type::kBFloat16) return {true, From::kBFloat16, n.a, 0.0f};
      return {false, {}, 0, 0.0f};
    }
    if (home_[v] < now_) return {true, From::kFloat32, buffer_.at(v), 0.0f};
    return {false, {}, 0, 0.0f};
  }
  void save() {  // the accumulator's value, if it is needed again and lives nowhere else
    const int v = accumulator_;
    if (v < 0 || uses_[v] <= 0 || place(v).known) return;
    keep(v);
  }
  void keep(int v) {
    int slot;
    if (free_.empty()) {
      slot = new_slot();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slot_[v] = slot;
    emit(m_.keep, slot);
  }
  void bring(int v) {
    if (accumulator_ == v) return;
    save();
    const Place at = place(v);
    if (at.known) {
      emit(binary(Binary::get, at.from), at.index, at.immediate);
    } else {
      emit(m_.load[static_cast<int>(p_.operands_[nodes_[v].a].type)], nodes_[v].a);
    }
    accumulator_ = v;
  }
  void make_known(int v) {
    if (place(v).known) return;
    bring(v);
    keep(v);
  }
  void used(int v) { --uses_[v]; }
  void release(int v) {
    if (uses_[v] > 0) return;
    if (const auto at = slot_.find(v); at != slot_.end()) {
      free_.push_back(at->second);
      slot_.erase(at);
    }
  }
  void finish(const Node& n, int result) {
    for (int k = 0; k < operand_count(n); ++k) release(operand(n, k));
    accumulator_ = result;
  }

  Handler binary(Binary op, From from) const {
    return (loop_ ? m_.binary : m_.row_binary)[static_cast<int>(op)][static_cast<int>(from)];
  }
  void compute(int v) {
    const Node& n = nodes_[v];
    switch (n.kind) {
      case Kind::kUnary:
        bring(n.a);
        used(n.a);
        save();
        emit(loop_ ? m_.unary[n.op] : m_.row_unary[n.op]);
        break;
      case Kind::kBinary: {
        auto op = static_cast<Binary>(n.op);
        int a = n.a, b = n.b;
        if (accumulator_ == b && accumulator_ != a && reversed(op) != Binary::count) {
          op = reversed(op);
          std::swap(a, b);
        }
        make_known(b);
        bring(a);
        used(a);
        used(b);
        save();
        const Place at = place(b);
        emit(binary(op, at.from), at.index, at.immediate);
        break;
      }
      case Kind::kSelect: {
        const int yes = slot_for(n.b), no = slot_for(n.c);
        bring(n.a);
        for (int k = 0; k < 3; ++k) used(operand(n, k));
        save();
        emit(loop_ ? m_.select : m_.row_select, yes, 0.0f, no);
        break;
      }
      default:
        fail(v, "cannot be computed");
    }
    finish(n, v);
  }
  int slot_for(int v) {
    if (constant(v)) return constant_slot(v);
    if (!full_[v]) return row_slot(v);
    if (slot_.find(v) == slot_.end()) {
      bring(v);
      keep(v);
    }
    return slot_.at(v);
  }

  // --- the values of a row ---
  void emit_once(int level) {
    Program::Pass& pass = p_.passes_.back();
    begin(pass.once, level, false);
    uses_.assign(nodes_.size(), 1 << 30);  // all keep their slots
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& n = nodes_[i];
      const int v = static_cast<int>(i);
      if (full_[i] || level_[i] != level || n.kind == Kind::kConstant) continue;
      if (n.kind == Kind::kColumn) continue;
      if (n.kind == Kind::kStore) {
        bring(n.a);
        emit(m_.store_one[static_cast<int>(p_.operands_[n.b].type)], n.b);
      } else if (n.kind == Kind::kReduce) {
        emit(m_.total[n.op], total_.at(v));
        emit(m_.keep_row, row_slot(v));
        accumulator_ = v;
      } else if (n.kind == Kind::kCount) {
        p_.counts_.emplace_back(row_slot(v), n.immediate < 0.0f);
      } else {
        if (n.kind == Kind::kInput) {
          emit(m_.load_one[static_cast<int>(p_.operands_[n.a].type)], n.a);
        } else {
          compute(v);
        }
        emit(m_.keep_row, row_slot(v));
        accumulator_ = v;
      }
    }
  }

  // --- the elements of a row ---
  void emit_loop(int level) {
    Program::Pass& pass = p_.passes_.back();
    begin(pass.chunk, level, true);
    const std::vector<int> order = loop_order(level);
    resets_.clear();
    uses_.assign(nodes_.size(), 0);
    std::set<int> reads, writes;
    for (const int v : order) {
      const Node& n = nodes_[v];
      for (int k = 0; k < operand_count(n); ++k) {
        const int o = operand(n, k);
        ++uses_[o];
        if (input(o) && full_[o]) reads.insert(nodes_[o].a);
      }
      if (n.kind == Kind::kStore) writes.insert(n.b);
    }
    for (const int v : order) {
      if (is_sink(nodes_[v])) {
        emit_sink(v);
      } else {
        compute(v);
        if (const auto at = buffer_.find(v); at != buffer_.end()) {
          emit(m_.store[static_cast<int>(Type::kFloat32)], at->second);
        }
      }
    }
    if (pass.chunk.empty()) return;
    emit(m_.end);
    pass.reads.assign(reads.begin(), reads.end());
    pass.writes.assign(writes.begin(), writes.end());
    pass.tail = pass.chunk;
    for (Instruction& i : pass.tail) {
      for (int r = 0; r < static_cast<int>(Reduce::count); ++r) {
        if (i.handler == m_.reduce[r]) i.handler = m_.reduce_tail[r];
      }
    }
  }
  // Stores and reductions directly after their values; stores over an input after everything that reads it.
  std::vector<int> loop_order(int level) const {
    std::map<int, std::vector<int>> after;
    std::vector<int> order, last;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int v = static_cast<int>(i);
      if (!is_sink(nodes_[i]) || !in_loop(v) || sink_level(v) != level) continue;
      const bool in_place = nodes_[i].kind == Kind::kStore && nodes_[i].c != 0;
      const bool here = home_[nodes_[i].a] == level;
      if (!in_place && here) {
        after[nodes_[i].a].push_back(v);
      } else {
        last.push_back(v);
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int v = static_cast<int>(i);
      if (home_[i] != level || is_sink(nodes_[i])) continue;
      order.push_back(v);
      if (const auto at = after.find(v); at != after.end())
        order.insert(order.end(), at->second.begin(), at->second.end());
    }
    std::stable_sort(last.begin(), last.end(), [&](int x, int y) { return store_in_place(x) < store_in_place(y); });
    order.insert(order.end(), last.begin(), last.end());
    return order;
  }
  bool store_in_place(int v) const { return nodes_[v].kind == Kind::kStore && nodes_[v].c != 0; }

  void emit_sink(int v) {
    const Node& n = nodes_[v];
    bring(n.a);
    used(n.a);
    if (n.kind == Kind::kStore) {
      emit(m_.store[static_cast<int>(p_.operands_[n.b].type)], n.b);
    } else if (n.kind == Kind::kColumn) {
      emit(m_.column, n.b);
      p_.column_operands_.push_back(n.b);
    } else {
      const int index = static_cast<int>(resets_.size());
      if (index >= kMaxReductions) fail(v, "more than " + std::to_string(kMaxReductions) + " reductions in one pass");
      resets_.emplace_back(index, n.op);
      total_[v] = index;
      emit(m_.reduce[n.op], index);
    }
    release(n.a);
  }

  Program& p_;
  const std::vector<Node>& nodes_;
  const Machine& m_;
  std::vector<bool> full_;
  std::vector<int> level_, home_, uses_;
  std::map<int, int> reduce_level_, buffer_, row_slot_, constant_slot_, slot_, total_;
  std::vector<int> free_;
  std::vector<std::pair<int, int>> resets_;  // reductions of the loop: index, operation
  std::vector<Instruction>* code_ = nullptr;
  bool loop_ = false;
  int now_ = 0, accumulator_ = -1, slots_ = 0, last_ = 0;
};

Program::Program(std::vector<Operand> operands, const std::vector<Node>& nodes, const Machine& machine)
    : machine_(machine), operands_(std::move(operands)) {
  Builder(*this, nodes).build();
}

}  // namespace neuron::engine::vector
