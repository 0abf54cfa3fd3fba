"""Registers of the sequencer, and loops whose bounds are known only while the kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import ir
from .errors import NkiTypeError, NkiValueError
from .source import here
from .tensor import Scalar
from .trace import tracer


def operand(value: Any, what: str, operands: dict[str, ir.Operand], attributes: dict[str, Any], key: str) -> None:
    """Puts an integer into the attributes, or a register into the operands."""
    if isinstance(value, Scalar):
        operands[key] = value.register
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        number = value.__index__()
        if not -(1 << 31) <= number < 1 << 32:
            raise NkiValueError(f"{what}: {number} does not fit into a 32-bit register", location=here())
        attributes[key] = number
    else:
        raise NkiTypeError(f"{what}: {value!r} is neither an integer nor a register", location=here())


def compute(op: str, left: Any, right: Any) -> Scalar:
    """A new register: left op right."""
    trace = tracer()
    result = trace.register()
    operands: dict[str, ir.Operand] = {"dst": result.register}
    attributes: dict[str, Any] = {"op": op}
    operand(left, op, operands, attributes, "left")
    operand(right, op, operands, attributes, "right")
    trace.emit("register_alu", "sync", operands, attributes)
    return result


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Scalar], None], step: int = 1) -> None:
    """Runs `body_fun(index)` on the device for lower, lower + step, ... below upper. Bounds: integers or registers.

    `body_fun` is traced once. It returns None; what it leaves behind goes through tensors allocated outside.
    NkiValueError for a step that is not a positive integer, or a body that returns something.
    """
    for _ in _loop(lower, upper, step, body_fun):
        pass


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[Scalar]:
    """`for i in nl.dynamic_range(...)`: the body is traced once and loops on the device. Deprecated for fori_loop."""
    lower, upper = (0, start) if stop is None else (start, stop)
    return _loop(lower, upper, step, None)


def _loop(lower: Any, upper: Any, step: int, body_fun: Callable[[Scalar], None] | None) -> Iterator[Scalar]:
    trace = tracer()
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise NkiValueError(f"fori_loop: step {step!r} is not a positive integer", location=here())
    index = trace.register()
    operands: dict[str, ir.Operand] = {"index": index.register}
    attributes: dict[str, Any] = {"step": step}
    operand(lower, "fori_loop: lower", operands, attributes, "lower")
    operand(upper, "fori_loop: upper", operands, attributes, "upper")
    with trace.nested() as body:
        if body_fun is None:
            try:
                yield index
            except GeneratorExit:
                trace.broken_loop = here()  # `break`: an exception raised here would be lost
                return
        elif (result := body_fun(index)) is not None:
            raise NkiValueError(f"fori_loop: the body returned {result!r}, it must return None", location=here())
    trace.emit("for", "sync", operands, attributes, body=body)


def while_loop(init: Any, body_fun: Callable[[], Any]) -> None:
    """Runs `body_fun()` on the device as long as the condition is not 0: first `init`, then what the body returns.

    Both are registers (or an integer as `init`). NkiTypeError when the body returns something else.
    """
    trace = tracer()
    condition = trace.register()
    operands: dict[str, ir.Operand] = {"dst": condition.register}
    attributes: dict[str, Any] = {}
    operand(init, "while_loop: init", operands, attributes, "src")
    trace.emit("register_move", "sync", operands, attributes)
    with trace.nested() as body:
        result = body_fun()
        if not isinstance(result, Scalar):
            raise NkiTypeError(f"while_loop: the body returned {result!r}, not a register", location=here())
        trace.emit("register_move", "sync", {"dst": condition.register, "src": result.register}, {})
    trace.emit("while", "sync", {"condition": condition.register}, {}, body=body)
