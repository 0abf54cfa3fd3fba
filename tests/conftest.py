"""What every test relies on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

# Before torch is imported: a waiting OpenMP thread must not burn the core that other threads need.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

import torch_neuronx

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _leave_no_trace():
    """A test may change the current device, the fallback policy and the random state; the next one starts clean."""
    device = torch.neuron.current_device()
    policy = torch_neuronx.set_fallback_policy("warn")
    torch.manual_seed(0)
    yield
    torch_neuronx.set_fallback_policy(policy)
    torch.neuron.set_device(device)


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a fresh Python and returns the finished process, its output as text.

    `run_python(code, env={"NAME": "value"}, check=True)`; a value of None removes the variable.
    """

    def run(
        code: str, env: Mapping[str, str | None] | None = None, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ)
        for name, value in (env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode != 0:
            raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run
