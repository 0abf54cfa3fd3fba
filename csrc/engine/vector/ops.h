// The operations of vector programs. All compute in float32; a bool is 0 or 1.
#pragma once

// op(a)
#define NEURON_VECTOR_UNARY(X) \
  X(neg)                       \
  X(abs)                       \
  X(sign)                      \
  X(square)                    \
  X(sqrt)                      \
  X(rsqrt)                     \
  X(reciprocal)                \
  X(exp)                       \
  X(log)                       \
  X(tanh)                      \
  X(sigmoid)                   \
  X(erf)                       \
  X(floor)                     \
  X(ceil)                      \
  X(trunc)                     \
  X(round)                     \
  X(relu)                      \
  X(is_nan)                    \
  X(is_zero)                   \
  X(not_zero)                  \
  X(to_bfloat16)               \
  X(to_float16)

// op(a, b)
#define NEURON_VECTOR_BINARY(X) \
  X(get) /* b */                \
  X(add)                        \
  X(sub)                        \
  X(rsub) /* b - a */           \
  X(mul)                        \
  X(div)                        \
  X(rdiv)    /* b / a */        \
  X(maximum) /* NaN wins */     \
  X(minimum) /* NaN wins */     \
  X(eq)                         \
  X(ne)                         \
  X(lt)                         \
  X(le)                         \
  X(gt)                         \
  X(ge)

// over a row
#define NEURON_VECTOR_REDUCE(X) \
  X(sum)                        \
  X(largest)                    \
  X(smallest)
