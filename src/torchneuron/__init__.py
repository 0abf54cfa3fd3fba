"""The command-line tool `torchneuron`.

A package of its own, beside torch_neuronx, because importing anything of torch_neuronx imports PyTorch: `--help` and
shell completion must answer before that.
"""

from __future__ import annotations

import importlib.util
import sys

MISSING = (
    "torchneuron: error: the command-line tool needs {names}, which {verb} not installed. They are the extra 'cli' of "
    "this package: pip install 'torch-neuronx[cli]', or pip install typer rich."
)


def main() -> None:
    """Entry point of the console script. Exit status 2 when the extra `cli` is not installed."""
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(MISSING.format(names=" and ".join(missing), verb="is" if len(missing) == 1 else "are"), file=sys.stderr)
        sys.exit(2)
    from torchneuron.app import app

    app()
