#include "device/chip.h"

namespace neuron::device {
namespace {

#include "device/chip_data.inc"

template <typename T>
const T* find(std::span<const T> table, const char* T::* key, std::string_view name) {
  for (const T& row : table) {
    if (name == row.*key) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const ChipSpec> chips() { return kChips; }
std::span<const ChipField> chip_fields() { return kChipFields; }
std::span<const InstanceType> instances() { return kInstances; }
const char* default_instance() { return kDefaultInstance; }

const ChipSpec* find_chip(std::string_view name) { return find(chips(), &ChipSpec::name, name); }
const InstanceType* find_instance(std::string_view name) { return find(instances(), &InstanceType::name, name); }
const InstanceType* smallest_instance(std::string_view chip) { return find(instances(), &InstanceType::chip, chip); }

}  // namespace neuron::device
