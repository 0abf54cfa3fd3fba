"""Writes the chip numbers of src/torch_neuronx/chips as C++ tables.

Usage: gen_chip_data.py CHIPS_DIR OUT

Runs under `python -I` and needs no PyTorch: the package is loaded from its directory by path. The output depends on
the numbers only, and OUT is replaced, in one step, only when its content changes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load_chips(directory: Path) -> ModuleType:
    """The package in `directory`, without importing what is above it."""
    spec = importlib.util.spec_from_file_location(
        "_chips", directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    if spec is None or spec.loader is None or not (directory / "__init__.py").exists():
        raise SystemExit(f"gen_chip_data.py: {directory} is not a package: it has no __init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["_chips"] = module
    sys.dont_write_bytecode = True  # the build leaves nothing in the source tree
    spec.loader.exec_module(module)
    return module


def row(spec: Any, texts: tuple[str, ...], numbers: dict[str, int]) -> str:
    """One struct as a designated initialiser: the compiler checks names and order against chip.h."""
    fields = [f'.{name} = "{getattr(spec, name)}"' for name in texts]
    fields += [f".{name} = {int(value)}u" for name, value in numbers.items()]
    return "    {" + ", ".join(fields) + "},"


def tables(chips: ModuleType) -> str:
    """The text of chip_data.inc."""
    lines = ["// Written by tools/gen_chip_data.py from src/torch_neuronx/chips: change the numbers there.", ""]
    lines += ["constexpr ChipSpec kChips[] = {"]
    lines += [row(chip, ("name",), chips.numbers(chip)) for chip in chips.CHIPS.values()]
    lines += ["};", "", "constexpr ChipField kChipFields[] = {"]
    lines += [f'    {{"{name}", &ChipSpec::{name}}},' for name in chips.numbers(next(iter(chips.CHIPS.values())))]
    lines += ["};", "", "constexpr InstanceType kInstances[] = {"]
    lines += [row(instance, ("name", "chip"), chips.numbers(instance)) for instance in chips.INSTANCES.values()]
    lines += ["};", "", f'constexpr const char* kDefaultInstance = "{chips.DEFAULT_INSTANCE}";', ""]
    return "\n".join(lines)


def write_if_changed(path: Path, text: str) -> bool:
    """Replace the file in one step, unless it already has this content. True if it was written."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return True


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise SystemExit(__doc__)
    write_if_changed(Path(arguments[1]), tables(load_chips(Path(arguments[0]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
