"""Runs modules with XLA's CPU compiler: the referee of lowerings, not the device's engine. Needs jax and jaxlib."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering.errors import IntegerRangeError, MissingExtraError
from torch_neuronx.lowering.graph import Argument, Result
from torch_neuronx.lowering.stablehlo import INT32

_CACHE_SIZE = 256
_cache: OrderedDict[str, Any] = OrderedDict()


@functools.cache
def _runtime() -> tuple[Any, Any, Any, Any]:
    """(client, devices, jax, xla_client)"""
    try:
        import jax
        from jax.extend import backend
        from jaxlib import _jax, xla_client
    except ImportError as error:
        raise MissingExtraError(
            f"running a lowered module needs jax, which is not installed here ({error}). Install the optional extra: "
            "pip install 'torch-neuronx[stablehlo]'."
        ) from error
    client = backend.get_backend("cpu")
    return client, _jax.DeviceList(tuple(client.local_devices()[:1])), jax, xla_client


def compile_text(text: str) -> Any:
    """An executable of XLA's CPU client, from a cache of the last ones."""
    found = _cache.get(text)
    if found is None:
        client, devices, _, xla_client = _runtime()
        options = xla_client.CompileOptions()
        debug = options.executable_build_options.debug_options
        debug.xla_backend_optimization_level = 0  # a third faster to compile; modules run once or twice
        found = client.compile_and_load(text.encode(), devices, options)
        _cache[text] = found
        if len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    _cache.move_to_end(text)
    return found


def run(
    text: str, arguments: Sequence[Argument], results: Sequence[Result], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Runs a module; `tensors` in the order of `arguments`. Results are on the CPU, in PyTorch's dtypes.

    IntegerRangeError when an int64 argument has values beyond int32; ValueError for a wrong shape, dtype or count.
    """
    executable = compile_text(text)
    buffers = [b for a, t in zip(arguments, _checked(arguments, tensors), strict=True) for b in _to_xla(a, t)]
    made = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    flat = iter([_from_xla(parts[0]) for parts in made])
    return [_restore(result, flat) for result in results]


def _checked(arguments: Sequence[Argument], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    if len(tensors) != len(arguments):
        raise ValueError(
            f"the module takes {len(arguments)} tensors ({', '.join(a.name for a in arguments)}), not {len(tensors)}"
        )
    for a, t in zip(arguments, tensors, strict=True):
        if tuple(t.shape) != a.shape or t.dtype != a.dtype:
            raise ValueError(
                f"argument {a.name} is {t.dtype}{list(t.shape)}, but the module was lowered for {a.dtype}{list(a.shape)}; "  # noqa: E501
                "lower it again for these tensors"
            )
    return list(tensors)


def _to_xla(argument: Argument, tensor: torch.Tensor) -> list[Any]:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if argument.dtype == torch.complex64:
        return [_buffer(tensor.real.contiguous()), _buffer(tensor.imag.contiguous())]
    if argument.dtype == torch.int64:
        if tensor.numel() and (int(tensor.min()) < INT32[0] or int(tensor.max()) > INT32[1]):
            raise IntegerRangeError(
                f"argument {argument.name} holds int64 values from {int(tensor.min())} to {int(tensor.max())}, but int64 "  # noqa: E501
                f"runs as int32 on Trainium and holds {INT32[0]} to {INT32[1]}. Use smaller numbers, or keep this part "
                "on the CPU."
            )
        tensor = tensor.to(torch.int32)
    return [_buffer(tensor.contiguous())]


_NUMPY_VIEWS = {torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
_SAME_SIZE = {1: torch.uint8, 2: torch.uint16}


def _buffer(tensor: torch.Tensor) -> Any:
    """A copy in an XLA buffer, so that a donated argument never is PyTorch's own memory."""
    _, _, jax, _ = _runtime()
    name = _NUMPY_VIEWS.get(tensor.dtype)
    if name is None:
        array = tensor.numpy()
    else:
        import ml_dtypes

        array = tensor.view(_SAME_SIZE[tensor.element_size()]).numpy().view(getattr(ml_dtypes, name))
    return jax.device_put(array.copy(), jax.local_devices(backend="cpu")[0])


def _from_xla(array: Any) -> torch.Tensor:
    import numpy as np

    found = np.array(array)
    if found.dtype.name in _NUMPY_VIEWS.values():
        dtype = next(d for d, name in _NUMPY_VIEWS.items() if name == found.dtype.name)
        raw = found.view(np.uint8 if found.dtype.itemsize == 1 else np.uint16)
        return torch.from_numpy(raw).view(dtype)
    return torch.from_numpy(found)


def _restore(result: Result, flat: Any) -> torch.Tensor:
    if result.dtype == torch.complex64:
        return torch.complex(next(flat), next(flat))
    return next(flat).to(result.dtype)
