// Fourier transforms.
#include "aten/boundary.h"

namespace neuron::aten {
namespace {

using enum device::Kind;

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"_fft_c2c _fft_c2c.out", kVector},
    {"_fft_c2r _fft_c2r.out", kVector},
    {"_fft_r2c _fft_r2c.out", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_native(m, "fft", kTable); }

}  // namespace neuron::aten
