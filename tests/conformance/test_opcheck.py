"""torch.library.opcheck of PyTorch's custom operators, with tensors of the device."""

from __future__ import annotations


def test_failures_are_exactly_the_known_ones(sweep, assert_as_known):
    results = sweep("custom")
    assert len({row["name"] for row in results.rows}) == 11
    assert_as_known(results)
