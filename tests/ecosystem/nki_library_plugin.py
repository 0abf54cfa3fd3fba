"""pytest plugin that runs the integration tests of a checkout of aws-neuron/nki-library on this project's `nki`.

The suite drives hardware through its own conftest.py; this plugin stands in for it (`--noconftest -p`). A test hands
a kernel, its inputs and a reference to `test_manager.execute`; here that runs the kernel in the simulator and compares
with the reference by the suite's own comparator and tolerances. Packages of the hardware path (ssh, cloud storage,
metrics) are empty modules, and `neuron_dtypes`, which is not public, is the few functions below.
"""

from __future__ import annotations

import importlib.machinery
import os
import random
import signal
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

CHECKOUT = Path(os.environ["NKI_LIBRARY_PATH"])
CASES = int(os.environ.get("NKI_LIBRARY_CASES", "3"))  # most cases of one test function
SECONDS = int(os.environ.get("NKI_LIBRARY_SECONDS", "120"))  # most time of one case
# The suite's own list of numbers that mark a case as too large for a simulator.
LARGE = ("4096", "5120", "8192", "16384", "32768", "36864")
ABSENT = ("test.utils.test_orchestrator", "test.utils.perf_analysis_private")  # the driver of the hardware
UNUSED = ("attr", "aws_embedded_metrics", "boto3", "botocore", "debugpy", "fabric2", "paramiko", "plotext")


class _Empty(types.ModuleType):
    """A package whose every name is a class that is never used."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


class _EmptyFinder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] in UNUSED or name in ABSENT:
            return importlib.machinery.ModuleSpec(name, _EmptyFinder, is_package=True)  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec: Any) -> types.ModuleType:
        return _Empty(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        pass


def numpy_type(dtype: Any) -> np.dtype[Any]:
    """The NumPy type for a type of nki, a name or a NumPy type."""
    from nki.dtypes import DTYPES, DType

    name = dtype.name if isinstance(dtype, DType) else dtype if isinstance(dtype, str) else None
    return DTYPES[name].dtype if name in DTYPES else np.dtype(dtype)


def static_cast(array: Any, dtype: Any) -> Any:
    """The values in another type. Four neighbours of the last axis are one element of a packed type."""
    from nki.dtypes import DTYPES, decode, encode, pack, unpack

    values = np.asarray(array)
    packed = DTYPES[values.dtype.names[0]] if values.dtype.names else None
    if packed is not None:
        values = unpack(values.view(packed.storage), packed).reshape(*values.shape[:-1], -1)
    to = numpy_type(dtype)
    if to.names:
        packed = DTYPES[to.names[0]]
        groups = values.astype(np.float32).reshape(*values.shape[:-1], -1, packed.elements)
        return pack(groups, packed).view(to)
    if to.name == "float8_e4m3fn":  # beyond the range: the largest value, not NaN
        kind = DTYPES[to.name]
        return encode(decode(encode(values.astype(np.float32), kind), kind), kind).view(to)
    return values.astype(to)


def _neuron_dtypes() -> types.ModuleType:
    import ml_dtypes

    from nki.dtypes import DTYPES

    module: Any = types.ModuleType("neuron_dtypes")
    module.static_cast = static_cast
    module.is_float_type = lambda t: np.dtype(t).kind == "f" or hasattr(ml_dtypes, np.dtype(t).name)
    module.sizeinbytes = lambda t: numpy_type(t).itemsize
    module.finfo = lambda t: ml_dtypes.finfo(numpy_type(t))
    for name, kind in DTYPES.items():
        if name != "tfloat32":
            setattr(module, name, kind if kind.kind == "packed" else numpy_type(name))
    return module


def _patch_references() -> None:
    """The suite expects NumPy types named like the packed types of nki; here those are structured types."""
    import nkilib_src.nkilib.core.utils.mx_torch_common as common

    from nki.dtypes import as_dtype

    original = common.quantize_to_mx
    common.quantize_to_mx = lambda data, out_x4_dtype: original(data, as_dtype(out_x4_dtype))


def pytest_configure(config: pytest.Config) -> None:
    """Makes the suite importable: its packages, ours, and the empty ones."""
    import nki
    import nki.typing

    sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "src")]
    sys.meta_path.insert(0, _EmptyFinder)  # type: ignore[arg-type]
    sys.modules["neuron_dtypes"] = _neuron_dtypes()
    sys.modules["neuronxcc"] = _Empty("neuronxcc")
    sys.modules["neuronxcc.nki"] = nki
    sys.modules["neuronxcc.nki.typing"] = nki.typing
    starfish = types.ModuleType("neuronxcc.starfish.support.dtype")
    starfish.static_cast = static_cast  # type: ignore[attr-defined]
    sys.modules.update({"neuronxcc.starfish": _Empty("s"), "neuronxcc.starfish.support": _Empty("s")})
    sys.modules["neuronxcc.starfish.support.dtype"] = starfish
    for name in ("test", "test.utils"):  # the standard library has a `test` package too
        sys.modules.pop(name, None)
    _patch_references()
    random.seed(0)  # the suite shuffles its cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The two ways in which the suite generates cases, as its conftest.py does."""
    if "range_test_options" in metafunc.fixturenames:
        from test.utils.ranged_test_harness import RangeTestHarness

        limit = getattr(metafunc.function, "limit_num_of_tests", None)
        harness = RangeTestHarness(
            metafunc.function.range_test_config, **({} if limit is None else {"limit_num_of_tests": limit})
        )
        ids, configs = harness.get_unique_test_cases()
        metafunc.parametrize("range_test_options", configs, ids=ids)
        return
    marker = metafunc.definition.get_closest_marker("coverage_parametrize")
    if marker is None:
        return
    from test.utils.coverage_parametrized_tests import extract_parametrize_args, generate_parametrized_test_case

    params = dict(marker.kwargs)
    params.pop("coverage", None)
    generated = generate_parametrized_test_case(
        coverage="singles",
        filter_func=params.pop("filter", None),
        enable_automatic_boundary_tests=params.pop("enable_automatic_boundary_tests", True),
        enable_invalid_combination_tests=params.pop("enable_invalid_combination_tests", True),
        n_tests_per_boundary_value=params.pop("n_tests_per_boundary_value", 3),
        max_invalid_tests=params.pop("max_invalid_tests", 30),
        params=params,
    )
    names, values, ids = extract_parametrize_args(params, generated)
    metafunc.parametrize(names, values, ids=ids)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what the suite calls too large, and all but the first cases of each test function."""
    taken: Counter[str] = Counter()
    chosen, left = [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        large = item.get_closest_marker("slow_simulation") or any(number in item.name for number in LARGE)
        if large or taken[function] >= CASES:
            left.append(item)
        else:
            taken[function] += 1
            chosen.append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Ends a case that takes too long."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Simulator:
    """What the suite calls `test_manager`."""

    def execute(self, kernel_args: Any) -> None:
        """Runs the kernel and compares every output. AssertionError names the outputs that differ."""
        from test.utils.common_dataclasses import normalize_golden_output

        import nki

        options = kernel_args.compiler_input
        assert kernel_args.inference_args.collective_ranks == 1, "one rank only: collectives over devices"
        inputs = {k.removesuffix(".must_alias_input"): v for k, v in (kernel_args.kernel_input or {}).items()}
        with (
            mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE=options.platform_target.get_compile_target()),
            np.errstate(all="ignore"),
        ):
            found = nki.simulate(kernel_args.kernel_func)[options.logical_nc_config](**inputs)
        wanted = kernel_args.validation_args
        if wanted is None:
            return
        outputs = [] if found is None else list(found) if isinstance(found, tuple | list) else [found]
        names = list(normalize_golden_output(wanted.golden_output))
        assert len(names) == len(outputs), f"{len(outputs)} outputs, the reference has {names}"
        golden = getattr(wanted.golden_output, "golden", wanted.golden_output)
        failed = [
            name for name, out in zip(names, outputs, strict=True) if golden and not _same(out, golden[name], wanted)
        ]
        assert not failed, f"outputs that differ from the reference: {failed}"


def _same(output: Any, expected: Any, limits: Any) -> bool:
    from test.integration.nkilib.utils.comparators import maxAllClose

    validator = getattr(expected, "validator", None)
    if validator is not None:
        return bool(validator(None).validate(np.asarray(output)))
    output, expected = np.asarray(output), np.asarray(expected)
    if expected.dtype.names or output.dtype.names:  # packed: as the values that the suite's own functions unpack
        from test.utils.output_validator import _X4_UNPACKERS

        unpack = _X4_UNPACKERS[(expected.dtype.names or output.dtype.names)[0]]
        output, expected = unpack(output).numpy(), unpack(expected).numpy()
    rtol, atol = limits.relative_accuracy, limits.absolute_accuracy
    return bool(maxAllClose(output.astype(np.float32), expected.astype(np.float32), rtol, atol, verbose=1))


@pytest.fixture
def test_manager() -> Simulator:
    return Simulator()


@pytest.fixture
def collector() -> Any:
    from test.utils.metrics_collector import NoopMetricsCollector

    return NoopMetricsCollector()


@pytest.fixture
def platform_target(request: pytest.FixtureRequest) -> Any:
    from test.utils.common_dataclasses import Platforms

    marker = request.node.get_closest_marker("platforms")
    excluded = (marker.kwargs.get("exclude") or []) if marker else []
    return Platforms.TRN3 if Platforms.TRN2 in excluded else Platforms.TRN2
