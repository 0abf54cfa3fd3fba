"""`torch_neuronx.nki`: this project's kernel interface, also where another package has taken the name `nki`.

Where `import nki` gives this project's package, this is the same package. Otherwise it is loaded from beside
torch_neuronx under this name, with a warning that says so.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_NAME = __name__
_HERE = Path(__file__).resolve().parents[1] / "nki" / "__init__.py"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes `torch_neuronx.nki.x` the module `nki.x`, not a second copy of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_NAME + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module("nki" + spec.name.removeprefix(_NAME))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias here


def _load() -> ModuleType:
    spec = importlib.util.find_spec("nki")
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == _HERE:
        sys.meta_path.insert(0, _Alias())
        return importlib.import_module("nki")
    where = spec.origin if spec is not None else "nowhere"
    warnings.warn(
        f"`import nki` finds another package ({where}); the one of torch-neuronx is torch_neuronx.nki", stacklevel=3
    )
    spec = importlib.util.spec_from_file_location(_NAME, _HERE, submodule_search_locations=[str(_HERE.parent)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


sys.modules[_NAME] = _load()
