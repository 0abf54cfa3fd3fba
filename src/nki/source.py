"""Which line of a kernel is running."""

from __future__ import annotations

import contextlib
import os
import sys

from .errors import Location

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_KERNELS = os.path.join(_PACKAGE, "kernels") + os.sep


def here() -> Location | None:
    """The innermost line outside of this package; the kernels that come with it count as outside.

    A `with` statement of the kernel enters and leaves through contextlib, which is no line of the kernel.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (not file.startswith(_PACKAGE) or file.startswith(_KERNELS)) and file != contextlib.__file__:
            return Location(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None
