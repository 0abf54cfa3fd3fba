"""PyTorch's operator database on the device: three samples a variant, five dtypes. `make coverage` runs all."""

from __future__ import annotations

import pytest

from conformance import report, runner, tables

KINDS = "op,error"


def test_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    assert_as_known(sweep(KINDS))


def test_no_wrong_value_and_no_crash(sweep):
    """Not even a known one: a wrong value is never excused."""
    bad = [(k, v) for k, v in sweep(KINDS).verdicts() if v["state"] in ("wrong", "crash")]
    assert not bad, "\n".join(f"{k} {v}" for k, v in bad[:50])


@pytest.mark.parametrize("dtype", [runner.dtype_name(d) for d in tables.HARDWARE_DTYPES])
def test_native_share(sweep, dtype):
    """At least 97 % of the pairs run all their variants without leaving the device."""
    native, pairs = report.native_share(sweep(KINDS), dtype)
    left = [r["name"] for r in sweep(KINDS).of("op") if r["dtype"] == dtype and report.state_of(r) == "fallback"]
    assert pairs > 340, f"only {pairs} pairs were run"
    assert native >= 0.97 * pairs, f"{native} of {pairs} pairs are native; fallbacks: {' '.join(left)}"


def test_every_pair_of_the_database_is_run(sweep):
    """Nothing is left out in silence: all 2,591 pairs of the five dtypes, and all error inputs, have a verdict."""
    results = sweep(KINDS)
    assert len(results.of("op")) == sum(d in i.dtypes for i in runner.ops().values() for d in tables.HARDWARE_DTYPES)
    assert len(results.of("error")) == sum(i.error_inputs_func is not None for i in runner.ops().values())
    assert all(row["variants"] for row in results.rows)
