"""PyTorch's optimizer database and foreach functions on the device."""

from __future__ import annotations

from conformance import optimizers


def test_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    results = sweep("optimizer")
    assert len({row["name"] for row in results.rows}) == 15
    assert_as_known(results)


def test_fused_and_foreach_run_natively(sweep):
    """A step that copies its parameters to the host and back defeats the purpose of either implementation."""
    rows = {r["name"]: r["variants"] for r in sweep("optimizer").rows if r["dtype"] == "float32"}
    for name in optimizers.FUSED:
        assert rows[name]["fused"]["state"] == "native", rows[name]["fused"]
    slow = {n: v["foreach"] for n, v in rows.items() if "foreach" in v and v["foreach"]["state"] != "native"}
    assert not slow, slow


def test_foreach_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    results = sweep("foreach")
    assert len({row["name"] for row in results.rows}) == 48
    assert_as_known(results)
