// Random numbers by Philox: element i of a launch depends on (seed, offset, i), not on threads or streams.
// Distributions that need an unknown count of numbers an element run the CPU library's kernel with a generator seeded
// from Philox.
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>

#include <cmath>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "aten/philox_generator.h"
#include "engine/philox.h"

namespace neuron::aten {
namespace {

using enum device::Kind;
using engine::kPhiloxLanes;
using Generator = std::optional<at::Generator>;

constexpr int64_t kGrain = 16384;  // elements a thread takes at least

// Numbers in [0, 1) with as many random bits as the type's significand holds, as the CPU library draws them.
template <typename T>
constexpr int kDigits = std::is_same_v<T, c10::BFloat16> ? 8
                        : std::is_same_v<T, c10::Half>   ? 11
                                                         : 24;
inline float unit(uint32_t x, int digits) {
  return static_cast<float>(x & ((1u << digits) - 1)) * (1.0f / static_cast<float>(1u << digits));
}
inline double unit64(uint32_t low, uint32_t high) {
  const uint64_t x = (static_cast<uint64_t>(high) << 32 | low) & ((1ull << 53) - 1);
  return static_cast<double>(x) * 0x1.0p-53;
}
inline double open_unit64(uint32_t low, uint32_t high) { return 1.0 - unit64(low, high); }  // (0, 1]

// Calls f(data, i, words) for every element i, where words[] are the four Philox numbers of element i / per_block:
// per_block elements share one block and f picks its word by i % per_block.
template <typename T, int per_block, typename F>
void fill_elements(T* data, int64_t n, uint64_t seed, uint64_t offset, const F& f) {
  constexpr int64_t kTile = static_cast<int64_t>(kPhiloxLanes) * per_block;
  at::parallel_for(0, (n + kTile - 1) / kTile, std::max<int64_t>(1, kGrain / kTile), [&](int64_t begin, int64_t end) {
    uint32_t words[4][kPhiloxLanes];
    for (int64_t tile = begin; tile < end; ++tile) {
      engine::philox(seed, offset, static_cast<uint64_t>(tile * kPhiloxLanes), words);
      const int64_t first = tile * kTile, last = std::min(n, first + kTile);
      for (int64_t i = first; i < last; ++i) {
        const int lane = static_cast<int>((i - first) / per_block);
        const uint32_t block[4] = {words[0][lane], words[1][lane], words[2][lane], words[3][lane]};
        f(data, i, block);
      }
    }
  });
}

// Runs `fill(contiguous_cpu_tensor, seed, offset)` on self, which may be strided.
template <typename F>
at::Tensor& fill_random(const char* name, at::Tensor& self, const Generator& generator, const F& fill) {
  TORCH_CHECK(on_neuron(self), "Expected a '", at::DeviceTypeName(self.device().type(), true),
              "' device type for generator but found 'neuron'");
  PhiloxGenerator& philox = philox_generator(generator, self.device());
  if (self.numel() == 0) return self;
  const auto [seed, offset] = philox.take(4);
  CoreGuard guard(self.device().index());
  KernelScope scope(name, self.device());
  scope.work() = {.kind = kVector,
                  .element_bytes = static_cast<uint8_t>(self.element_size()),
                  .write_bytes = touched_bytes(self),
                  .elements = static_cast<uint64_t>(self.numel()),
                  .passes = 2};
  at::Tensor target = alias(self);
  if (target.is_contiguous()) {
    fill(target, seed, offset);
  } else {
    at::Tensor dense = at::empty_like(target, at::MemoryFormat::Contiguous);
    fill(dense, seed, offset);
    target.copy_(dense);
  }
  return self;
}

// A distribution of one real number an element, from a uniform one in (0, 1]: x = transform(u).
template <typename F>
at::Tensor& fill_transformed(const char* name, at::Tensor& self, const Generator& generator, const F& transform) {
  return fill_random(name, self, generator, [&](at::Tensor& t, uint64_t seed, uint64_t offset) {
    AT_DISPATCH_V2(t.scalar_type(), "random", AT_WRAP([&] {
                     fill_elements<scalar_t, 2>(t.mutable_data_ptr<scalar_t>(), t.numel(), seed, offset,
                                                [&](scalar_t* out, int64_t i, const uint32_t (&w)[4]) {
                                                  const int k = static_cast<int>(i % 2) * 2;
                                                  out[i] =
                                                      static_cast<scalar_t>(transform(open_unit64(w[k], w[k + 1])));
                                                });
                   }),
                   AT_EXPAND(AT_FLOATING_TYPES), AT_EXPAND(AT_INTEGRAL_TYPES), at::kHalf, at::kBFloat16);
  });
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Generator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  if (self.is_complex()) {
    at::Tensor real = at::view_as_real(self);
    uniform_(real, from, to, generator);
    return self;
  }
  return fill_random("uniform_", self, generator, [&](at::Tensor& t, uint64_t seed, uint64_t offset) {
    if (t.scalar_type() == at::kDouble) {
      fill_elements<double, 2>(t.mutable_data_ptr<double>(), t.numel(), seed, offset,
                               [&](double* out, int64_t i, const uint32_t (&w)[4]) {
                                 const int k = static_cast<int>(i % 2) * 2;
                                 out[i] = unit64(w[k], w[k + 1]) * (to - from) + from;
                               });
      return;
    }
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "uniform_", [&] {
      const float low = static_cast<float>(from), range = static_cast<float>(to - from);
      fill_elements<scalar_t, 4>(t.mutable_data_ptr<scalar_t>(), t.numel(), seed, offset,
                                 [&](scalar_t* out, int64_t i, const uint32_t (&w)[4]) {
                                   out[i] = static_cast<scalar_t>(unit(w[i % 4], kDigits<scalar_t>) * range + low);
                                 });
    });
  });
}

// Box-Muller: two elements share a pair of uniform numbers.
at::Tensor& normal_(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    at::Tensor real = at::view_as_real(self);
    normal_(real, 0, std / std::sqrt(2.0), generator);
    self.add_(mean);
    return self;
  }
  return fill_random("normal_", self, generator, [&](at::Tensor& t, uint64_t seed, uint64_t offset) {
    if (t.scalar_type() == at::kDouble) {
      fill_elements<double, 2>(t.mutable_data_ptr<double>(), t.numel(), seed, offset,
                               [&](double* out, int64_t i, const uint32_t (&w)[4]) {
                                 const double radius = std::sqrt(-2.0 * std::log(open_unit64(w[0], w[1])));
                                 const double angle = 2.0 * M_PI * unit64(w[2], w[3]);
                                 out[i] = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)) * std + mean;
                               });
      return;
    }
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "normal_", [&] {
      const float m = static_cast<float>(mean), s = static_cast<float>(std);
      fill_elements<scalar_t, 4>(
          t.mutable_data_ptr<scalar_t>(), t.numel(), seed, offset,
          [&](scalar_t* out, int64_t i, const uint32_t (&w)[4]) {
            const int k = static_cast<int>(i % 4) / 2 * 2;
            const float radius = std::sqrt(-2.0f * std::log(1.0f - unit(w[k], 24)));
            const float angle = static_cast<float>(2.0 * M_PI) * unit(w[k + 1], 24);
            out[i] = static_cast<scalar_t>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)) * s + m);
          });
    });
  });
}

at::Tensor& bernoulli_float(at::Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill_random("bernoulli_", self, generator, [&](at::Tensor& t, uint64_t seed, uint64_t offset) {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, t.scalar_type(), "bernoulli_", [&] {
      const float keep = static_cast<float>(p);
      fill_elements<scalar_t, 4>(t.mutable_data_ptr<scalar_t>(), t.numel(), seed, offset,
                                 [&](scalar_t* out, int64_t i, const uint32_t (&w)[4]) {
                                   out[i] = static_cast<scalar_t>(unit(w[i % 4], 24) < keep);
                                 });
    });
  });
}

// Integers in [from, from + range); range 0 means all 64 bits.
at::Tensor& random_range(at::Tensor& self, int64_t from, uint64_t range, const Generator& generator) {
  return fill_random("random_", self, generator, [&](at::Tensor& t, uint64_t seed, uint64_t offset) {
    AT_DISPATCH_V2(
        t.scalar_type(), "random_", AT_WRAP([&] {
          fill_elements<scalar_t, 2>(t.mutable_data_ptr<scalar_t>(), t.numel(), seed, offset,
                                     [&](scalar_t* out, int64_t i, const uint32_t (&w)[4]) {
                                       const int k = static_cast<int>(i % 2) * 2;
                                       const uint64_t x = static_cast<uint64_t>(w[k + 1]) << 32 | w[k];
                                       const uint64_t r = range == 0 ? x : x % range;
                                       out[i] =
                                           static_cast<scalar_t>(static_cast<int64_t>(r + static_cast<uint64_t>(from)));
                                     });
        }),
        AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  });
}

// The largest integer up to which a type counts without gaps, as the host library's random_() uses it.
int64_t largest_count(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return int64_t{1} << 53;
    case at::kFloat:
      return int64_t{1} << 24;
    case at::kHalf:
      return int64_t{1} << 11;
    case at::kBFloat16:
      return int64_t{1} << 8;
    case at::kBool:
      return 1;
    default: {
      int64_t result = 0;
      AT_DISPATCH_V2(
          type, "random_", AT_WRAP([&] {
            result = static_cast<int64_t>(std::min<uint64_t>(
                static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()), std::numeric_limits<int64_t>::max()));
          }),
          AT_EXPAND(AT_INTEGRAL_TYPES_V2));
      return result;
    }
  }
}

at::Tensor& random_(at::Tensor& self, Generator generator) {
  return random_range(self, 0, static_cast<uint64_t>(largest_count(self.scalar_type())) + 1, generator);
}

at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator generator) {
  if (!to.has_value()) {
    const int64_t top = largest_count(self.scalar_type());
    return random_range(self, from, static_cast<uint64_t>(top) - static_cast<uint64_t>(from) + 1, generator);
  }
  TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
  const int64_t top = largest_count(self.scalar_type());
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
    TORCH_CHECK(from <= top && *to - 1 <= top, "to - 1 is out of bounds for ", self.dtype());
    TORCH_CHECK(from >= 0 || self.scalar_type() != at::kByte, "from is out of bounds for ", self.dtype());
  }
  return random_range(self, from, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from), generator);
}
at::Tensor& random_to(at::Tensor& self, int64_t to, Generator generator) {
  return random_from(self, 0, to, std::move(generator));
}

at::Tensor& exponential_(at::Tensor& self, double lambda, Generator generator) {
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "Exponential distribution is a continuous probability "
              "distribution. dtype must be a floating point but you specified ",
              self.dtype());
  // u may be 1, and log(1) = 0 is not a value of the distribution (sampling code divides by it).
  return fill_transformed("exponential_", self, generator,
                          [&](double u) { return u < 1.0 ? -std::log(u) / lambda : 0x1.0p-54 / lambda; });
}
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Generator generator) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "Cauchy distribution is a continuous probability distribution. "
              "dtype must be a floating point but you specified ",
              self.dtype());
  return fill_transformed("cauchy_", self, generator,
                          [&](double u) { return median + sigma * std::tan(M_PI * (u - 0.5)); });
}
at::Tensor& geometric_(at::Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  const double log_failure = std::log1p(-p);
  return fill_transformed("geometric_", self, generator,
                          [&](double u) { return std::max(1.0, std::ceil(std::log(u) / log_failure)); });
}
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "log_normal_ needs a floating point dtype, but got ",
              self.dtype());
  normal_(self, mean, std, std::move(generator));
  return self.exp_();
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const at::Device device = input.device();
  const bool dropping = train.value_or(true) && p > 0;
  CoreGuard guard(device.index());
  if (lacks_hardware(input.scalar_type())) note_dtype("native_dropout", input.scalar_type(), input.nbytes());
  const auto [seed, offset] = philox_generator(std::nullopt, device).take(4);
  KernelScope scope("native_dropout", device);
  const at::Tensor in = alias(input).contiguous();
  at::Tensor out = at::empty_like(in), mask = at::empty_like(in, in.options().dtype(at::kBool));
  bool* keep_flag = mask.mutable_data_ptr<bool>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "native_dropout", [&] {
    using acc_t = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const scalar_t* x = in.const_data_ptr<scalar_t>();
    const float keep = dropping ? static_cast<float>(1.0 - p) : 1.0f;
    const acc_t scale = !dropping ? 1 : p == 1 ? 0 : static_cast<acc_t>(1.0 / (1.0 - p));
    fill_elements<scalar_t, 4>(out.mutable_data_ptr<scalar_t>(), in.numel(), seed, offset,
                               [&](scalar_t* y, int64_t i, const uint32_t (&w)[4]) {
                                 const bool kept = unit(w[i % 4], 24) < keep;
                                 keep_flag[i] = kept;
                                 y[i] = kept ? static_cast<scalar_t>(static_cast<acc_t>(x[i]) * scale) : scalar_t(0);
                               });
  });
  scope.work() = {.kind = kVector,
                  .element_bytes = static_cast<uint8_t>(in.element_size()),
                  .read_bytes = touched_bytes(input),
                  .write_bytes = touched_bytes(out) + touched_bytes(mask),
                  .elements = static_cast<uint64_t>(in.numel()),
                  .passes = 2};
  return {adopt(out, device), adopt(mask, device)};
}

const NativeOps kTable[] = {
    // overloads, engine of the chip, passes over the data, flags
    {"bernoulli.out bernoulli_.Tensor", kVector, 2},
    {"normal.Tensor_Tensor normal.Tensor_Tensor_out normal.Tensor_float normal.Tensor_float_out normal.float_Tensor "
     "normal.float_Tensor_out",
     kVector, 2},
    {"randperm.generator_out", kGather},
    {"multinomial multinomial.out", kGather},
    {"poisson binomial _standard_gamma _sample_dirichlet", kVector, 4},
    {"rrelu_with_noise rrelu_with_noise.out rrelu_with_noise_", kVector, 2},
    {"native_dropout_backward", kVector},
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native(m, "random", kTable);
#define REGISTER(name, kernel) \
  m.impl(name, kernel);        \
  note_native("random", name, kVector)
  REGISTER("uniform_", uniform_);
  REGISTER("normal_", normal_);
  REGISTER("bernoulli_.float", bernoulli_float);
  REGISTER("random_", random_);
  REGISTER("random_.from", random_from);
  REGISTER("random_.to", random_to);
  REGISTER("exponential_", exponential_);
  REGISTER("cauchy_", cauchy_);
  REGISTER("geometric_", geometric_);
  REGISTER("log_normal_", log_normal_);
  REGISTER("native_dropout", native_dropout);
#undef REGISTER
}

}  // namespace neuron::aten
