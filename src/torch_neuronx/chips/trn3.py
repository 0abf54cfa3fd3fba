"""Trainium3: eight NeuronCore-v4, 144 GiB of HBM."""

from __future__ import annotations

from . import trn2
from .spec import ChipSpec, InstanceType, Number

GIB = 1 << 30
MIB = 1 << 20

CORE = "Neuron documentation, NeuronCore-v4 architecture"
CHIP = "Neuron documentation, Trainium3 architecture"
NKI = "NKI documentation, Trainium3 architecture guide"
DMA = "NKI documentation, DMA bandwidth guide"
TRN3 = "Neuron documentation, Trn3 UltraServer architecture"


def _as_on_trn2(field: str) -> Number:
    """Nothing is published for trn3: the figure of trn2 stands in."""
    value: Number = getattr(trn2.CHIP_SPEC, field)
    return Number(value, "nothing published: the figure of trn2")


CHIP_SPEC = ChipSpec(
    name="trn3",
    neuroncore_version=Number(4, CHIP),
    cores=Number(8, CHIP),
    tensor_clock_hz=Number(2_400_000_000, NKI + ", TensorE"),
    tensor_rows=Number(128, NKI + ", TensorE"),
    tensor_cols=Number(128, NKI + ", TensorE"),
    tensor_float32_passes=Number(4, CHIP + ": 183 FP32 against 671 BF16 TFLOPS"),
    tensor_float8_speedup=Number(2, "inferred: NeuronCore-v4 keeps the double-row mode of NeuronCore-v3"),
    tensor_mx_speedup=Number(4, CHIP + ": 2,517 MXFP8 against 671 BF16 TFLOPS, 8*128 elements a cycle against 2*128"),
    tensor_sustained_permille=_as_on_trn2("tensor_sustained_permille"),
    vector_clock_hz=Number(1_200_000_000, NKI + ", VectorE"),
    vector_lanes=Number(128, NKI + ", VectorE"),
    vector_copy_speedup_16bit=Number(4, NKI + ", VectorE performance modes"),
    vector_binary_speedup_16bit=Number(2, NKI + ", VectorE performance modes"),
    vector_binary_speedup_8bit=Number(2, NKI + ", VectorE: FP8 joins the fast types"),
    scalar_clock_hz=Number(1_200_000_000, NKI + ", ScalarE"),
    scalar_elements_per_cycle=Number(128, NKI + ", ScalarE"),
    scalar_elements_per_cycle_narrow=Number(256, NKI + ", ScalarE: BF16, FP16 and FP8"),
    scalar_table_load_ns=_as_on_trn2("scalar_table_load_ns"),
    gpsimd_clock_hz=Number(1_200_000_000, NKI + ", GpSimdE"),
    gpsimd_processors=Number(8, NKI + ", GpSimdE"),
    gpsimd_elements_per_cycle=Number(128, NKI + ", GpSimdE"),
    gpsimd_descriptor_ps=_as_on_trn2("gpsimd_descriptor_ps"),
    sbuf_bytes=Number(32 * MIB, CORE + ": 128 partitions of 256 KiB"),
    sbuf_partitions=Number(128, CORE),
    sbuf_usable_bytes_per_partition=Number(245_752, "nkipy, HardwareConstants.h"),
    psum_bytes=Number(2 * MIB, CORE + ": 128 partitions of 16 KiB"),
    psum_banks=Number(8, CORE),
    hbm_bytes=Number(144 * GIB, CHIP),
    hbm_stacks=Number(4, CHIP),
    hbm_bytes_per_second=Number(4_900_000_000_000, CHIP + ": 4.9 TB/s (the NKI guide says 4.7)"),
    hbm_sustained_permille=_as_on_trn2("hbm_sustained_permille"),
    dma_engines=Number(16, DMA),
    dma_bytes_per_second=Number(614_400_000_000, DMA + ": 16 engines at 38.4 bytes/ns"),
    dma_sustained_bytes_per_second=Number(528_000_000_000, DMA + ": 16 engines at 33 bytes/ns"),
    dma_load_ns=_as_on_trn2("dma_load_ns"),
    dma_store_ns=_as_on_trn2("dma_store_ns"),
    dma_to_engine_ns=_as_on_trn2("dma_to_engine_ns"),
    neuronlink_bytes_per_second=Number(2_560_000_000_000, CHIP + ", NeuronLink-v4"),
    host_link_bytes_per_second=_as_on_trn2("host_link_bytes_per_second"),
    dispatch_ns=_as_on_trn2("dispatch_ns"),
    graph_launch_ns=_as_on_trn2("graph_launch_ns"),
)

# The type names of the machines in Trn3 UltraServers are not published: trn3-gen1 and trn3-gen2 are this package's own.
INSTANCES = (
    InstanceType(
        name="trn3pd98.3xlarge",
        chip="trn3",
        chips=Number(1, "public benchmark reports from such a machine: one device, 8 cores at LNC 1, 144 GB"),
        ultraserver_chips=Number(0, "public benchmark reports: a single machine"),
        efa_bits_per_second=Number(0, "not published in the Neuron documentation"),
    ),
    InstanceType(
        name="trn3-gen1",
        chip="trn3",
        chips=Number(16, TRN3 + ": Gen1, 64 chips in four servers"),
        ultraserver_chips=Number(64, TRN3 + ": Gen1"),
        efa_bits_per_second=Number(3_200_000_000_000, TRN3 + ": Gen1, 12,800 Gbit/s over four servers"),
    ),
    InstanceType(
        name="trn3-gen2",
        chip="trn3",
        chips=Number(4, TRN3 + ": Gen2, 144 chips in 36 servers"),
        ultraserver_chips=Number(144, TRN3 + ": Gen2"),
        efa_bits_per_second=Number(800_000_000_000, TRN3 + ": Gen2, 28,800 Gbit/s over 36 servers"),
    ),
)
