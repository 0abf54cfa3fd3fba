// How an operator of PyTorch's CPU library runs for neuron tensors, in two ways that share one walk over the schema:
//   alias  the CPU kernel works on device memory itself, its outputs and temporaries come from HBM: a native operator
//   copy   arguments are copied to the host and results back: the CPU fallback, counted and named
#pragma once
#include <torch/library.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/cost.h"

namespace neuron::aten {

enum OpFlags : uint8_t {
  kNoFlags = 0,
  kAnyCpu = 1,    // tensors on the CPU are welcome beside neuron ones (indices)
  kHostScan = 2,  // the host waits for the result (its size depends on data): synchronises the stream
  kSparse = 4,    // registered for sparse tensors: runs the CPU library's sparse kernel
};

// A row of a family's table: overloads in aten (separated by spaces) that run the CPU library's kernel on device
// memory, and what a launch of one costs (device/cost.h).
struct NativeOps {
  const char* overloads;
  device::Kind kind = device::Kind::kVector;
  uint8_t passes = 1;
  uint8_t flags = kNoFlags;
};

// Registers every overload as a native operator of `library` (aten, PrivateUse1) and remembers it under `family`.
void register_native(torch::Library& library, const char* family, c10::ArrayRef<NativeOps> table);
// Remembers a hand-written kernel as native (it is registered by its own m.impl).
void note_native(const char* family, const char* name, device::Kind kind);

struct NativeRow {
  std::string family, name;
  device::Kind kind;
};
std::vector<NativeRow> native_ops();

// --- what did not run natively ---------------------------------------------------------------------------------------
enum class Policy { kAllow, kWarn, kRaise };
Policy fallback_policy();
void set_fallback_policy(Policy policy);

struct FallbackRow {
  std::string op;
  std::string kind;  // "operator": no native kernel; "dtype": a type that Trainium lacks
  uint64_t count;
  uint64_t bytes;  // copied between host and device ("operator"), or processed ("dtype")
};
std::vector<FallbackRow> fallback_stats();
void reset_fallbacks();

// Float64 and complex tensors compute correctly but are not native: counted, and an error under Policy::kRaise.
void note_dtype(const char* op_name, at::ScalarType dtype, uint64_t bytes);
inline bool lacks_hardware(at::ScalarType t) {
  return t == at::kDouble || t == at::kComplexFloat || t == at::kComplexDouble || t == at::kComplexHalf;
}

}  // namespace neuron::aten
