// The device's generator: a Philox seed and offset. Kernels take numbers by reserving offsets in program order, so the
// same seed gives the same numbers whatever other streams do.
#pragma once
#include <c10/core/GeneratorImpl.h>

#include "aten/generator.h"

namespace neuron::aten {

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  static constexpr int64_t kStateBytes = 16;

  explicit PhiloxGenerator(c10::DeviceIndex index);
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return state_.offset; }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& bytes) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Reserves offsets for `numbers` numbers an element (rounded up to whole Philox blocks); returns (seed, offset).
  std::pair<uint64_t, uint64_t> take(uint64_t numbers);

 private:
  struct State {
    uint64_t seed = c10::default_rng_seed_val;
    uint64_t offset = 0;
  };
  static_assert(sizeof(State) == kStateBytes);
  PhiloxGenerator* clone_impl() const override;
  State state_;
};

// The given generator or the device's default one; throws when it is of another device.
PhiloxGenerator& philox_generator(const std::optional<at::Generator>& generator, at::Device device);

}  // namespace neuron::aten
