#include "aten/block.h"

namespace neuron::aten {

Block* BlockStore::make(char* ptr, size_t size, device::StreamId stream, Block::State state, bool small) {
  if (spare_ == nullptr) {
    constexpr size_t kSlab = 256;
    slabs_.push_back(std::make_unique<Block[]>(kSlab));
    for (size_t i = 0; i < kSlab; ++i) recycle(&slabs_.back()[i]);
  }
  Block* block = spare_;
  spare_ = block->next;
  block->ptr = ptr;
  block->size = size;
  block->requested = 0;
  block->stream = stream;
  block->prev = block->next = nullptr;
  block->op = nullptr;
  block->state = state;
  block->small = small;
  return block;
}

void BlockStore::recycle(Block* block) {
  block->context.reset();
  block->next = spare_;
  spare_ = block;
}

void SmallIndex::insert(Block* block) {
  const size_t i = block->size / kGranule - 1;
  block->list_prev = nullptr;
  block->list_next = heads_[i];
  if (heads_[i] != nullptr) heads_[i]->list_prev = block;
  heads_[i] = block;
  words_[i / 64] |= uint64_t{1} << (i % 64);
  lists_ |= uint64_t{1} << (i / 64);
}

void SmallIndex::remove(Block* block) {
  const size_t i = block->size / kGranule - 1;
  if (block->list_next != nullptr) block->list_next->list_prev = block->list_prev;
  if (block->list_prev != nullptr) {
    block->list_prev->list_next = block->list_next;
  } else if ((heads_[i] = block->list_next) == nullptr) {
    words_[i / 64] &= ~(uint64_t{1} << (i % 64));
    if (words_[i / 64] == 0) lists_ &= ~(uint64_t{1} << (i / 64));
  }
}

Block* SmallIndex::best_fit(size_t size) const {
  const size_t i = size / kGranule - 1;
  size_t word = i / 64;
  uint64_t bits = words_[word] & (~uint64_t{0} << (i % 64));
  if (bits == 0) {
    const uint64_t above = word == 63 ? 0 : lists_ & (~uint64_t{0} << (word + 1));
    if (above == 0) return nullptr;
    word = std::countr_zero(above);
    bits = words_[word];
  }
  return heads_[word * 64 + std::countr_zero(bits)];
}

Block* LargeIndex::best_fit(device::StreamId stream, size_t size) const {
  Block probe;
  probe.stream = stream;
  probe.size = size;
  const auto it = blocks_.lower_bound(&probe);
  return it != blocks_.end() && (*it)->stream == stream ? *it : nullptr;
}

}  // namespace neuron::aten
