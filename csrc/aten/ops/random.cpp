// Random numbers by Philox: element i of a launch depends on (seed, offset, i), not on threads or streams.
// Distributions that need an unknown count of numbers an element run the CPU library's kernel with a generator seeded
// from Philox.
#include "engine/random.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>

#include <array>
#include <cmath>
#include <limits>

#include "aten/boundary.h"
#include "aten/init.h"
#include "aten/kernel.h"
#include "aten/philox_generator.h"
#include "engine/blas.h"

namespace neuron::aten {
namespace {

using enum device::Kind;
using Generator = std::optional<at::Generator>;

engine::Source source(const Generator& generator, at::Device device) {
  const auto [seed, offset] = philox_generator(generator, device).take(4);
  return {seed, offset, engine::host_threads()};
}

// Runs `fill(contiguous_cpu_tensor, source)` on self, which may be strided.
template <typename F>
at::Tensor& fill_random(const char* name, at::Tensor& self, const Generator& generator, const F& fill) {
  TORCH_CHECK(on_neuron(self), "Expected a '", at::DeviceTypeName(self.device().type(), true),
              "' device type for generator but found 'neuron'");
  philox_generator(generator, self.device());  // a wrong generator is an error for an empty tensor too
  if (self.numel() == 0) return self;
  if (lacks_hardware(self.scalar_type())) note_dtype(name, self.scalar_type(), touched_bytes(self));
  const engine::Source from = source(generator, self.device());
  CoreGuard guard(self.device().index());
  KernelScope scope(name, self.device());
  scope.work() = {.kind = kVector,
                  .element_bytes = static_cast<uint8_t>(self.element_size()),
                  .write_bytes = touched_bytes(self),
                  .elements = static_cast<uint64_t>(self.numel()),
                  .passes = 2};
  at::Tensor target = aten::alias(self);
  if (target.is_contiguous()) {
    fill(target, from);
  } else {
    at::Tensor dense = at::empty_like(target, at::MemoryFormat::Contiguous);
    fill(dense, from);
    target.copy_(dense);
  }
  return self;
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Generator generator) {
  if (self.is_complex()) {
    at::Tensor real = at::view_as_real(self);
    uniform_(real, from, to, generator);
    return self;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "check_uniform_bounds", [&] {
    const double low = std::numeric_limits<scalar_t>::lowest(), high = std::numeric_limits<scalar_t>::max();
    TORCH_CHECK(from >= low && from <= high, "from", " is out of bounds for ", self.dtype());
    TORCH_CHECK(to >= low && to <= high, "to", " is out of bounds for ", self.dtype());
    TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
    TORCH_CHECK(to - from <= high, "uniform_ expects to-from <= std::numeric_limits<", toString(self.scalar_type()),
                ">::max(), but found to=", to, " and from=", from, " which result in to-from to exceed the limit");
  });
  return fill_random("uniform_", self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "uniform_", [&] {
      engine::fill_uniform(t.mutable_data_ptr<scalar_t>(), t.numel(), from, to, numbers);
    });
  });
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    // The library's in-place form gives both parts the mean (torch.normal adds it to the real part alone).
    at::Tensor real = at::view_as_real(self);
    normal_(real, mean, std / std::sqrt(2.0), generator);
    return self;
  }
  return fill_random("normal_", self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "normal_", [&] {
      engine::fill_normal(t.mutable_data_ptr<scalar_t>(), t.numel(), mean, std, numbers);
    });
  });
}

at::Tensor& bernoulli_float(at::Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill_random("bernoulli_", self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, t.scalar_type(), "bernoulli_",
                               [&] { engine::fill_bernoulli(t.mutable_data_ptr<scalar_t>(), t.numel(), p, numbers); });
  });
}

// Integers in [from, from + range); range 0 means all 64 bits.
at::Tensor& random_range(at::Tensor& self, int64_t from, uint64_t range, const Generator& generator) {
  return fill_random("random_", self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_V2(
        t.scalar_type(), "random_",
        AT_WRAP([&] { engine::fill_integers(t.mutable_data_ptr<scalar_t>(), t.numel(), from, range, numbers); }),
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
  AT_DISPATCH_V2(self.scalar_type(), "random_", AT_WRAP([&] {
                   const auto check = [&](int64_t value, const char* name) {
                     // Compared as real numbers: every type's limits and every int64 have one.
                     const auto x = static_cast<long double>(value);
                     TORCH_CHECK(x >= static_cast<long double>(std::numeric_limits<scalar_t>::lowest()) &&
                                     x <= static_cast<long double>(std::numeric_limits<scalar_t>::max()),
                                 name, " is out of bounds for ", self.dtype());
                   };
                   check(from, "from");
                   check(*to - 1, "to - 1");
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return random_range(self, from, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from), generator);
}
at::Tensor& random_to(at::Tensor& self, int64_t to, Generator generator) {
  return random_from(self, 0, to, std::move(generator));
}

// A distribution of one real number an element, from a uniform one in (0, 1].
at::Tensor& fill_transformed(const char* name, at::Tensor& self, const Generator& generator,
                             double (*transform)(double, const double*), std::array<double, 2> parameters) {
  return fill_random(name, self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_V2(t.scalar_type(), "random_transformed", AT_WRAP([&] {
                     engine::fill_transformed(t.mutable_data_ptr<scalar_t>(), t.numel(), transform, parameters.data(),
                                              numbers);
                   }),
                   AT_EXPAND(AT_FLOATING_TYPES), AT_EXPAND(AT_INTEGRAL_TYPES), at::kHalf, at::kBFloat16);
  });
}

void check_continuous(const char* distribution, const at::Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), distribution,
              " distribution is a continuous probability distribution. dtype must be a floating point but you "
              "specified ",
              self.dtype());
}

at::Tensor& exponential_(at::Tensor& self, double lambda, Generator generator) {
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  check_continuous("Exponential", self);
  return fill_random("exponential_", self, generator, [&](at::Tensor& t, const engine::Source& numbers) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "exponential_", [&] {
      engine::fill_exponential(t.mutable_data_ptr<scalar_t>(), t.numel(), lambda, numbers);
    });
  });
}
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Generator generator) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  check_continuous("Cauchy", self);
  return fill_transformed("cauchy_", self, generator,
                          [](double u, const double* p) { return p[0] + p[1] * std::tan(M_PI * (u - 0.5)); },
                          {median, sigma});
}
at::Tensor& geometric_(at::Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return fill_transformed("geometric_", self, generator,
                          [](double u, const double* q) { return std::max(1.0, std::ceil(std::log(u) / q[0])); },
                          {std::log1p(-p), 0.0});
}
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"log_normal_\" not implemented for '",
                              self.scalar_type(), "'");
  normal_(self, mean, std, std::move(generator));
  return self.exp_();
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const at::Device device = input.device();
  CoreGuard guard(device.index());
  if (lacks_hardware(input.scalar_type())) note_dtype("native_dropout", input.scalar_type(), input.nbytes());
  // Outside training every element is kept, and no numbers are used up.
  const bool dropping = train.value_or(true);
  const engine::Source numbers = dropping ? source(std::nullopt, device) : engine::Source{};
  KernelScope scope("native_dropout", device);
  const at::Tensor in = aten::alias(input).contiguous();
  at::Tensor out, mask;
  if (dropping) {
    out = at::empty_like(in);
    mask = at::empty_like(in, in.options().dtype(at::kBool));
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "native_dropout", [&] {
      engine::dropout(in.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(), mask.mutable_data_ptr<bool>(),
                      in.numel(), p, numbers);
    });
  } else {
    out = in.clone();
    mask = at::ones_like(in, in.options().dtype(at::kBool));
  }
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
