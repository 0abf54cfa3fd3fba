// Random numbers of a neuron device: a 16-byte Philox state (seed, offset) per generator.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <optional>

namespace neuron::aten {

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);

// A CPU generator seeded from the device generator's next Philox numbers, for kernels of the CPU library.
at::Generator host_generator(const std::optional<at::Generator>& generator, at::Device device);

}  // namespace neuron::aten
