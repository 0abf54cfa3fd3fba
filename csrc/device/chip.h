// The numbers of chips and machines, from src/torch_neuronx/chips (where each has its source), as compiled-in tables.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace neuron::device {

// One chip generation; per physical NeuronCore unless said otherwise. Same fields, same order as chips/spec.py.
struct ChipSpec {
  const char* name;
  uint64_t neuroncore_version;
  uint64_t cores;  // physical NeuronCores of a chip

  uint64_t tensor_clock_hz, tensor_rows, tensor_cols;
  uint64_t tensor_float32_passes;
  uint64_t tensor_float8_speedup, tensor_mx_speedup;  // against bfloat16
  uint64_t tensor_sustained_permille;                 // of the peak

  uint64_t vector_clock_hz, vector_lanes;
  uint64_t vector_copy_speedup_16bit, vector_binary_speedup_16bit, vector_binary_speedup_8bit;

  uint64_t scalar_clock_hz, scalar_elements_per_cycle, scalar_elements_per_cycle_narrow;
  uint64_t scalar_table_load_ns;

  uint64_t gpsimd_clock_hz, gpsimd_processors, gpsimd_elements_per_cycle;
  uint64_t gpsimd_descriptor_ps;

  uint64_t sbuf_bytes, sbuf_partitions, sbuf_usable_bytes_per_partition;
  uint64_t psum_bytes, psum_banks;
  uint64_t hbm_bytes, hbm_stacks;   // of the chip
  uint64_t hbm_bytes_per_second;    // of the chip
  uint64_t hbm_sustained_permille;  // of the peak

  uint64_t dma_engines;
  uint64_t dma_bytes_per_second, dma_sustained_bytes_per_second;
  uint64_t dma_load_ns, dma_store_ns, dma_to_engine_ns;

  uint64_t neuronlink_bytes_per_second;  // of the chip
  uint64_t host_link_bytes_per_second;   // one direction, of one logical core
  uint64_t dispatch_ns, graph_launch_ns;
};

// A machine with chips of one generation.
struct InstanceType {
  const char* name;
  const char* chip;
  uint64_t chips;
  uint64_t ultraserver_chips;    // 0: not part of an UltraServer
  uint64_t efa_bits_per_second;  // 0: not published
};

struct ChipField {
  const char* name;
  uint64_t ChipSpec::* value;
};

std::span<const ChipSpec> chips();
std::span<const ChipField> chip_fields();  // every number of a ChipSpec by name
std::span<const InstanceType> instances();
const char* default_instance();

const ChipSpec* find_chip(std::string_view name);          // nullptr: there is none
const InstanceType* find_instance(std::string_view name);  // nullptr: there is none
// The first, smallest instance of a generation; nullptr: no such generation.
const InstanceType* smallest_instance(std::string_view chip);

}  // namespace neuron::device
