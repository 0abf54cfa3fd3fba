"""Each test starts without compiled functions and without their metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch._dynamo

import torch_neuronx


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_neuronx.reset_dynamo_metrics()
    yield
    torch._dynamo.reset()
