#include "aten/block.h"

namespace neuron::aten {

Block* BlockStore::make(char* ptr, size_t size, device::StreamId stream, Block::State state, SmallIndex* index) {
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
  block->index = index;
  return block;
}

void BlockStore::recycle(Block* block) {
  block->context.reset();
  block->next = spare_;
  spare_ = block;
}

Block* LargeIndex::best_fit(device::StreamId stream, size_t size) const {
  Block probe;
  probe.stream = stream;
  probe.size = size;
  const auto it = blocks_.lower_bound(&probe);
  return it != blocks_.end() && (*it)->stream == stream ? *it : nullptr;
}

}  // namespace neuron::aten
