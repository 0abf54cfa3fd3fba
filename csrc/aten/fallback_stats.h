// Bookkeeping of calls that did not run natively.
#pragma once
#include <cstdint>

namespace neuron::aten {

void before_fallback(const char* op_name);  // warns once per operator, or raises, as the policy says
void count_fallback(const char* op_name, uint64_t bytes);

}  // namespace neuron::aten
