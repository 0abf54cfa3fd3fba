"""The Dynamo backend `neuron`.

Dynamo captures the function, AOTAutograd divides it into a forward and a backward graph of ATen operators, the passes
simplify each, and the result calls the device's operators one after another from generated Python. Numbers are those
of eager execution. Graphs are not fused yet: what compiling saves is the Python of the model and repeated work.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule

from torch_neuronx import config, neuron
from torch_neuronx.compiler import metrics, passes, vector_codegen
from torch_neuronx.compiler.options import Options

Compiled = Callable[..., Any]


class NeuronInterface(DeviceInterface):
    """What Dynamo asks of a device: the functions of `torch.neuron`."""

    device = neuron.device
    Event = torch.Event
    Stream = torch.Stream
    current_device = staticmethod(neuron.current_device)
    set_device = staticmethod(neuron.set_device)
    device_count = staticmethod(neuron.device_count)
    is_available = staticmethod(neuron.is_available)
    stream = staticmethod(neuron.stream)
    current_stream = staticmethod(neuron.current_stream)
    set_stream = staticmethod(neuron.set_stream)
    synchronize = staticmethod(neuron.synchronize)
    get_device_properties = staticmethod(neuron.get_device_properties)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True


register_interface_for_device(passes.DEVICE, NeuronInterface)


class NeuronCompileError(RuntimeError):
    """A graph cannot be compiled for the device; the message names the operator and the line of the program."""


def neuron_backend(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Compiled:
    """Compiles a graph that Dynamo captured.

    `options`: see `Options`; `mode`: accepted for other backends' sake, with a warning, and without effect.
    Raises NeuronCompileError (inside Dynamo's BackendCompilerFailed).
    """
    settings = Options.parse(options)
    if mode not in (None, "default"):
        warnings.warn(
            f"torch.compile(mode={mode!r}) has no effect on backend 'neuron': it has one mode. Leave mode out.",
            stacklevel=2,
        )
    name = metrics.unique_name(settings.model_name)
    copying = _copies_inputs(example_inputs)
    compile_graph = functools.partial(_compile_graph, name=name, settings=settings, copying=copying)
    compiler = aot_autograd(
        fw_compiler=functools.partial(compile_graph, kind="forward"),
        bw_compiler=functools.partial(compile_graph, kind="backward"),
        inference_compiler=functools.partial(compile_graph, kind="inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    try:
        return compiler(module, list(example_inputs))  # type: ignore[no-any-return, no-untyped-call]
    except Exception as error:
        if not settings.runs_eagerly_on_failure():
            raise
        warnings.warn(f"Graph {name} cannot be compiled and runs eagerly: {error}", stacklevel=2)
        return module.forward


def _copies_inputs(inputs: Sequence[Any]) -> bool:
    """Whether the graph was captured on the CPU, so that its tensors have to be carried to the device and back."""
    kinds = {t.device.type for t in inputs if isinstance(t, torch.Tensor) and t.dim() > 0}
    if kinds != {"cpu"}:
        return False
    if config.get_bool("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY"):
        raise NeuronCompileError(
            "All tensors of this call are on the CPU and TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1 forbids copying "
            "them to the device. Move the model and its inputs with .to('neuron'), or unset the variable."
        )
    return True


def _compile_graph(
    module: GraphModule, example_inputs: Sequence[Any], *, name: str, settings: Options, copying: bool, kind: str
) -> Compiled:
    """One graph of ATen operators as a function that takes its inputs as a list and empties it."""
    began = time.perf_counter()
    if settings.strict:
        for node in passes.without_kernel(module):
            raise NeuronCompileError(
                f"'{node.target}' has no kernel for the neuron device and would run on the CPU, which option 'strict' "
                f"forbids ({kind} of {name}). It comes from {passes.user_line(node)}. Replace the operator, or leave "
                "'strict' out."
            )
    captured = passes.count(module.graph)
    graph = passes.simplify(module.graph)
    programs = 0
    if settings.fusion:
        graph, programs = vector_codegen.fuse(graph, f"{name}_{kind}")
    runnable = GraphModule(module, graph, class_name=f"{name}_{kind}")
    if copying:
        passes.on_device(runnable)
    graph.set_codegen(torch.fx.graph._BoxedCodeGen())  # type: ignore[no-untyped-call]
    runnable.recompile()
    row = metrics.add(
        metrics.GraphMetrics(name, kind, passes.count(graph), captured, programs, time.perf_counter() - began)
    )
    forward = runnable.forward

    def run(inputs: list[Any]) -> Any:
        row.calls += 1
        return forward(inputs)

    if passes.is_dynamic(graph):
        run = _counting_shapes(run, row)

    def run_with_copies(inputs: list[Any]) -> Any:
        """The inputs are on the CPU: what the graph writes into them is carried back, and so are its results."""
        host = list(inputs)
        inputs.clear()
        device = [_to(t, passes.DEVICE) for t in host]
        versions = [t._version if isinstance(t, torch.Tensor) else 0 for t in device]
        results = run(list(device))
        for there, here, version in zip(device, host, versions, strict=True):
            if isinstance(there, torch.Tensor) and there._version != version:
                here.copy_(there)
        back = {id(there): here for there, here in zip(device, host, strict=True)}
        return [back[id(r)] if id(r) in back else _to(r, "cpu") for r in results]

    return make_boxed(run_with_copies if copying else run)


def _counting_shapes(run: Compiled, row: metrics.GraphMetrics) -> Compiled:
    """Counts the shapes that a graph for a range of shapes meets: hardware without dynamic shapes compiles each."""
    seen: set[tuple[Any, ...]] = set()

    def counting(inputs: list[Any]) -> Any:
        seen.add(tuple(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in inputs))
        row.shapes = len(seen)
        return run(inputs)

    return counting


def _to(value: Any, device: str) -> Any:
    return (
        value.to(device) if isinstance(value, torch.Tensor) and value.device.type in ("cpu", passes.DEVICE) else value
    )


def make_boxed(run: Compiled) -> Compiled:
    """Marks a function that takes a list and may empty it, so that inputs are freed while it runs."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run
