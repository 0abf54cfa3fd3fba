// What one launch asks of the chip and how long that takes. Formulas and their sources: docs/device-time.md.
#pragma once
#include <cstdint>

namespace neuron::device {

enum class Kind : uint8_t {
  kNone,      // costs only the launch (metadata, synchronisation)
  kMove,      // DMA inside HBM: copies, fills, cat, gather-free indexing
  kHostCopy,  // DMA between host and HBM
  kVector,    // VectorE: arithmetic, comparisons, reductions
  kScalar,    // ScalarE: transcendental functions
  kTensor,    // TensorE: matrix products, convolutions
  kGather,    // indirect DMA driven by GpSimdE: gather, scatter, index, embedding, sort
};

struct Work {
  Kind kind = Kind::kNone;
  uint8_t element_bytes = 4;    // size of the compute type: 1, 2, 4, 8
  bool float32_matmul = false;  // TensorE: four passes
  uint64_t read_bytes = 0;      // operands, in HBM
  uint64_t write_bytes = 0;
  uint64_t elements = 0;     // elements processed by the engine (largest operand); times `passes`
  uint32_t passes = 1;       // engine passes over the elements (softmax 4, layer norm 5, ...)
  uint64_t macs = 0;         // TensorE multiply-accumulates
  uint64_t descriptors = 0;  // kGather: pieces (elements or rows) that indirect DMA moves one by one, one per index
};

struct Cost {                                                       // nanoseconds
  int64_t dispatch = 0;                                             // host side
  int64_t tensor = 0, vector = 0, scalar = 0, gpsimd = 0, dma = 0;  // active time of each engine
  int64_t link = 0;                                                 // active time of the link between host and device
  int64_t total = 0;                                                // duration on the stream
};

struct ChipSpec;  // chip.h

Cost cost(const Work& work);                                 // on a core of this process's topology
Cost cost(const Work& work, const ChipSpec& chip, int lnc);  // on a logical core of `lnc` physical cores

}  // namespace neuron::device
