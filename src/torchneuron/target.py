"""What the user names on the command line: a script, or a function that gives a model."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from torchneuron.errors import CommandError

PROTOCOL = (
    "A FUNCTION takes no arguments and returns (model, args) or (model, args, kwargs), or runs its work on the neuron "
    "device itself"
)


class Target(NamedTuple):
    """`function` is empty for a script."""

    module: str  # a path that ends in .py, or a dotted name
    function: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}" if self.function else self.module


class Case(NamedTuple):
    """A model and what to call it with."""

    model: Callable[..., Any]
    args: Any
    kwargs: Mapping[str, Any]


def parse(text: str) -> Target:
    """CommandError for what is neither a script nor MODULE:FUNCTION."""
    module, colon, function = text.rpartition(":")
    if colon and module and function.isidentifier():
        return Target(module, function)
    if not colon and text.endswith(".py"):
        return Target(text, "")
    raise CommandError(
        f"{text!r} is neither a script nor a function. Give the path of a script, as in train.py, or a function, as in "
        "package.models:small or models.py:small."
    )


def readable(path: str) -> str:
    """The absolute path of a Python file. CommandError when it cannot be read."""
    if os.path.isdir(path):
        raise CommandError(f"{path!r} is a folder. Give a Python file in it.")
    try:
        with open(path, "rb"):
            return os.path.abspath(path)
    except FileNotFoundError:
        raise CommandError(f"there is no file {path!r} (in {os.getcwd()}). Correct the path.") from None
    except OSError as error:
        raise CommandError(f"{path!r} cannot be read: {error.strerror}. Change its permissions, or the path.") from None


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Runs a script as `python path arguments` does. CommandError when it raises or ends with a status other than 0."""
    file = readable(path)
    previous, search = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [path, *arguments], os.path.dirname(file)
    try:
        with naming_errors(path, file):
            runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise CommandError(
                f"{path} ended with status {end.code}, so that the report would be of half a run. Correct its "
                "arguments, which come after its name."
            ) from None
    finally:
        sys.argv, sys.path[0] = previous, search


def load_function(target: Target) -> Callable[[], Any]:
    """The function that a target names. CommandError when it cannot be imported."""
    with naming_errors(target.module, target.module):
        module = _import(target.module)
    function = getattr(module, target.function, None)
    if function is None:
        names = sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        have = f"It has {', '.join(names[:10])}." if names else "It has no function at all."
        raise CommandError(f"{target.module} has no function {target.function!r}. {have}")
    if not callable(function):
        raise CommandError(f"{target} is a {type(function).__name__}, not a function. {PROTOCOL}.")
    return function  # type: ignore[no-any-return]


def _import(name: str) -> ModuleType:
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise
            raise CommandError(
                f"there is no module {name!r}: neither in {os.getcwd()} nor among the installed packages. For a file, "
                "give its path, as in models.py:small."
            ) from None
    file = readable(name)
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(file))[0], file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(file))
    spec.loader.exec_module(module)
    return module


def case(result: Any) -> Case | None:
    """The model and arguments that a function returned; None for a function that returned anything else."""
    if isinstance(result, tuple) and len(result) in (2, 3) and callable(result[0]):
        model, args, *rest = result
        if isinstance(args, Mapping) and not rest:
            return Case(model, (), args)
        kwargs = rest[0] if rest else {}
        if not isinstance(kwargs, Mapping):
            raise CommandError(f"the third value is a {type(kwargs).__name__}, not a dictionary of names. {PROTOCOL}.")
        return Case(model, args, kwargs)
    return None


@contextmanager
def naming_errors(what: str, file: str) -> Iterator[None]:
    """Turns an error of the user's code into a CommandError with its line. Running out of device memory passes."""
    try:
        yield
    except (CommandError, SystemExit, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        raise CommandError(f"{error.filename}:{error.lineno} is not Python: {error.msg}. Correct it.") from error
    except BaseException as error:
        import torch

        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise CommandError(describe(what, file, error)) from error


def describe(what: str, file: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.abspath(frame.filename) == os.path.abspath(file)] or frames
    where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    lines = str(error).strip().splitlines()
    text = f"{what} raised {type(error).__name__}{where}: {lines[0] if lines else 'no message'}"
    return f"{text.rstrip('.')}. {_remedy(str(error))}"


def _remedy(message: str) -> str:
    if "CUDA" in message or "cuda" in message:
        return (
            "It asks for CUDA, so that nothing ran on neuron. Use the device 'neuron', or "
            "torch.accelerator.current_accelerator(), which is neuron here."
        )
    return "--traceback shows where in full; running it with python alone tells whether the check has to do with it."
