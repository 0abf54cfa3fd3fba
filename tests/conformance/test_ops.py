"""PyTorch's operator database on the device: three samples a variant, five dtypes. `make coverage` runs all."""

from __future__ import annotations

from conformance import report, runner, tables

KINDS = "op,error"


def test_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    assert_as_known(sweep(KINDS))


def test_no_wrong_value_and_no_crash(sweep):
    """Not even a known one: a wrong value is never excused."""
    bad = [(k, v) for k, v in sweep(KINDS).verdicts() if v["state"] in ("wrong", "crash")]
    assert not bad, "\n".join(f"{k} {v}" for k, v in bad[:50])


# The share of native pairs must not fall. What is missing is complex by nature (FFT, eig, polar), float64 by definition
# (float_power), or sparse CSR. Raise this with every gain.
NATIVE_FLOOR = 0.97


def test_native_share(sweep):
    """So many of the five dtypes' pairs run all their variants without leaving the device or using a foreign type."""
    results = sweep(KINDS)
    shares = {runner.dtype_name(d): report.native_share(results, runner.dtype_name(d)) for d in tables.HARDWARE_DTYPES}
    native, pairs = (sum(column) for column in zip(*shares.values(), strict=True))
    left = [f"{r['name']}/{r['dtype']}" for r in results.of("op") if report.state_of(r) == "fallback"]
    assert native >= NATIVE_FLOOR * pairs, (
        f"{native} of {pairs} pairs are native: {shares}; fallbacks: {' '.join(left)}"
    )


def test_every_pair_of_the_database_is_run(sweep):
    """Nothing is left out in silence: all 2,591 pairs of the five dtypes, and all error inputs, have a verdict."""
    results = sweep(KINDS)
    assert len(results.of("op")) == sum(d in i.dtypes for i in runner.ops().values() for d in tables.HARDWARE_DTYPES)
    assert sum("error" in row["variants"] for row in results.of("error")) == 226
    assert len(results.of("error")) == len(runner.ops())
    assert all(row["variants"] for row in results.rows)
