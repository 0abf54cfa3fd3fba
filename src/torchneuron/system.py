"""What `ls` and `env` print, as plain values."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchneuron.errors import CommandError

PACKAGES = ("torch-neuronx", "torch", "numpy", "jaxlib", "typer", "rich", "transformers", "diffusers", "accelerate")
PREFIXES = ("TORCH_NEURONX_", "NEURON_", "NKI_")


def topology() -> dict[str, Any]:
    """The emulated machine. Sizes in bytes. CommandError when a variable that describes it is wrong."""
    from torch_neuronx import _C, neuron
    from torch_neuronx.chips import CHIPS

    try:
        facts: dict[str, Any] = dict(_C.topology())
    except (RuntimeError, ValueError) as error:
        raise CommandError(str(error)) from None
    chip = CHIPS[facts["chip"]]
    facts["hbm_bytes_per_chip"] = int(chip.hbm_bytes)
    facts["physical_cores_per_chip"] = int(chip.cores)
    facts["devices"] = [
        {
            "device": f"neuron:{index}",
            "logical_core": core,
            "chip": core * facts["lnc"] // int(chip.cores),
            "hbm_bytes": facts["hbm_bytes_per_core"],
            "in_use_bytes": neuron.memory_reserved(index) if neuron.is_initialized() else 0,
        }
        for index, core in enumerate(facts["visible"])
    ]
    facts["processes"] = list(processes())
    return facts


def processes(root: Path = Path("/proc")) -> Iterator[dict[str, Any]]:
    """Other processes of this user that have loaded the device. Each has an emulated chip of its own."""
    for folder in sorted(root.glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(folder.name) == os.getpid():
            continue
        try:
            if "/torch_neuronx/_C." not in (folder / "maps").read_text():
                continue
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, ValueError):  # it ended meanwhile, or is another user's
            continue
        name = " ".join(Path(word).name if "/" in word else word for word in command[:2]).strip()
        yield {"pid": int(folder.name), "command": name, "resident_bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def environment(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Versions, host, chip and settings. Values are shown only of variables that this package knows."""
    import torch

    import torch_neuronx
    from torch_neuronx import _build_info

    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "build": {
            "torch_neuronx": torch_neuronx.__version__,
            "built for torch": _build_info.TORCH_VERSION,
            "installed at": _shown(str(Path(torch_neuronx.__file__).parent)),
            "CUDA in torch": str(torch.version.cuda or "none"),
        },
        "host": {
            "system": f"{platform.system()} {platform.release()} ({_distribution()})",
            "python": f"{platform.python_version()} ({_shown(sys.executable)})",
            "cpu": _cpu_model(),
            "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
            "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB",
        },
        "chip": _chip(),
        "compiler": {"neuronx-cc": _shown(shutil.which("neuronx-cc") or "not on PATH")},
        "variables": settings(os.environ if variables is None else variables),
    }


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and concern the device. Of unknown ones only that they are set: they may be secret."""
    from torch_neuronx import config

    return {
        name: _shown(value) if name in config.VARIABLES else "(set, not shown: not a variable of this package)"
        for name, value in sorted(variables.items())
        if name in config.VARIABLES or name.startswith(PREFIXES)
    }


def _chip() -> dict[str, str]:
    try:
        facts = topology()
    except CommandError as error:
        return {"error": str(error)}
    return {
        "instance": facts["instance"],
        "chip": f"{facts['chip']} x {facts['chips']}",
        "logical cores": f"{facts['logical_cores']} of {facts['lnc']} physical (LNC {facts['lnc']})",
        "visible": ", ".join(map(str, facts["visible"])),
        "HBM": f"{facts['hbm_bytes_per_core'] / 2**30:g} GiB a core",
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _shown(text: str) -> str:
    """Without the name of the user's home folder."""
    home = str(Path.home())
    return text.replace(home, "~") if home != "/" else text


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown distribution"
