"""Changes to PyTorch and its neighbours that no registration point allows.

One function a change; each says why, where it is reported, and when it can go. `apply()` makes them all, once.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

import torch
import torch._tensor_str
from torch.multiprocessing import reductions
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_neuronx.neuron._utils import _get_device_index

NAME = "neuron"

_NOT_SHARED = (
    "{what} is not possible for tensors on {device}: the memory of a NeuronCore belongs to one process. Send a copy on "
    "the host instead, tensor.cpu(), and move it to the device where it arrives."
)


def apply() -> None:
    """Make every change below."""
    print_with_one_copy()
    dlpack_device()
    refuse_sharing()
    autocast_default_dtype()
    safetensors_device()
    rest_autograd_threads()
    compile_for_the_device()


def print_with_one_copy() -> None:
    """Copy a tensor to the host once before it is printed.

    `torch._tensor_str` formats with tensor operations (slices, comparisons, min, max: 16 to 23 launches) and copies to
    the host first only for a fixed list of devices (pytorch#71147, #79287: xla, lazy, ipu, mtia) that out-of-tree
    devices cannot join. Can go once that list is open to PrivateUse1; it is not in torch 2.13.
    """
    original = torch._tensor_str._tensor_str

    @functools.wraps(original)
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        return original(self.cpu() if self.device.type == NAME else self, indent)  # type: ignore[no-any-return, no-untyped-call]

    torch._tensor_str._tensor_str = _tensor_str


_REST_SECONDS = 0.02  # once a process, at its end; freeing a small graph takes microseconds


def rest_autograd_threads() -> None:
    """Let the backward threads drop their last graph before the interpreter ends.

    A device's backward runs on a thread of its own, which frees the graph a moment after `backward()` or
    `torch.autograd.grad()` has returned, and the graph holds Python objects (the thread-local state it was made with).
    If the program ends in that moment, the thread asks for the interpreter's lock, is cancelled in a destructor, and
    the process aborts ("terminate called without an active exception"). No upstream issue names it. Can go once PyTorch
    joins these threads at exit; it does not in torch 2.13.
    """
    atexit.register(_drain_autograd_threads)


def _drain_autograd_threads() -> None:
    """Return when the thread of every device in use has nothing left of earlier backward passes."""
    if not torch.neuron.is_initialized():  # type: ignore[attr-defined]
        return
    drained = False
    for index in range(torch.neuron.device_count()):  # type: ignore[attr-defined]
        if torch.neuron.memory_reserved(index) > 0:  # type: ignore[attr-defined]
            # The thread frees one graph before it takes the next.
            with torch.enable_grad():
                leaf = torch.zeros((), device=torch.device(NAME, index), requires_grad=True)
                torch.autograd.backward(leaf.clone())
            drained = True
    if drained:
        # These last graphs are freed by their threads too, which need the interpreter's lock for it: leave it to them.
        time.sleep(_REST_SECONDS)


def dlpack_device() -> None:
    """Let `Tensor.__dlpack_device__` know the device under its own name.

    It compares with the literal "privateuse1", so a renamed device fails `torch.from_dlpack(tensor)`. pytorch#195815,
    open as of torch 2.13; can go with the release that closes it.
    """
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if not has_torch_function_unary(self) and self.device.type == NAME:
            return DLDeviceType.kDLExtDev, int(self.device.index)
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def refuse_sharing() -> None:
    """Raise where sharing between processes would silently not happen, or fail without naming the device.

    `share_memory_` returns a neuron tensor unchanged, so that processes which should see one tensor see two, and
    `is_shared` says True; sending a tensor through a `torch.multiprocessing` queue says "_share_fd_: only available on
    CPU". Sharing for out-of-tree devices is pytorch#192099; can go when the device implements it.
    """
    share, is_shared = torch.UntypedStorage.share_memory_, torch.UntypedStorage.is_shared

    @functools.wraps(share)
    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == NAME:
            raise RuntimeError(_NOT_SHARED.format(what="share_memory_()", device=self.device))
        return share(self, *args, **kwargs)

    torch.UntypedStorage.share_memory_ = share_memory_  # type: ignore[method-assign]
    torch.UntypedStorage.is_shared = (  # type: ignore[method-assign]
        lambda self: self.device.type != NAME and is_shared(self)
    )

    def refuse_or(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(reduce)
        def reduce_or_raise(obj: Any) -> Any:
            if obj.device.type == NAME:
                raise RuntimeError(_NOT_SHARED.format(what="Sending to another process", device=obj.device))
            return reduce(obj)

        return reduce_or_raise

    tensor, storage = refuse_or(reductions.reduce_tensor), refuse_or(reductions.reduce_storage)
    ForkingPickler.register(torch.Tensor, tensor)
    ForkingPickler.register(torch.nn.Parameter, tensor)
    ForkingPickler.register(torch.UntypedStorage, storage)


def autocast_default_dtype() -> None:
    """Make bfloat16 what `torch.autocast("neuron")` casts to when it is given no dtype.

    PyTorch's default for PrivateUse1 is float16, held per thread in a table without a registration point. Not reported
    upstream as of torch 2.13; can go when a backend can register its default.
    """
    original = torch.amp.autocast_mode.autocast.__init__
    seen = threading.local()

    @functools.wraps(original)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type == NAME and not torch._jit_internal.is_scripting() and not hasattr(seen, "thread"):
            seen.thread = True
            torch.set_autocast_dtype(NAME, torch.bfloat16)
        original(self, device_type, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__ = __init__  # type: ignore[method-assign]
    seen.thread = True
    torch.set_autocast_dtype(NAME, torch.bfloat16)


def safetensors_device() -> None:
    """Let safetensors load onto "neuron" and "neuron:1".

    Its list of device names is compiled in and has no neuron ("device neuron is invalid" in 0.8.0), but a device given
    as an integer means the accelerator. So `safe_open` is wrapped as soon as safetensors is imported, and not before.
    Can go once devices can register themselves there: safetensors#804, open as of 0.8.0.
    """
    if "safetensors" in sys.modules:
        _wrap_safe_open(sys.modules["safetensors"])
    else:
        sys.meta_path.insert(0, _AfterImport("safetensors", _wrap_safe_open))


def _wrap_safe_open(safetensors: ModuleType) -> None:
    original = safetensors.safe_open

    @functools.wraps(original, updated=())
    def safe_open(filename: Any, framework: str, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
        if isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == NAME:
            device = _get_device_index(device, optional=True)
        return original(filename, framework, device, *args, **kwargs)

    safetensors.safe_open = safe_open  # type: ignore[attr-defined]
    user = sys.modules.get("safetensors.torch")
    if user is not None:  # it has imported the name already
        user.safe_open = safe_open  # type: ignore[attr-defined]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `action(module)` right after the module `name` has been imported for the first time."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # not installed now; perhaps later
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def compile_for_the_device() -> None:
    """Let `torch.compile(f)` without a backend choose `neuron` for graphs with neuron tensors.

    The default backend, Inductor, has no code generator for the device and fails deep inside on such graphs; the choice
    by device exists for no backend upstream (`torch.compiler.set_default_backend` is for all devices). Can go once
    PyTorch lets a device name its default backend.
    """
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def ours(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == NAME

    @functools.wraps(original)
    def __call__(self: Any, model_: Any, inputs_: Any, **options: Any) -> Any:
        # A graph without inputs may still make its tensors on the device: Dynamo notes what each node gives.
        nodes = getattr(getattr(model_, "graph", None), "nodes", ())
        if not any(map(ours, inputs_)) and not any(ours(node.meta.get("example_value")) for node in nodes):
            return original(self, model_, inputs_, **options)  # type: ignore[no-untyped-call]
        from torch_neuronx.compiler import backend

        if self.config:
            warnings.warn(
                f"Options of Inductor have no effect on neuron tensors: {', '.join(sorted(self.config))}. Backend "
                "'neuron' compiles this graph; its own options go with torch.compile(backend='neuron').",
                stacklevel=2,
            )
        return backend.neuron_backend(model_, inputs_)

    wrapper.__call__ = __call__  # type: ignore[method-assign]
