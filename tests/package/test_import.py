"""`import torch` with the package installed: what it costs, what it does, how it fails."""

from __future__ import annotations

import importlib
import re
import statistics
import sys
from pathlib import Path

import pytest
import torch

import torch_neuronx
from torch_neuronx import _extension

ROOT = Path(__file__).resolve().parents[2]
LIMIT_MS = 50


def test_autoload(run_python) -> None:
    program = "import torch, sys; print('torch_neuronx' in sys.modules, torch.device('neuron'), torch.neuron.__name__)"
    assert run_python(program, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": None}).stdout.split() == [
        "True",
        "neuron",
        "torch_neuronx.neuron",
    ]


def test_autoload_can_be_turned_off(run_python) -> None:
    program = """
import torch, sys
assert "torch_neuronx" not in sys.modules and not hasattr(torch, "neuron")
try:
    torch.device("neuron")
except RuntimeError:
    print("unknown")
import torch_neuronx
print(torch.ones(2, device="neuron").sum().item(), torch_neuronx.neuron is torch.neuron)
"""
    assert run_python(program, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout.split() == ["unknown", "2.0", "True"]


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize(
    "first", ["import torch_neuronx", "import torch_neuronx.config", "from torch_neuronx import fallbacks"]
)
def test_package_may_be_imported_before_torch(first: str, autoload: str, run_python) -> None:
    program = f"{first}\nimport torch\nprint(torch.ones(2, device='neuron').sum().item())"
    assert run_python(program, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}).stdout.strip() == "2.0"


def test_import_touches_no_device(run_python) -> None:
    program = """
import torch
maps = open("/proc/self/maps").read().splitlines()
sizes = [int(end, 16) - int(start, 16) for start, end in (line.split()[0].split("-") for line in maps)]
assert max(sizes) < 16 << 30, "a window of device memory is reserved"
assert not torch.neuron.is_initialized()
assert torch.neuron.is_available() and torch.neuron.device_count() == 4  # asking starts nothing either
assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "neuron"
assert not torch.neuron.is_initialized()
torch.empty(1, device="neuron")
assert torch.neuron.is_initialized()
maps = open("/proc/self/maps").read().splitlines()
sizes = [int(end, 16) - int(start, 16) for start, end in (line.split()[0].split("-") for line in maps)]
assert max(sizes) >= 16 << 30, "the first check can see a window"
print("ok")
"""
    assert run_python(program, env={"LOCAL_RANK": None}).stdout.strip() == "ok"


@pytest.mark.parametrize("setting", ["NEURON_RT_VISIBLE_CORES=nonsense", "TORCH_NEURONX_FALLBACK=nonsense"])
def test_a_wrong_setting_does_not_break_import(setting: str, run_python) -> None:
    name, _, value = setting.partition("=")
    assert run_python("import torch; print('fine')", env={name: value}).stdout.strip() == "fine"


# What `import torch` does at its end, timed by itself: the difference of two whole imports, a second each, is noise.
# CPU time, so that a busy neighbour on the machine does not count. A little too strict: PyTorch looks for entry points
# (5 ms) with or without this package.
MEASURE = """
import time, torch
start = time.process_time()
torch._import_device_backends()
print(1000 * (time.process_time() - start))
"""


def test_import_time_grows_by_less_than_the_limit(run_python, record_property) -> None:
    """Median over fresh processes; the first one compiles the modules, as pip does, and fills the page cache."""
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": None}
    times = [float(run_python(MEASURE, env=env).stdout) for _ in range(6)][1:]
    median = statistics.median(times)
    record_property("import_growth_ms", median)
    print(f"import torch grows by {median:.1f} ms (limit {LIMIT_MS}): {[round(time, 1) for time in times]}")
    assert median <= LIMIT_MS


def test_entry_point_is_declared() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'\[project.entry-points."torch.backends"\]\s+torch_neuronx = "torch_neuronx:_autoload"', text)
    assert torch_neuronx._autoload() is None
    assert re.search(rf'^version = "{re.escape(torch_neuronx.__version__)}"$', text, re.M)


def test_versions_must_be_the_same_release() -> None:
    _extension.check_torch("2.13.0+cpu", "2.13.0")
    _extension.check_torch("2.13.0", "2.13.0+cu130")
    for installed in ("2.13.1", "2.14.0", "2.12.0+cpu", "2.14.0a0+git1234"):
        with pytest.raises(ImportError) as caught:
            _extension.check_torch("2.13.0+cpu", installed)
        message = str(caught.value)
        assert "built for torch 2.13.0" in message and f"torch {installed.partition('+')[0]} is installed" in message
        assert "pip install --no-build-isolation" in message and "\n" not in message


def test_mismatch_stops_import(run_python, tmp_path) -> None:
    """The package as it would be after an upgrade of torch: the sentence comes before the extension is loaded."""
    for path in Path(torch_neuronx.__file__).parent.rglob("*.py"):
        target = tmp_path / "torch_neuronx" / path.relative_to(Path(torch_neuronx.__file__).parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (tmp_path / "torch_neuronx" / "_build_info.py").write_text('TORCH_VERSION = "2.12.9"\n')
    program = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
sys.path.insert(0, {str(tmp_path)!r})
import torch
try:
    import torch_neuronx
except ImportError as error:
    print(error)
"""
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    release = torch.__version__.partition("+")[0]
    output = run_python(program, env=env).stdout
    assert output.startswith(f"torch_neuronx was built for torch 2.12.9, but torch {release} is installed")
    (tmp_path / "torch_neuronx" / "_build_info.py").write_text(f'TORCH_VERSION = "{release}"\n')
    output = run_python(program, env=env).stdout
    assert output.startswith("torch_neuronx has no compiled extension for Python"), output
    assert "pip install --no-build-isolation" in output and output.count("\n") == 1
    (tmp_path / "torch_neuronx" / "_build_info.py").unlink()
    assert run_python(program, env=env).stdout == output


def test_missing_extension_names_what_was_found(tmp_path) -> None:
    (tmp_path / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    message = _extension.missing_extension(tmp_path)
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in message
    assert "_C.cpython-39-x86_64-linux-gnu.so" in message


def test_another_backend_is_refused_by_name(run_python) -> None:
    program = """
import torch
torch.utils.rename_privateuse1_backend("other")
try:
    import torch_neuronx
except ImportError as error:
    print(error)
"""
    output = run_python(program, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout
    assert "'other' has taken it" in output


def test_extension_is_for_this_torch() -> None:
    info = importlib.import_module("torch_neuronx._build_info")
    assert torch.__version__ == info.TORCH_VERSION


def test_recognised_by_distribution_and_import(run_python) -> None:
    # accelerate, Transformers and Diffusers look for exactly these
    program = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("torch_neuronx"), importlib.util.find_spec("torch_neuronx") is not None)
"""
    assert run_python(program).stdout.split() == [torch_neuronx.__version__, "True"]
