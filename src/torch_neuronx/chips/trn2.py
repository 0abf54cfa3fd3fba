"""Trainium2: eight NeuronCore-v3, 96 GiB of HBM."""

from __future__ import annotations

from .spec import ChipSpec, InstanceType, Number

GIB = 1 << 30
MIB = 1 << 20

CORE = "Neuron documentation, NeuronCore-v3 architecture"
CHIP = "Neuron documentation, Trainium2 architecture"
NKI = "NKI documentation, Trainium2 architecture guide"
DMA = "NKI documentation, DMA bandwidth guide"
DMA_TIMELINE = "NKI documentation, introduction to DMA, profiler timeline on trn2"
TRN2 = "Neuron documentation, Trn2 instance architecture"
# A public set of micro-benchmarks: torch-neuronx 2.12.3, one LNC 2 core of a trn2.3xlarge, September 2026.
USER = "xpu-perf on trn2.3xlarge"

CHIP_SPEC = ChipSpec(
    name="trn2",
    neuroncore_version=Number(3, CHIP),
    cores=Number(8, CHIP),
    tensor_clock_hz=Number(2_400_000_000, NKI + ", TensorE"),
    tensor_rows=Number(128, NKI + ", TensorE"),
    tensor_cols=Number(128, NKI + ", TensorE"),
    tensor_float32_passes=Number(4, "NKI documentation, nki.isa.nc_matmul: float32 costs four times bfloat16"),
    tensor_float8_speedup=Number(2, NKI + ", TensorE: 158 FP8 against 79 BF16 TFLOPS (double-row mode)"),
    tensor_mx_speedup=Number(0, NKI + ": microscaled types begin with NeuronCore-v4"),
    tensor_sustained_permille=Number(
        950, USER + ": best bfloat16 product 149.4 TFLOPS of 2 cores * 78.64; hand-tuned NKI kernels reach 98 %"
    ),
    vector_clock_hz=Number(960_000_000, NKI + ", VectorE"),
    vector_lanes=Number(128, NKI + ", VectorE"),
    vector_copy_speedup_16bit=Number(4, NKI + ", VectorE performance modes"),
    vector_binary_speedup_16bit=Number(2, NKI + ", VectorE performance modes"),
    vector_binary_speedup_8bit=Number(1, NKI + ", VectorE performance modes: bfloat16 and float16 only"),
    scalar_clock_hz=Number(1_200_000_000, NKI + ", ScalarE"),
    scalar_elements_per_cycle=Number(128, NKI + ", ScalarE"),
    scalar_elements_per_cycle_narrow=Number(128, NKI + ", ScalarE"),
    scalar_table_load_ns=Number(1_280, DMA_TIMELINE + ": 1.28 to 1.30 us"),
    gpsimd_clock_hz=Number(1_200_000_000, NKI + ", GpSimdE"),
    gpsimd_processors=Number(8, NKI + ", GpSimdE"),
    gpsimd_elements_per_cycle=Number(128, NKI + ", GpSimdE: 16 lanes of 32 bits in each of 8 processors"),
    gpsimd_descriptor_ps=Number(
        11_430,
        USER + ": gather of single float32 elements at 1.4 GB/s read and written, 5.7 ns an element on two cores",
    ),
    sbuf_bytes=Number(28 * MIB, CORE + ": 128 partitions of 224 KiB"),
    sbuf_partitions=Number(128, CORE),
    sbuf_usable_bytes_per_partition=Number(212_984, "nkipy, HardwareConstants.h"),
    psum_bytes=Number(2 * MIB, CORE + ": 128 partitions of 16 KiB"),
    psum_banks=Number(8, CORE),
    hbm_bytes=Number(96 * GIB, CHIP),
    hbm_stacks=Number(4, CHIP),
    hbm_bytes_per_second=Number(2_900_000_000_000, CHIP + ": 2.9 TB/s (the NKI guide rounds to 3)"),
    hbm_sustained_permille=Number(
        870, USER + ": mean of add 600, embedding 631, sum 639 and copy 649 GB/s, of 725 for one stack"
    ),
    dma_engines=Number(16, DMA),
    dma_bytes_per_second=Number(435_200_000_000, DMA + ": 16 engines at 27.2 bytes/ns"),
    dma_sustained_bytes_per_second=Number(368_000_000_000, DMA + ": 16 engines at 23 bytes/ns"),
    dma_load_ns=Number(1_210, DMA_TIMELINE + ": [128, 128] bfloat16, trigger to done"),
    dma_store_ns=Number(860, DMA_TIMELINE),
    dma_to_engine_ns=Number(310, DMA_TIMELINE + ": completion to start of the dependent ScalarE instruction"),
    neuronlink_bytes_per_second=Number(1_280_000_000_000, CHIP + ", NeuronLink-v3"),
    host_link_bytes_per_second=Number(14_000_000_000, USER + ": host copies, each direction, two ranks at a time"),
    dispatch_ns=Number(60_000, USER + ": eager dispatch 55 to 65 us an operator"),
    graph_launch_ns=Number(97_000, USER + ": launch of a compiled graph 95 to 100 us"),
)

INSTANCES = (
    InstanceType(
        name="trn2.3xlarge",
        chip="trn2",
        chips=Number(1, "user reports of trn2.3xlarge: 4 logical cores of 24 GiB"),
        ultraserver_chips=Number(0, "user reports of trn2.3xlarge: a single machine"),
        efa_bits_per_second=Number(0, "not published in the Neuron documentation"),
    ),
    InstanceType(
        name="trn2.48xlarge",
        chip="trn2",
        chips=Number(16, TRN2),
        ultraserver_chips=Number(0, TRN2),
        efa_bits_per_second=Number(3_200_000_000_000, TRN2),
    ),
    InstanceType(
        name="trn2u.48xlarge",
        chip="trn2",
        chips=Number(16, TRN2),
        ultraserver_chips=Number(64, TRN2 + ": Trn2 UltraServer, four trn2u.48xlarge"),
        efa_bits_per_second=Number(3_200_000_000_000, TRN2),
    ),
)
