"""NKI kernels as PyTorch operators: `nki_op`, `wrap_nki`, and what a lowering needs to emit a kernel call.

A jitted kernel can be called with tensors as it is, also inside torch.compile. `nki_op` is for an operator with a name
of its own: several kernels and PyTorch calls behind one node, with a backward.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import nki
    from nki import errors, operators
else:
    nki = importlib.import_module("torch_neuronx.nki")  # this project's, also where another package has the name
    errors, operators = nki.errors, nki.operators

CUSTOM_CALL_TARGET = "AwsNeuronCustomNativeKernel"  # NKI documentation, integration with frameworks
KERNEL_VERSION = 1


def nki_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Iterable[str] = (),
    schema: str | None = None,
) -> Any:
    """Registers a function that calls kernels as the PyTorch operator `name`, "namespace::operator".

        @nki_op("mylib::scaled", mutates_args=())
        def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
            return scale_kernel[2](x, factor)

    The function has type hints for its tensors and results, as for `torch.library.custom_op`, whose result this is:
    call it, or `torch.ops.mylib.scaled`; `register_autograd(backward, setup_context=...)`, `register_autocast` and the
    rest work. `mutates_args` names the arguments that the function writes. Shapes and dtypes of results are found by
    running the function with tensors that hold no data, in which kernels are only traced.

    Raises NkiValueError for a name without namespace, an unknown name in `mutates_args`, or (when called) a function
    that writes an argument that `mutates_args` does not name; NkiTypeError for missing type hints.
    """
    if fn is None:
        return functools.partial(nki_op, name, mutates_args=mutates_args, schema=schema)
    function: Callable[..., Any] = fn
    if not isinstance(name, str) or name.count("::") != 1 or not all(part for part in name.split("::")):
        raise errors.NkiValueError(f"nki_op({name!r}): the name has the form 'namespace::operator'")
    if isinstance(function, nki.Kernel):
        raise errors.NkiTypeError(
            f"nki_op({name!r}) takes a function with type hints that calls {function!r}, not the kernel itself"
        )
    parameters = inspect.signature(function).parameters
    mutated = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
    unknown = [argument for argument in mutated if argument not in parameters]
    if unknown:
        raise errors.NkiValueError(
            f"nki_op({name!r}): mutates_args names {', '.join(unknown)}; the arguments are {', '.join(parameters)}"
        )
    if schema is None:
        _check_hints(name, function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        kept = {k: v for k, v in given.items() if isinstance(v, torch.Tensor) and k not in mutated}
        before = {argument: tensor._version for argument, tensor in kept.items()}
        result = function(*args, **kwargs)
        for argument, tensor in kept.items():
            if tensor._version != before[argument]:
                raise errors.NkiValueError(
                    f"{name} writes its argument {argument!r}, which mutates_args={mutated} does not name"
                )
        for value in result if isinstance(result, tuple | list) else [result]:
            for argument, tensor in given.items():
                if value is tensor and isinstance(value, torch.Tensor):
                    raise errors.NkiValueError(
                        f"{name} returns its argument {argument!r}: an operator returns new tensors. Name what it "
                        "writes in mutates_args and return None"
                    )
        return result

    definition = torch.library.custom_op(name, checked, mutates_args=mutated, schema=schema)
    definition.register_fake(function)
    return definition


def _check_hints(name: str, function: Callable[..., Any]) -> None:
    hints = typing.get_type_hints(function)
    missing = [argument for argument in (*inspect.signature(function).parameters, "return") if argument not in hints]
    if missing:
        raise errors.NkiTypeError(
            f"nki_op({name!r}): {function.__name__} has no type hint for {', '.join(missing)}; write torch.Tensor, "
            "int, float, bool or None"
        )


def wrap_nki(kernel: Any) -> Any:
    """The kernel, ready for tensors: `wrap_nki(kernel)[2](x)`. Takes a jitted kernel or a plain function.

    Kernels made by `nki.jit` need no wrapping here; this is the older way to say so.
    """
    return nki.jit(kernel)


@dataclasses.dataclass(frozen=True)
class CustomCall:
    """A kernel call in a lowered module.

    `operands` names the tensors in order; `aliases` are pairs (result, operand) of what the kernel writes in place:
    results are first the kernel's own outputs (`outputs`), then one for each operand that it writes.
    """

    target: str
    kernel: str
    backend_config: str
    operands: tuple[str, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    aliases: tuple[tuple[int, int], ...]


def custom_call(overload: Any) -> CustomCall | None:
    """How a node that calls `overload` is written in a lowered module; None when it is not a kernel.

    The target is the documented one, and `backend_config` base64 of JSON with the documented keys: kernel_version,
    klir_binary (binary, input_names, output_names), func_name, grid, has_collectives. The binary is this project's
    instruction program as JSON text, not AWS's form.
    """
    found = operators.of_overload(overload)
    if found is None:
        return None
    outputs = tuple((tuple(spec.shape), spec.dtype) for spec in found.outputs)
    mutated = [index for index, argument in enumerate(found.inputs) if argument in found.mutated]
    config: Mapping[str, Any] = {
        "kernel_version": KERNEL_VERSION,
        "klir_binary": {
            "binary": found.program.to_json(),
            "input_names": list(found.inputs),
            "output_names": [found.program.tensors[n].name for n in found.output_numbers],
        },
        "func_name": found.kernel,
        "grid": [found.cores],
        "has_collectives": any(item.opcode.startswith("collective") for item in found.program.instructions()),
    }
    text = base64.b64encode(json.dumps(config, separators=(",", ":")).encode()).decode()
    aliases = tuple((len(outputs) + place, index) for place, index in enumerate(mutated))
    return CustomCall(CUSTOM_CALL_TARGET, found.kernel, text, found.inputs, outputs, aliases)


__all__ = ["CUSTOM_CALL_TARGET", "CustomCall", "custom_call", "nki_op", "wrap_nki"]
