"""What the op database cannot say about itself: which results are random or undefined, and which tolerance is wider.

Every entry carries its reason. An operator that is not listed is compared value by value.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib

import torch
import yaml
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride

HERE = pathlib.Path(__file__).resolve().parent

# The dtypes of which the issue asks a native share of 97 %.
HARDWARE_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)


def lacks_hardware(dtype: torch.dtype) -> bool:
    """Whether Trainium has no instructions for this type."""
    return dtype == torch.float64 or dtype.is_complex


# Results with undefined content: only dtype, shape, strides and device are compared.
METADATA_ONLY = {
    "empty": "uninitialised memory",
    "empty_like": "uninitialised memory",
    "empty_permuted": "uninitialised memory",
    "empty_strided": "uninitialised memory",
    "new_empty": "uninitialised memory",
    "new_empty_strided": "uninitialised memory",
    "resize_": "elements beyond the old size are uninitialised memory",
    "resize_as_": "elements beyond the old size are uninitialised memory",
}

# The CPU returns uninitialised memory for a batch without elements.
UNDEFINED_WHEN_EMPTY = {
    "nn.functional.multi_margin_loss": "the CPU kernel returns before it writes the result",
    "nn.functional.multilabel_margin_loss": "the CPU kernel returns before it writes the result",
}

# Operators that draw random numbers. The device's generator is Philox, the CPU's Mersenne Twister, so the numbers
# differ by design. A sample that gives the same result under two seeds (dropout with p=0, evaluation mode) is still
# compared by value; the others are checked for metadata, for the same result under the same seed, and for their
# distribution (two-sample Kolmogorov-Smirnov test against the CPU's draws).
RANDOM = {
    "bernoulli": "draws",
    "cauchy": "draws",
    "exponential": "draws",
    "geometric": "draws",
    "log_normal": "draws",
    "multinomial": "draws",
    "normal": "draws",
    "normal.in_place": "draws",
    "normal.number_mean": "draws",
    "rand_like": "draws",
    "randint": "draws",
    "randint_like": "draws",
    "randn": "draws",
    "randn_like": "draws",
    "uniform": "draws",
    "native_dropout_backward": "the mask of a sample is drawn",
    "nn.functional.alpha_dropout": "draws the mask",
    "nn.functional.dropout": "draws the mask",
    "nn.functional.dropout2d": "draws one mask a channel",
    "nn.functional.dropout3d": "draws one mask a channel",
    "nn.functional.feature_alpha_dropout.with_train": "draws one mask a channel",
    "nn.functional.feature_alpha_dropout.without_train": "draws one mask a channel when training",
    "nn.functional.fractional_max_pool2d": "draws the pooling regions",
    "nn.functional.fractional_max_pool3d": "draws the pooling regions",
    "nn.functional.multi_head_attention_forward": "dropout on the attention weights",
    "nn.functional.rrelu": "draws the slopes when training",
    "nn.functional.scaled_dot_product_attention": "dropout on the attention weights",
}

# Of these, operators whose draw shows so seldom that seeds cannot tell: the random offset moves a pooling
# region only where rounding to 16 bits carries it over a whole number. They count as drawn unless the offsets
# are given.
SELDOM_DRAWS = {
    "nn.functional.fractional_max_pool2d": "_random_samples",
    "nn.functional.fractional_max_pool3d": "_random_samples",
}

# Approximations by random projection: two draws give different numbers that mean the same, so that only metadata and
# repetition under the same seed can be compared.
APPROXIMATE = {
    "pca_lowrank": "a truncated factorisation from a random projection",
    "svd_lowrank": "a truncated factorisation from a random projection",
}

# Tensors of a sample that stay on the CPU by contract, as on every accelerator.
CPU_TENSORS = {
    "tensor_split": "tensor_indices_or_sections has to be on the CPU (upstream's contract)",
}


@dataclasses.dataclass(frozen=True)
class Tolerance:
    rtol: float
    atol: float


@functools.cache
def widened() -> dict[tuple[str, str], Tolerance]:
    """tolerances.yaml by (name, dtype): wider than upstream's, each with its reason there."""
    rows = yaml.safe_load((HERE / "tolerances.yaml").read_text()) or []
    table = {}
    for row in rows:
        assert row["reason"].strip(), f"tolerances.yaml: {row['names']} has no reason"
        for name, dtype in itertools.product(row["names"], row["dtypes"]):
            table[name, dtype] = Tolerance(float(row["rtol"]), float(row["atol"]))
    return table


# Upstream's tests whose tolerances speak of the comparison made here: one device's results against the CPU's.
_UPSTREAM_TESTS = (
    "test_compare_cpu",
    "test_noncontiguous_samples",
    "test_variant_consistency_eager",
    "test_out",
    "test_conj_view",
)


def tolerance(info: object, name: str, dtype: torch.dtype, seen: torch.dtype) -> Tolerance:
    """Tolerance for comparing a result of dtype `seen` of `info` (an OpInfo or ModuleInfo) run in `dtype`.

    assert_close's defaults for the result's dtype, then the overrides that upstream attaches to the entry for its
    own device-against-CPU tests, then tolerances.yaml.
    """
    rtol, atol = torch.testing._comparison.default_tolerances(seen)
    if seen.is_floating_point or seen.is_complex:
        for kind, value in _overrides(info, dtype):
            atol = max(atol, value.atol)
            if kind == "both":
                rtol = max(rtol, value.rtol)
        extra = widened().get((name, str(dtype).removeprefix("torch.")))
        if extra:
            rtol, atol = max(rtol, extra.rtol), max(atol, extra.atol)
    return Tolerance(rtol, atol)


def _overrides(info: object, dtype: torch.dtype) -> list[tuple[str, Tolerance]]:
    found: list[tuple[str, Tolerance]] = []
    for decorator in getattr(info, "decorators", ()) or ():
        inner = [decorator]
        if hasattr(decorator, "is_active"):
            tests = [("TestCommon", t) for t in _UPSTREAM_TESTS] + [("TestMathBits", "test_conj_view")]
            if not any(decorator.is_active(c, t, device, dtype, {}) for c, t in tests for device in ("cuda", "cpu")):
                continue
            inner = decorator.decorators
        for item in inner:
            if isinstance(item, toleranceOverride) and dtype in item.d:
                found.append(("both", Tolerance(item.d[dtype].rtol, item.d[dtype].atol)))
            elif isinstance(item, precisionOverride) and dtype in item.d:
                found.append(("atol", Tolerance(0.0, item.d[dtype])))
    return found
