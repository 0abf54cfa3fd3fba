// Options of the allocator: PYTORCH_ALLOC_CONF, and TorchNeuron's TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG above it.
#pragma once
#include <cstddef>

namespace neuron::aten {

struct AllocatorConfig {
  size_t max_split_size;          // bytes: blocks from this size on are kept whole
  size_t max_non_split_rounding;  // bytes that such a block may exceed a request by
  double collection_threshold;    // share of the limit from which old free pages are given back; 0: never
};

size_t max_split_size();             // allocator_config().max_split_size, for the usual path
AllocatorConfig allocator_config();  // throws c10::ValueError: an option is unknown or not a number
size_t round_size(size_t bytes);     // to the granule, or to PYTORCH_ALLOC_CONF's roundup_power2_divisions

}  // namespace neuron::aten
