"""accelerate's own tests of one process, from its source distribution, with the neuron device as the one it finds."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest

FILES = ("accelerator", "optimizer", "scheduler", "data_loader", "memory_utils", "hooks", "utils", "grad_sync",
         "modeling_utils", "kwargs_handlers")  # fmt: skip

# Tests that cannot pass on this device, and what the error of each one says. One that passes fails here.
FLOAT16 = r"fp16 mixed precision requires a device in"  # accelerate lists the devices that it trains on in float16
PROCESSES = r"Unknown backend type neuron"  # the device has no collectives
CANNOT_PASS = {
    "AcceleratorTester::test_can_unwrap_model_fp16": FLOAT16,
    "OptimizerTester::test_accelerated_optimizer_step_was_skipped": FLOAT16,
    "KwargsHandlerTester::test_autocast_kwargs": FLOAT16,
    "KwargsHandlerTester::test_grad_scaler_kwargs": FLOAT16,
    # The test itself lists the devices it knows.
    "AcceleratorTester::test_accelerator_can_be_reinstantiated": r"assert 'neuron' in \['cuda'",
    # Asks the hub for a configuration.
    "ModelingUtilsTester::test_infer_auto_device_map_on_t0pp": r"couldn.t connect to",
    # Several processes. With collectives the last one still fails: it is for CUDA and XPU.
    "SyncScheduler::test_gradient_sync_gpu_multi": PROCESSES,
    "KwargsHandlerTester::test_ddp_kwargs": PROCESSES,
    "KwargsHandlerTester::test_ddp_comm_hook": PROCESSES,
}

# Why a test of accelerate leaves itself out: it is for other hardware, or accelerate itself does not run it by default.
# Another reason fails: something is missing in the environment.
LEFT_OUT = re.compile(r"CUDA|XPU|TPU|only a CPU|requires a GPU|FP8|triton|test is slow|always skipped")


@dataclass
class Result:
    outcome: str  # "passed", "failed" or "skipped"
    text: str


def sources() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "torch-neuronx" / "ecosystem" / f"accelerate-{importlib.metadata.version('accelerate')}" / "tests"
    assert folder.is_dir(), f"{folder} is not there: remove .venv-ecosystem/.ready and run make ecosystem"
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    report = tmp_path_factory.mktemp("accelerate") / "report.xml"
    folder = sources()
    # Its own configuration, wherever the cache is: pytest would search the folders above it as well.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["-c", str(folder.parent / "pyproject.toml"), f"--rootdir={folder.parent}"]
    environment = os.environ | {
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "NEURON_RT_NUM_CORES": "2",  # tests of several devices use all there are
        "TORCH_NEURONX_FALLBACK": "raise",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*command, *(f"test_{name}.py" for name in FILES)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        outcome, text = "passed", ""
        for part in case:
            if part.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if part.tag == "skipped" else "failed"
                text += f"{part.attrib.get('message', '')}\n{part.text or ''}"
        if name not in found or outcome == "failed":  # subtests come under the name of their test
            found[name] = Result(outcome, text)
    return found


def test_the_rest_passes(results: dict[str, Result]) -> None:
    failed = {name: result.text for name, result in results.items() if result.outcome == "failed"}
    unexpected = [f"{name}\n{text}" for name, text in failed.items() if name not in CANNOT_PASS]
    assert not unexpected, "\n\n".join(unexpected)


@pytest.mark.parametrize("name", CANNOT_PASS)
def test_cannot_pass(name: str, results: dict[str, Result]) -> None:
    assert results[name].outcome == "failed", f"{name} is {results[name].outcome}: take it out of the table"
    assert re.search(CANNOT_PASS[name], results[name].text), results[name].text


def test_leaves_out_only_what_is_for_other_hardware(results: dict[str, Result]) -> None:
    skipped = {name: result.text for name, result in results.items() if result.outcome == "skipped"}
    assert not {name: text for name, text in skipped.items() if not LEFT_OUT.search(text)}
