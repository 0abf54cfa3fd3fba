"""Kernels: traced once for each signature, run by the interpreter."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torch_neuronx import config

from . import ir, operators
from .arguments import Kind, dtype_of, is_tensor, sizes_of, stored
from .dtypes import DTYPES
from .errors import Location, NkiError, NkiNotImplementedError, NkiTypeError, NkiValueError
from .interp import execute
from .layout import lay_out
from .records import NKIObject
from .source import here
from .target import Target, resolve
from .tensor import NkiTensor
from .trace import Tracer, activate, check_shape, tracing

ALIAS = ".must_alias_input"  # suffix that public kernels give to arguments that they write


def precise() -> bool:
    """NKI_PRECISE_FP: True, the default, rounds 16-bit and 8-bit floating point as it is stored."""
    return config.get_bool("NKI_PRECISE_FP")


class Kernel:
    """A kernel. `kernel(...)` runs it on one core, `kernel[2](...)` on the two cores of a logical core.

    Tensor arguments are NumPy arrays, CPU tensors or neuron tensors, all of one kind; results are of the same kind and
    on the same device. Arguments that the kernel writes are changed in place. All other arguments are constants of
    the trace. Traces are kept for each signature: shapes, dtypes, constants, target, number of cores.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        cores: int = 1,
        schedule: Sequence[tuple[str, Any]] = (),
        siblings: dict[int, Kernel] | None = None,
    ) -> None:
        if not callable(function):
            raise NkiTypeError(f"a kernel is a function, not {function!r}")
        functools.update_wrapper(self, function)
        self.function = function
        self._cores = cores
        self._schedule = tuple(schedule)
        self._programs: dict[Any, tuple[ir.Program, _Results]] = {}
        # kernel[1] and kernel[2] exist from the beginning: a graph that calls one finds it where it was.
        self._siblings = {} if siblings is None else siblings
        self._siblings[cores] = self
        if siblings is None:
            Kernel(function, 3 - cores, schedule, self._siblings)

    def __getitem__(self, cores: int | tuple[int, ...]) -> Kernel:
        count = cores[0] if isinstance(cores, tuple) and len(cores) == 1 else cores
        if count not in (1, 2) or isinstance(count, bool):
            raise NkiValueError(f"kernel[{cores!r}]: a kernel runs on 1 or 2 cores", location=here())
        return self._siblings[count]

    def with_schedule(self, edges: Sequence[tuple[str, str | Sequence[str]]]) -> Kernel:
        """The kernel with (consumer, producer or producers) pairs of instruction names that must run in this order."""
        pairs = [(str(late), (early,) if isinstance(early, str) else tuple(early)) for late, early in edges]
        other = Kernel(self.function, self._cores, tuple(pairs))
        for kernel in other._siblings.values():
            kernel._programs = self._programs
        return other

    def __repr__(self) -> str:
        return f"kernel {self.function.__name__!r}"

    def program(self, *args: Any, **kwargs: Any) -> ir.Program:
        """The instruction program for these arguments, traced now or before. The data of tensors does not matter."""
        return self.traced(*self.bind(args, kwargs))[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return operators.call_in_graph(self, args, kwargs)
        if tracing():
            return self.function(*args, **kwargs)  # a kernel called by a kernel is a plain function
        bound, tensors = self.bind(args, kwargs)
        values = [value for _, value in tensors]
        if operators.needs_operator(values):
            return operators.call(operators.operator(self, bound, tensors), values)
        kind = Kind(tensors)
        traced = self.traced(bound, tensors)
        return traced[1].build(self.launch(traced, kind, tensors))

    def launch(self, traced: tuple[ir.Program, _Results], kind: Kind, tensors: list[tuple[str, Any]]) -> list[Any]:
        """Runs a traced program on these tensors, changes those that it writes, and gives what it returns."""
        program, results = traced
        memory = {number: stored(value) for number, (_, value) in zip(program.inputs, tensors, strict=True)}
        final = execute(program, memory)
        written = operators.written_inputs(program)
        for number, (_, value) in zip(program.inputs, tensors, strict=True):
            if number in written:
                kind.put_back(value, final[number])
        outputs = []
        inputs = dict(zip(program.inputs, tensors, strict=True))
        for number, shape in zip(program.outputs, results.shapes, strict=True):
            tensor = program.tensors[number]
            if number in inputs and shape == tensor.shape:
                outputs.append(inputs[number][1])
            else:
                outputs.append(kind.result(final[number], shape, DTYPES[tensor.dtype]))
        return outputs

    def bind(self, args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, list[tuple[str, Any]]]:
        """The arguments of a call by parameter, and its tensors by name."""
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise NkiTypeError(f"{self!r}: {error}") from None
        bound.apply_defaults()
        found: list[tuple[str, Any]] = []
        for name, value in bound.arguments.items():
            _collect(name, value, found)
        # One tensor given twice is one input: what is written through one name is read through the other.
        unique = {id(value): (name, value) for name, value in reversed(found)}
        return bound, [pair for pair in found if unique[id(pair[1])][0] == pair[0]]

    def traced(self, bound: inspect.BoundArguments, tensors: list[tuple[str, Any]]) -> tuple[ir.Program, _Results]:
        """The program for a call and what it returns."""
        return self.cached(bound, tensors) or self._trace(bound, tensors, resolve())

    def cached(
        self, bound: inspect.BoundArguments, tensors: list[tuple[str, Any]]
    ) -> tuple[ir.Program, _Results] | None:
        """The program for a call, kept for later ones. None when a constant has no stand-in: it may have changed."""
        target = resolve()
        places = {id(value): index for index, (_, value) in enumerate(tensors)}
        try:
            constants = tuple((name, _freeze(value, places)) for name, value in bound.arguments.items())
            key = (constants, target.name, self._cores, self._schedule, precise())
            found = self._programs.get(key)
        except (TypeError, RecursionError):
            return None
        if found is None:
            found = self._programs[key] = self._trace(bound, tensors, target)
        return found

    def _trace(
        self, bound: inspect.BoundArguments, tensors: list[tuple[str, Any]], target: Target
    ) -> tuple[ir.Program, _Results]:
        program = ir.Program(self.function.__name__, target.name, precise(), [], [], [], [])
        views: dict[int, NkiTensor] = {}
        shared: list[int] = []
        results: _Results | None = None
        code = getattr(self.function, "__code__", None)
        location = Location(code.co_filename, code.co_firstlineno) if code else None
        for core in range(self._cores):
            trace = Tracer(program, target, core, self._cores)
            trace.other_shared = shared
            with activate(trace):
                if core == 0:
                    for name, value in tensors:
                        views[id(value)] = self._input(trace, name, value)
                arguments = {name: _substitute(value, views) for name, value in bound.arguments.items()}
                call = inspect.BoundArguments(bound.signature, arguments)  # type: ignore[arg-type]
                returned = self.function(*call.args, **call.kwargs)
            program.cores.append(trace.instructions)
            if trace.broken_loop is not None:
                raise NkiError(
                    "a loop that runs on the device cannot be left early",
                    instruction="dynamic_range",
                    location=trace.broken_loop,
                )
            found = _Results(returned, location)
            if results is not None and found.tensors != results.tensors:
                raise NkiValueError(f"{self!r} returns different tensors on the two cores", location=location)
            results, shared = found, trace.shared
        assert results is not None
        program.outputs = results.tensors
        self._order(program)
        lay_out(program, target)
        return program, results

    def _input(self, trace: Tracer, name: str, value: Any) -> NkiTensor:
        if value.ndim == 0:
            raise NkiTypeError(f"{self!r}: argument {name} has no dimensions; give it the shape (1,)")
        try:
            dtype = dtype_of(value)
        except NkiTypeError as error:
            raise NkiTypeError(f"{self!r}: argument {name}: {error.problem}") from None
        shape = check_shape(sizes_of(value), f"argument {name}")
        view = trace.tensor(shape, dtype, "shared_hbm", name.removesuffix(ALIAS), kind="input")
        trace.program.inputs.append(view._storage.number)
        return view

    def _order(self, program: ir.Program) -> None:
        """Adds the edges of `with_schedule`."""
        for items in program.cores:
            named: dict[str, list[ir.Instruction]] = {}
            for item in items:
                for inner in item.walk():
                    if inner.name:
                        named.setdefault(inner.name, []).append(inner)
            for late, early in self._schedule:
                for name in (late, *early):
                    if name not in named:
                        raise NkiValueError(f"with_schedule: {self!r} has no instruction named {name!r}")
                for consumer in named[late]:
                    consumer.after += [producer.number for name in early for producer in named[name]]


class _Results:
    """What a kernel returned: one tensor or a tuple of them, as tensor numbers."""

    def __init__(self, returned: Any, location: Location | None) -> None:
        self.single = isinstance(returned, NkiTensor)
        values = (returned,) if self.single else () if returned is None else returned
        if not isinstance(values, tuple | list):
            raise NkiTypeError(f"a kernel returns tensors, not {returned!r}", location=location)
        self.tensors: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        for value in values:
            if not isinstance(value, NkiTensor):
                raise NkiTypeError(f"a kernel returns tensors, not {value!r}", location=location)
            whole = NkiTensor.whole(value._storage)
            if value.buffer != "shared_hbm":
                raise NkiValueError(
                    f"{value!r} is returned: results are in shared HBM, nl.ndarray(..., buffer=nl.shared_hbm)",
                    location=value._storage.location,
                )
            same = (value.size, value.offset, value.dtype) == (whole.size, 0, whole.dtype)
            if not same or not value.is_contiguous() or value.is_indirect():
                raise NkiValueError(f"{value!r} is a part of a tensor: a kernel returns whole ones", location=location)
            self.tensors.append(value._storage.number)
            self.shapes.append(value.shape)

    def build(self, outputs: list[Any]) -> Any:
        """The results of a call in the form that the kernel returned them in."""
        if self.single:
            return outputs[0]
        return tuple(outputs) if outputs else None


def _collect(name: str, value: Any, tensors: list[tuple[str, Any]]) -> None:
    if is_tensor(value):
        tensors.append((name, value))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            _collect(f"{name}[{index}]", item, tensors)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{name}[{key!r}]", item, tensors)


def _substitute(value: Any, views: dict[int, NkiTensor]) -> Any:
    if is_tensor(value):
        return views[id(value)]
    if type(value) in (tuple, list):
        return type(value)(_substitute(item, views) for item in value)
    if type(value) is dict:
        return {key: _substitute(item, views) for key, item in value.items()}
    return value


def _freeze(value: Any, places: dict[int, int]) -> Any:
    """A hashable stand-in for an argument: what its trace depends on. TypeError when there is none."""
    if is_tensor(value):
        if id(value) in places:
            return ("tensor", sizes_of(value), str(value.dtype), places[id(value)])
        if isinstance(value, np.ndarray):  # in a record: a constant
            return ("array", value.shape, value.dtype.str, value.tobytes())
        raise TypeError("a PyTorch tensor inside a record")
    if type(value) in (tuple, list):
        return (type(value).__name__, tuple(_freeze(item, places) for item in value))
    if type(value) is dict:
        return ("dict", tuple((key, _freeze(item, places)) for key, item in value.items()))
    if _is_record(value):
        return (type(value), _freeze(vars(value), places))
    return (type(value), value)


def _is_record(value: Any) -> bool:
    """True for objects that are equal only to themselves although what counts is their fields, which may change."""
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return False
    if isinstance(value, NKIObject) or dataclasses.is_dataclass(value):
        return True
    plain = getattr(type(value), "__hash__", None) == object.__hash__
    return plain and not callable(value) and not isinstance(value, types.ModuleType)


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Makes a kernel of a function: `@nki.jit`. See `Kernel` for calls.

    The function runs once for each signature, with tensors in HBM in place of the arguments, and returns tensors that
    it made with nl.ndarray(..., buffer=nl.shared_hbm). `options` are for AWS's compiler (mode, debug_kernel, ...):
    they are accepted, and nothing here acts on them.
    """
    if function is None:
        return functools.partial(jit, **options)
    return function if isinstance(function, Kernel) else Kernel(function)


def simulate(kernel: Any, check: Any = None) -> Kernel:
    """The kernel, to be run by the simulator: `nki.simulate(kernel)(a, b)`, `nki.simulate(kernel[2])(a, b)`.

    Takes a kernel or a plain function. `check` is reserved for race and saturation checks, which do not exist yet.
    """
    if check is not None:
        raise NkiNotImplementedError(f"simulate(check={check!r}): race and saturation checks are not implemented")
    result: Kernel = jit(kernel)
    return result


__all__ = ["Kernel", "jit", "precise", "simulate"]
