"""Which line of the program an operator comes from."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from types import CodeType, FrameType
from typing import NamedTuple

import torch

_HERE = os.path.dirname(os.path.abspath(__file__))
_RUNNER = os.path.join(_HERE, "run.py")
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))
_SITE_PACKAGES = tuple(sysconfig.get_paths()[key] + os.sep for key in ("purelib", "platlib"))
# Code of these folders is never the program's own.
_LIBRARIES = tuple(
    folder + os.sep for folder in (os.path.dirname(os.path.abspath(torch.__file__)), os.path.dirname(_HERE))
)
_GENERATED = "<eval_with_key>"  # torch.fx names what it generates so
_MODULE_CALL = torch.nn.Module._call_impl.__code__


class Place(NamedTuple):
    """A line of the program. `file` is empty where no line is known."""

    file: str
    line: int
    function: str
    backward: bool = False  # the operator belongs to the backward of this line

    def __str__(self) -> str:
        if not self.file:
            return "an unknown line"
        return f"{short_path(self.file)}:{self.line}" + (" (backward)" if self.backward else "")


UNKNOWN = Place("", 0, "")


class Call(NamedTuple):
    """What the Python stack says about one operator."""

    place: Place
    compiled: bool  # the operator is part of a compiled graph
    root: FrameType | None  # the frame of the outermost nn.Module.__call__


class Places:
    """Finds the line of each operator. Backward operators have no Python stack: they are led back to their forward.

    PyTorch numbers the nodes of its autograd graph in the order in which a thread makes them. A node gets its number
    just before its operator is dispatched, so that the number to come next, less one, is that of the operator's node.
    """

    def __init__(self) -> None:
        self._forward: dict[int, Place] = {}
        self._owner = threading.get_ident()
        self._program: dict[CodeType, bool] = {}

    def find(self) -> Call:
        """The line that called the operator which is being dispatched, from inside `__torch_dispatch__`."""
        place: Place | None = None
        compiled, root = False, None
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if _is_outside(code.co_filename):
                break
            if code is _MODULE_CALL:
                root = frame
            elif place is None:
                if code.co_filename.startswith(_GENERATED):
                    compiled, place = True, _of_generated_code(frame)
                elif self._is_program(code):
                    place = Place(code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
        node = torch._C._current_autograd_node()
        if node is None:
            if place is not None and threading.get_ident() == self._owner:
                self._forward[torch.autograd._get_sequence_nr() - 1] = place  # type: ignore[attr-defined]
        elif place is None:
            forward = self._forward.get(node._sequence_nr())
            place = forward._replace(backward=True) if forward else None
        return Call(place or UNKNOWN, compiled, root)

    def _is_program(self, code: CodeType) -> bool:
        known = self._program.get(code)
        if known is None:
            known = self._program[code] = _is_program(os.path.abspath(code.co_filename))
        return known


def _is_outside(file: str) -> bool:
    """Whether a frame of this file is what started the program: nothing further out belongs to it."""
    return file == _RUNNER or file == "<frozen runpy>" or file.endswith(os.sep + "runpy.py")


def _is_program(file: str) -> bool:
    if file.startswith(_LIBRARIES) or not os.path.exists(file):
        return False
    return not file.startswith(_STDLIB + os.sep) or file.startswith(_SITE_PACKAGES)


def _of_generated_code(frame: FrameType) -> Place:
    """The line of the program behind a line that torch.fx generated."""
    module = frame.f_locals.get("self")
    lines = getattr(module, "_lineno_map", None)
    if not isinstance(module, torch.fx.GraphModule) or not lines:
        return UNKNOWN
    index = lines.get(frame.f_lineno - module._prologue_start)
    nodes = list(module.graph.nodes)
    return of_trace(nodes[index].stack_trace) if index is not None and index < len(nodes) else UNKNOWN


def of_trace(trace: str | None) -> Place:
    """The innermost line of a stack trace as text that is not PyTorch's."""
    for line in reversed((trace or "").splitlines()):
        parts = line.strip().split('"')
        if len(parts) != 3 or not line.strip().startswith("File "):
            continue
        number, _, function = parts[2].removeprefix(", line ").partition(", in ")
        if number.isdecimal() and _is_program(parts[1]):
            return Place(parts[1], int(number), function)
    return UNKNOWN


def short_path(file: str) -> str:
    """A path as one would say it: relative to the current folder, or to where packages are installed."""
    for folder in _SITE_PACKAGES:
        if file.startswith(folder):
            return file[len(folder) :]
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
