"""Loads the compiled extension, after checking that it was built for the torch that is installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import torch

_REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps ."


def _release(version: str) -> str:
    """'2.13.0+cpu' -> '2.13.0': the build tag does not change PyTorch's headers, the release does."""
    return str(version).partition("+")[0]


def check_torch(built_for: str, installed: str) -> None:
    """Raise ImportError unless both torch versions are the same release.

    PyTorch gives no binary compatibility for device backends, not even between patch releases.
    """
    if _release(built_for) != _release(installed):
        raise ImportError(
            f"torch_neuronx was built for torch {_release(built_for)}, but torch {_release(installed)} is installed: "
            f"rebuild it with `{_REBUILD}` in its source directory, or install torch=={_release(built_for)}."
        )


def missing_extension(directory: Path) -> str:
    """One sentence that says why there is no extension to load in `directory` and what to do."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    others = sorted(path.name for path in directory.glob("_C*.so"))
    found = f" (found {', '.join(others)})" if others else ""
    return (
        f"torch_neuronx has no compiled extension for {python} in {directory}{found}: "
        f"build it with `{_REBUILD}` in its source directory."
    )


def load() -> ModuleType:
    """Import and return `torch_neuronx._C`; ImportError with one clear sentence when that cannot work."""
    try:
        built_for: str = importlib.import_module("torch_neuronx._build_info").TORCH_VERSION
    except ModuleNotFoundError:
        raise ImportError(missing_extension(Path(__file__).parent)) from None
    check_torch(built_for, torch.__version__)
    try:
        return importlib.import_module("torch_neuronx._C")
    except ModuleNotFoundError as error:
        if error.name != "torch_neuronx._C":
            raise
        raise ImportError(missing_extension(Path(__file__).parent)) from None
