"""PyTorch's module database on the device: forward, backward, `.to`, strided inputs, pickling."""

from __future__ import annotations


def test_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    results = sweep("module")
    assert len({row["name"] for row in results.rows}) == 114
    assert_as_known(results)


def test_all_modules_run_natively(sweep):
    left = {
        f"{key.name} {key.variant}: {', '.join(verdict['fallbacks'])}"
        for key, verdict in sweep("module").verdicts()
        if verdict["state"] == "fallback"
    }
    assert not left, "\n".join(sorted(left))
