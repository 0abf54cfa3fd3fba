#include "aten/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>

#include "aten/kernel.h"
#include "aten/philox_generator.h"
#include "device/topology.h"

namespace neuron::aten {

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex index)
    : GeneratorImpl(at::Device(kNeuron, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  state_.seed = seed;
  state_.offset = 0;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4, but got ", offset);
  state_.offset = offset;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(/*is_cuda=*/true));
  return state_.seed;
}

// 16 bytes, seed then offset, little endian: the layout that DTensor's OffsetBasedRNGTracker reads and writes.
c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor bytes(at::detail::empty_cpu({kStateBytes}, at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), &state_, kStateBytes);
  return bytes.getIntrusivePtr();
}

void PhiloxGenerator::set_state(const c10::TensorImpl& bytes) {
  TORCH_CHECK_TYPE(
      bytes.layout() == at::kStrided && bytes.device().is_cpu() && bytes.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
      "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(bytes.numel() == kStateBytes, "RNG state is wrong size: expected ", kStateBytes, " bytes, got ",
              bytes.numel());
  State state;
  std::memcpy(&state, bytes.data(), kStateBytes);
  TORCH_CHECK(state.offset % 4 == 0, "offset must be a multiple of 4, but the state has ", state.offset);
  state_ = state;
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device_.index());
  copy->state_ = state_;
  return copy;
}

std::pair<uint64_t, uint64_t> PhiloxGenerator::take(uint64_t numbers) {
  std::lock_guard<std::mutex> lock(mutex_);
  const State now = state_;
  state_.offset += (numbers + 3) / 4 * 4;
  return {now.seed, now.offset};
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (int i = 0; i < device::core_count(); ++i) {
      all->push_back(at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(i)));
      all->back().set_current_seed(c10::default_rng_seed_val);
    }
    return all;
  }();
  return generators->at(index);
}

at::Generator new_generator(c10::DeviceIndex index) {
  auto generator = at::make_generator<PhiloxGenerator>(index);
  generator.set_current_seed(c10::default_rng_seed_val);
  return generator;
}

PhiloxGenerator& philox_generator(const std::optional<at::Generator>& generator, at::Device device) {
  const at::Generator& chosen =
      generator.has_value() && generator->defined() ? *generator : default_generator(device.index());
  TORCH_CHECK(chosen.device().type() == device.type(), "Expected a '", at::DeviceTypeName(device.type(), true),
              "' device type for generator but found '", at::DeviceTypeName(chosen.device().type(), true), "'");
  TORCH_CHECK(chosen.device() == device, "Expected a generator of ", device, " but found one of ", chosen.device());
  return *static_cast<PhiloxGenerator*>(chosen.unsafeGetGeneratorImpl());
}

at::Generator host_generator(const std::optional<at::Generator>& generator, at::Device device) {
  const auto [seed, offset] = philox_generator(generator, device).take(4);
  // splitmix64 of both numbers, so that neighbouring offsets give unrelated host streams.
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (offset + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return at::detail::createCPUGenerator(z ^ (z >> 31));
}

}  // namespace neuron::aten
