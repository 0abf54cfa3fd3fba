"""Watches what a program dispatches to the device."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from torch_neuronx.checking import native
from torch_neuronx.checking.calls import LACKING, Leaf, Program, dtypes_of, signature, tensors_in
from torch_neuronx.checking.places import Place, Places

DEVICE = "neuron"
EXAMPLES = 4  # shapes that are kept of each place, to be shown


class Composition(NamedTuple):
    """An operator that the device composes of others, while it runs."""

    op: OpOverload
    programs: set[Program]


class OperatorCall(NamedTuple):
    """What is counted: an operator as the program calls it, and the operators that it is composed of on the device."""

    op: OpOverload
    dtypes: tuple[torch.dtype, ...]
    leaves: frozenset[Leaf]
    place: Place
    compiled: bool


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that run on the device while it is active, of this thread and of its backward passes.

    Tensors themselves are not kept: memory use is that of the program.
    """

    supports_higher_order_operators = True

    def __init__(self, knows: Callable[[OpOverload], bool], progress: Callable[[int], None] | None = None) -> None:
        """`knows`: whether the judge answers for an operator as it is, even if the device composes it of others."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.stopped: NotImplementedError | None = None  # the last error of an operator that is not implemented
        self.calls: Counter[OperatorCall] = Counter()
        self.uses: dict[tuple[torch.dtype, Place], Counter[str]] = defaultdict(Counter)
        self.programs: set[Program] = set()  # of operators outside of compiled graphs
        self.examples: dict[Leaf, Program] = {}  # one call of each
        self.data_dependent: dict[tuple[str, Place], Counter[str]] = defaultdict(Counter)
        self.inputs: dict[tuple[int, str], dict[tuple[Any, ...], None]] = defaultdict(dict)  # of the outermost modules
        self.elsewhere: Counter[str] = Counter()  # operators on other devices
        self._knows = knows
        self._progress = progress
        self._places = Places()
        self._open = threading.local()  # `compositions`: operators that are being composed, outermost first

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile works as without this mode, and the compiled graph's operators are seen when it runs."""
        return True

    def __torch_dispatch__(  # type: ignore[override]
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if isinstance(func, HigherOrderOperator):
            # cond, while_loop, scan...: they refuse to run under a mode, and what counts is inside their functions.
            return func(*(self._watched(arg) for arg in args), **{k: self._watched(v) for k, v in kwargs.items()})
        if any(issubclass(kind, FakeTensor) for kind in types):
            return func(*args, **kwargs)
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented  # a wrapper of tensors: what it does with them comes here again
        outer: list[Composition] = self._open.__dict__.setdefault("compositions", [])
        # An operator that is part of itself is detach: the tensor's own copying comes back here.
        whole = native.composite(native.op_name(func)) is None or self._knows(func) or any(c.op is func for c in outer)
        if whole:
            result = self._run(func, args, kwargs)
            programs = set(_program(func, args, kwargs, result))
        else:
            outer.append(Composition(func, set()))
            try:
                key = native.composite(native.op_name(func))
                result = self._inside(lambda: func._op_dk(key, *args, **kwargs))
            finally:
                programs = outer.pop().programs
        if outer:
            outer[-1].programs.update(programs)
        else:
            self._see(func, args, kwargs, result, programs)
        return result

    def _run(self, op: OpOverload, args: Any, kwargs: Any) -> Any:
        """Calls an operator as it is. That it is not implemented is a finding, and also ends the program."""
        try:
            return op(*args, **kwargs)
        except NotImplementedError as error:
            dtypes = dtypes_of(list(tensors_in((args, list(kwargs.values())))))
            leaf = Leaf(op, dtypes, error=str(error).strip().splitlines()[0])
            self.examples.setdefault(leaf, Program(leaf, None))
            self.calls[OperatorCall(op, dtypes, frozenset([leaf]), *self._places.find()[:2])] += 1
            self.stopped = error
            raise

    def _watched(self, value: Any) -> Any:
        """A function that runs under this mode; any other value as it is."""
        if not callable(value) or isinstance(value, torch.Tensor):
            return value
        return lambda *args, **kwargs: self._inside(lambda: value(*args, **kwargs))

    def _inside(self, run: Callable[[], Any]) -> Any:
        with self:
            return run()

    def _see(self, op: OpOverload, args: Any, kwargs: Any, result: Any, programs: set[Program]) -> None:
        """An operator that the program called."""
        tensors = list(tensors_in((args, list(kwargs.values()), result)))
        kinds = {t.device.type for t in tensors}
        if DEVICE not in kinds:
            self.elsewhere.update(kinds)
            return
        self.total += 1
        if self._progress is not None:
            self._progress(self.total)
        place, compiled, root = self._places.find()
        dtypes = dtypes_of(tensors)
        self.calls[OperatorCall(op, dtypes, frozenset(p.leaf for p in programs), place, compiled)] += 1
        for program in programs:
            self.examples.setdefault(program.leaf, program)
        if not compiled:
            self.programs |= programs
        name = native.op_name(op)
        if not op.is_view:
            for dtype in dtypes:
                if dtype in LACKING or dtype == torch.int64:
                    self.uses[dtype, place][name] += 1
        if any(program.leaf.data_sized for program in programs):
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors_in(result))
            self.data_dependent["size of the result depends on data", place][f"{name} {shapes}"] += 1
        if torch.Tag.data_dependent_output in op.tags:
            self.data_dependent["the host reads a value", place][name] += 1
        if root is not None and not isinstance(root.f_locals.get("self"), torch.fx.GraphModule):
            self._see_inputs(root)

    def _see_inputs(self, root: FrameType) -> None:
        """The shapes that the outermost module was called with."""
        values = root.f_locals
        shapes = tuple(tuple(t.shape) for t in tensors_in((values.get("args", ()), values.get("kwargs", {}))))
        if shapes:
            self.inputs[id(values["self"]), type(values["self"]).__name__][shapes] = None


def _program(op: OpOverload, args: Any, kwargs: Any, result: Any) -> Iterator[Program]:
    """The program of an operator that reaches the device as it is; none for one on other devices."""
    tensors = list(tensors_in((args, list(kwargs.values()), result)))
    if any(t.device.type == DEVICE for t in tensors):
        arguments = (signature(args), signature(tuple(sorted(kwargs.items()))))
        between = _COPIES if len({t.device.type for t in tensors}) > 1 else ()
        leaf = Leaf(op, dtypes_of(tensors), _is_data_sized(op, args))
        yield Program(leaf, None if native.op_name(op) in between else arguments)


def _is_data_sized(op: OpOverload, args: Any) -> bool:
    """Whether the size of the result depends on data. Indexing by numbers has a size that is known, by masks not."""
    if torch.Tag.dynamic_output_shape not in op.tags:
        return False
    if native.op_name(op) == "aten::index.Tensor":
        return any(t.dtype in (torch.bool, torch.uint8) for t in tensors_in(args[1]))
    return True


_COPIES = ("aten::copy_", "aten::_copy_from", "aten::_to_copy", "aten::_copy_from_and_resize")
