"""Writes docs/environment.md from the table in src/torch_neuronx/config.py.

Usage: gen_environment_doc.py [--check]    (--check: exit status 1 when the page is not up to date)
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "environment.md"

HEAD = """# Environment variables

<!-- Written by tools/gen_environment_doc.py from src/torch_neuronx/config.py; change it there. -->

The device reads its variables when it starts, at the first use of a device; a value that is not valid raises
`ValueError` and names the variable, the value and what is allowed. Booleans take 0, 1, true or false. A name that
begins with `TORCH_NEURONX_` and is not on this page gives a warning with the closest name that is.

PyTorch's own `TORCH_DEVICE_BACKEND_AUTOLOAD=0` keeps `import torch` from loading this package; `import torch_neuronx`
then loads it.
"""

SECTIONS = (
    ("works", "## Variables that work", ""),
    (
        "nothing to do",
        "## Variables with nothing to do",
        "Scripts for Trainium set these. They are accepted, and ask for something that the emulated device always or "
        "never does.",
    ),
    (
        "planned",
        "## Variables of parts that are not built yet",
        "Known names that this version does not act on. Setting one that begins with `TORCH_NEURONX_` gives a warning.",
    ),
)


def load_config() -> ModuleType:
    """config.py by itself: the page can be written before the extension is built."""
    spec = importlib.util.spec_from_file_location("_config", ROOT / "src" / "torch_neuronx" / "config.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_config"] = module
    spec.loader.exec_module(module)
    return module


def page() -> str:
    """The text of docs/environment.md."""
    lines = [HEAD]
    for status, title, text in SECTIONS:
        lines += [title, ""] + ([text, ""] if text else [])
        lines += ["| variable | takes | default | meaning | since |", "|---|---|---|---|---|"]
        for variable in load_config().VARIABLES.values():
            if variable.status == status:
                takes = ", ".join(variable.choices) or variable.kind
                default = f"`{variable.default}`" if variable.default else ""
                lines.append(f"| `{variable.name}` | {takes} | {default} | {variable.meaning} | {variable.since} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
