"""The kernels of aws-neuron/nki-samples that are written for the current interface, against their own references."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

FOLDER = "src/nki_samples/tutorials"
MATMULS = ("basic", "tiled", "hoist_load", "block_free_dimension", "fully_optimized")


def run(checkout: Path) -> list[tuple[str, str]]:
    """(kernel, problem) of each; the problem is "" where the result agrees."""
    jobs = {**_matmuls(checkout), **_microscaled(checkout)}
    return [(name, _problem(job)) for name, job in jobs.items()]


def _problem(job: Callable[[], None]) -> str:
    try:
        job()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}".split(" (/")[0]
    return ""


def _module(folder: Path, name: str, stubs: tuple[str, ...] = ()) -> Any:
    for stub in stubs:  # imported by the module, and not used here
        sys.modules.setdefault(stub, types.ModuleType(stub))
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def _matmuls(checkout: Path) -> dict[str, Callable[[], None]]:
    """The tutorial compares with torch.matmul, with these tolerances; its small workload is for the basic kernel.

    Sizes are the smallest that the fully blocked kernel takes.
    """
    module = _module(checkout / FOLDER / "matrix_multiplication", "matrix_multiplication_nki_kernels")

    def job(name: str) -> Callable[[], None]:
        def check() -> None:
            torch.manual_seed(0)
            m, k, n = (64, 128, 512) if name == "basic" else (2048, 1024, 1024)
            lhs, rhs = torch.rand((m, k)).bfloat16(), torch.rand((k, n)).bfloat16()
            found = getattr(module, f"nki_matmul_{name}_")(lhs.T.to("neuron"), rhs.to("neuron"))
            torch.testing.assert_close(found.cpu(), lhs @ rhs, atol=1e-4, rtol=1e-2)

        return check

    return {f"nki_matmul_{name}_": job(name) for name in MATMULS}


def _microscaled(checkout: Path) -> dict[str, Callable[[], None]]:
    """The tutorial's own drivers, on the neuron device instead of an XLA one, with their own tolerance."""
    import ml_dtypes

    module = _module(checkout / FOLDER / "mxfp-matmul", "mx_toplevel", ("torch_xla",))
    module.device = torch.device("neuron")
    module.setup_compiler_workdir = lambda name: None

    def compare(found: Any, golden: Any, rtol: float = 5e-2, atol: float = 5e-2) -> None:
        torch.testing.assert_close(
            torch.from_numpy(found), torch.from_numpy(golden.astype("float32")), rtol=rtol, atol=atol
        )

    module.compare_and_print_results = compare
    fp8, fp4 = ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn

    def job(function: str, *arguments: Any) -> Callable[[], None]:
        def check() -> None:
            with mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
                getattr(module, function)(*arguments)

        return check

    return {
        "kernel_offline_quantized_mx_matmul (FP8)": job("run_offline_quantized_matmul_mx_test", fp8),
        "kernel_offline_quantized_mx_matmul (FP4)": job("run_offline_quantized_matmul_mx_test", fp4),
        "kernel_on_device_quantize_matmul_mx (FP4, FP8)": job("run_on_device_quantize_matmul_mx_test", fp4, fp8),
        "kernel_on_device_quantize_matmul_mx (FP8)": job("run_on_device_quantize_matmul_mx_test", fp8, fp8),
        "kernel_copy_strided_quantize_matmul_mx (copies)": job("run_copy_strided_test", fp8, True),
        "kernel_copy_strided_quantize_matmul_mx (DMA)": job("run_copy_strided_test", fp8, False),
    }
