"""Kernels as PyTorch operators: in graphs, with fake tensors, with gradients, and what a lowering gets."""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import nki
import nki.language as nl
import torch_neuronx
from nki import ir, operators
from nki.errors import NkiError, NkiTypeError, NkiValueError
from torch_neuronx import nki_op, wrap_nki
from torch_neuronx.kernels import CUSTOM_CALL_TARGET, custom_call

# PyTorch checks the registration of autograd on CPU, CUDA and XPU tensors only.
CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


class Mode(enum.Enum):
    DOUBLE = 2.0
    TRIPLE = 3.0


@nki.jit
def scale(x, by=2.0):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), by.value if isinstance(by, Mode) else by))
    return out


@nki.jit
def accumulate(total, x):
    """total += x, in place; returns total and the sum of both rows by row."""
    tile = nl.add(nl.load(total), nl.load(x))
    nl.store(total, tile)
    sums = nl.ndarray((x.shape[0], 1), nl.float32, buffer=nl.shared_hbm)
    nl.store(sums, nl.sum(tile, 1, keepdims=True, dtype=nl.float32))
    return total, sums


@nki.jit
def halves(x):
    """Each core of two scales its half of the rows by its number + 1; one core takes all rows."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    count, me = nl.num_programs(0), nl.program_id(0)
    rows = x.shape[0] // count
    part = slice(me * rows, (me + 1) * rows)
    nl.store(out[part], nl.multiply(nl.load(x[part]), float(me + 1)))
    return out


@nki.jit
def stacked(parts, names):
    out = nl.ndarray((len(parts), *parts[0].shape), nl.bfloat16, buffer=nl.shared_hbm)
    for index, part in enumerate(parts):
        nl.store(out[index], nl.load(part, nl.bfloat16))
    return (out, parts[names["echo"]])


@nki_op("nki_tests::scaled", mutates_args={})
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return scale[2](x.contiguous(), factor)


scaled.register_autograd(
    lambda ctx, gradient: (scaled(gradient, ctx.factor), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


@nki_op("nki_tests::accumulate_", mutates_args=("total",))
def accumulate_(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return accumulate(total, x)[1]


def compiled(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[GraphModule]]:
    """`f` compiled for the device in one graph, and the graphs that Dynamo captured."""
    graphs: list[GraphModule] = []

    def backend(module: GraphModule, inputs: Any, **options: Any) -> Any:
        from torch_neuronx.compiler.backend import neuron_backend

        graphs.append(module)
        return neuron_backend(module, inputs, **options)

    return torch.compile(f, backend=backend, fullgraph=True), graphs


def kernel_nodes(module: GraphModule) -> list[Any]:
    return [node for node in module.graph.nodes if operators.of_overload(node.target) is not None]


def data(*shape: int, dtype: torch.dtype = torch.float32, device: str = "neuron") -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(dtype).to(device)


# --- kernels in graphs


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_a_call_is_one_node(device: str) -> None:
    x = data(4, 8, device=device)

    def f(x: torch.Tensor) -> torch.Tensor:
        return scale(x + 1, 3.0) - 1

    fast, graphs = compiled(f)
    assert torch.equal(fast(x), (x + 1) * 3 - 1) and torch.equal(f(x), fast(x))
    (node,) = kernel_nodes(graphs[0])
    found = operators.of_overload(node.target)
    assert found is not None and found.kernel == "scale" and found.inputs == ("x",) and found.cores == 1
    assert len([n for n in graphs[0].graph.nodes if n.op == "call_function"]) == 3


def test_through_the_registered_backend() -> None:
    x = data(4, 8)
    fast = torch.compile(lambda x: scale[2](x, by=4.0).relu(), backend="neuron", fullgraph=True)
    torch_neuronx.reset_dynamo_metrics()
    assert torch.equal(fast(x), x * 4)
    (row,) = torch_neuronx.get_dynamo_metrics()
    assert row.captured_nodes == 2


def test_constants_of_a_graph() -> None:
    x = data(2, 4)
    for constant, factor in ((5, 5.0), (6, 6.0), (0.5, 0.5), (True, 1.0), (Mode.TRIPLE, 3.0), (Mode.DOUBLE, 2.0)):
        fast, _ = compiled(lambda x, constant=constant: scale(x, constant))
        assert torch.equal(fast(x), x * factor)


def test_another_constant_is_another_graph() -> None:
    fast, graphs = compiled(lambda x, by: scale(x, by))
    x = data(2, 4)
    assert torch.equal(fast(x, Mode.DOUBLE), x * 2) and torch.equal(fast(x, Mode.TRIPLE), x * 3)
    assert len(graphs) == 2


def test_cores_in_a_graph() -> None:
    x = data(4, 8)
    fast, graphs = compiled(lambda x: (halves(x), halves[1](x), halves[2](x)))
    one, also_one, two = fast(x)
    assert torch.equal(one, x) and torch.equal(also_one, x)
    assert torch.equal(two, torch.cat([x[:2], x[2:] * 2]))
    assert [operators.of_overload(n.target).cores for n in kernel_nodes(graphs[0])] == [1, 1, 2]


def test_written_arguments_in_a_graph() -> None:
    def f(total: torch.Tensor, x: torch.Tensor) -> Any:
        scratch = total * 2
        same, _ = accumulate(scratch, x)
        again, sums = accumulate(total, same)
        return scratch, again, sums

    totals = [data(4, 8) for _ in range(2)]
    x = data(4, 8)
    want = f(totals[0], x)
    got = compiled(f)[0](totals[1], x)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(totals[1], totals[0]) and torch.equal(totals[0], data(4, 8) * 4)
    assert want[1] is totals[0] and got[1] is totals[1]
    assert torch.equal(got[2], (data(4, 8) * 4).sum(1, keepdim=True))


def test_lists_and_dictionaries_of_arguments_in_a_graph() -> None:
    a, b = data(2, 4), data(2, 4) + 100
    fast, graphs = compiled(lambda a, b: stacked([a, b, a], {"echo": 1}))
    out, echo = fast(a, b)
    assert out.dtype == torch.bfloat16 and torch.equal(out, torch.stack([a, b, a]).bfloat16()) and torch.equal(echo, b)
    assert len(kernel_nodes(graphs[0])[0].args) == 2  # `a` once


def test_names_of_operators_tell_programs_apart() -> None:
    x = data(2, 4, device="cpu").requires_grad_()
    before = set(operators.OPERATORS)
    scale(x, 1.25)
    (first,) = set(operators.OPERATORS) - before
    scale(x, 1.25), scale(x, 1.5), scale[2](x, 1.25)
    scale(x.detach(), 7.0)  # no operator: PyTorch need not see it
    made = set(operators.OPERATORS) - before
    assert len(made) == 3 and all(name.startswith("nki::scale_") for name in made) and first in made


# --- shapes without data


def test_fake_tensors() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 8, dtype=torch.bfloat16, device="neuron")
        total, sums = accumulate(x, x.clone())
        assert total is x and sums.shape == (4, 1) and sums.dtype == torch.float32 and sums.device.type == "neuron"
        assert scaled(x, 2.0).dtype == torch.bfloat16
    meta = scale(torch.empty(3, 5, device="meta"))
    assert meta.shape == (3, 5) and meta.device.type == "meta"


def test_make_fx_sees_the_kernel() -> None:
    graph = make_fx(lambda x: scaled(x, 2.0) + 1)(data(4, 8))
    assert "nki_tests.scaled" in graph.code
    inner = make_fx(lambda x: scale[2](x.t().contiguous(), 2.0))(data(4, 8))
    (node,) = kernel_nodes(inner)
    assert node.meta["val"].shape == (8, 4)
    assert torch.equal(inner(data(4, 8)), data(4, 8).t() * 2)


# --- gradients


def test_a_kernel_without_backward() -> None:
    x = data(4, 8).requires_grad_()
    y = scale(x)
    assert torch.equal(y, x * 2) and y.requires_grad
    message = "kernel 'scale' has no backward: wrap it with torch_neuronx.nki_op"
    with pytest.raises(NkiError, match=message):
        y.sum().backward()
    fast, _ = compiled(lambda x: scale(x, 2.0))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        fast(x)
    with torch.no_grad():
        assert not scale(x).requires_grad and torch.equal(fast(x), x * 2)


def test_writing_what_needs_gradients() -> None:
    x = data(4, 8).requires_grad_()
    y = x * 1
    with pytest.raises(NkiError, match="writes its argument 'total'.*no_grad"):
        accumulate(y, x.detach())
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="writes its argument 'total'"):
        compiled(lambda y, x: accumulate(y, x)[1])[0](y, x)
    with torch.no_grad():
        accumulate(y, x)
    assert torch.equal(y, x * 2)


def test_the_backward_of_an_operator() -> None:
    gradients = []
    for f in (scaled, compiled(lambda x, k: scaled(x, k))[0], torch.compile(scaled, backend="neuron", fullgraph=True)):
        x = data(4, 8).requires_grad_()
        (f(x, 3.0) * data(4, 8)).sum().backward()
        gradients.append(x.grad)
    assert all(torch.equal(g, data(4, 8) * 3) for g in gradients)


def test_autograd_function() -> None:
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return scale(x, 3.0)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return scale(gradient.contiguous(), 3.0)

    x = data(4, 8).requires_grad_()
    Tripled.apply(x).sum().backward()
    assert (x.grad == 3).all()


# --- nki_op


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_opcheck(device: str) -> None:
    x = data(4, 8, device=device)
    torch.library.opcheck(scaled, (x, 3.0), test_utils=CHECKS)
    torch.library.opcheck(scaled, (x.clone().requires_grad_(), 3.0), test_utils=CHECKS)
    torch.library.opcheck(accumulate_, (x.clone(), x), test_utils=CHECKS)


def test_opcheck_of_all_on_the_cpu() -> None:
    x = data(4, 8, device="cpu")
    torch.library.opcheck(scaled, (x.clone().requires_grad_(), 3.0))
    torch.library.opcheck(accumulate_, (x.clone(), x))


def test_opcheck_of_the_operator_behind_a_call() -> None:
    x = data(4, 8, device="cpu").requires_grad_()
    name = scale(x, 9.0).grad_fn.name()
    (found,) = [op for op in operators.OPERATORS.values() if op.name in name]
    torch.library.opcheck(found.definition, (x.detach(),))


def test_an_operator_is_one_node() -> None:
    fast, graphs = compiled(lambda x: scaled(x, 2.0))
    assert torch.equal(fast(data(4, 8)), data(4, 8) * 2)
    (node,) = [n for n in graphs[0].graph.nodes if n.op == "call_function"]
    assert node.target == torch.ops.nki_tests.scaled.default


def test_an_operator_that_writes_an_argument() -> None:
    def f(total: torch.Tensor, x: torch.Tensor) -> Any:
        total = total + 0
        sums = accumulate_(total, x)
        return total, sums

    total, sums = f(data(4, 8), data(4, 8))
    assert torch.equal(total, data(4, 8) * 2)
    for got, want in zip(compiled(f)[0](data(4, 8), data(4, 8)), (total, sums), strict=True):
        assert torch.equal(got, want)


def test_autocast() -> None:
    x, w = data(4, 8) / 32, data(8, 8) / 64
    with torch.autocast("neuron", dtype=torch.bfloat16):
        y = scaled(x @ w, 2.0)
        z = compiled(lambda x, w: scale(x @ w, 2.0))[0](x, w)
        assert scaled(x, 2.0).dtype == torch.float32  # a kernel gets what it is given
    assert y.dtype == torch.bfloat16 and torch.equal(y, z)
    cast = nki_op("nki_tests::cast", _hinted, mutates_args=())
    cast.register_autocast("neuron", torch.bfloat16)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert cast(x).dtype == torch.bfloat16
    assert cast(x).dtype == torch.float32


def _hinted(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 2.0)


def test_misuse_of_nki_op() -> None:
    for name in ("plain", "a::b::c", "::b", "a::", 7):
        with pytest.raises(NkiValueError, match="the name has the form 'namespace::operator'"):
            nki_op(name, _hinted)  # type: ignore[arg-type]
    with pytest.raises(NkiValueError, match="mutates_args names y, z; the arguments are x"):
        nki_op("nki_tests::unknown", _hinted, mutates_args=("y", "z"))
    with pytest.raises(NkiTypeError, match="has no type hint for x, return"):
        nki_op("nki_tests::unhinted", mutates_args=())(lambda x: x)
    with pytest.raises(NkiTypeError, match="takes a function with type hints that calls kernel 'scale'"):
        nki_op("nki_tests::kernel", scale)


@nki_op("nki_tests::hides_a_write", mutates_args=())
def hides_a_write(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return accumulate(total, x)[1]


@nki_op("nki_tests::returns_its_argument", mutates_args="total")
def returns_its_argument(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return accumulate(total, x)[0]


def test_operators_that_are_not_what_they_say() -> None:
    with pytest.raises(NkiValueError, match="hides_a_write writes its argument 'total', which mutates_args"):
        hides_a_write(data(4, 8), data(4, 8))
    with pytest.raises(NkiValueError, match="returns its argument 'total'.*return None"):
        returns_its_argument(data(4, 8), data(4, 8))


def test_wrap_nki() -> None:
    assert wrap_nki(scale) is scale
    assert torch.equal(wrap_nki(scale.function)[2](data(4, 8), 3.0), data(4, 8) * 3)


# --- errors of calls


def test_tensors_on_different_devices() -> None:
    a, b = data(4, 8), data(4, 8, device="cpu")
    with pytest.raises(NkiTypeError, match="x is a tensor on cpu and total is a tensor on neuron:0"):
        accumulate(a, b)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="all tensors of a call must be on one device"):
        compiled(lambda a, b: accumulate(a, b))[0](a, b)


def test_dtypes_that_the_chip_lacks() -> None:
    x = torch.ones(4, 8, dtype=torch.float64)
    with pytest.raises(NkiTypeError, match="argument x: float64 is not an element type"):
        scale(x)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="float64 is not an element type"):
        compiled(lambda x: scale(x))[0](x)


def test_constants_that_cannot_be_compared() -> None:
    class Holder:
        __hash__ = None  # type: ignore[assignment]
        factor = 2.0

    @nki.jit
    def held(x, holder):
        return scale.function(x, holder.factor)

    x = data(2, 4)
    assert torch.equal(held(x, Holder()), x * 2)  # traced anew each time
    with pytest.raises(NkiTypeError, match="has a constant that cannot be compared"):
        held(x.requires_grad_(), Holder())


# --- what a lowering gets


def test_custom_call() -> None:
    _, graphs = fast = compiled(lambda total, x: accumulate[2](total, x))
    fast[0](data(4, 8), data(4, 8))
    (node,) = kernel_nodes(graphs[0])
    call = custom_call(node.target)
    assert call is not None and call.target == CUSTOM_CALL_TARGET == "AwsNeuronCustomNativeKernel"
    assert call.kernel == "accumulate" and call.operands == ("total", "x")
    assert call.outputs == (((4, 1), torch.float32),) and call.aliases == ((1, 0),)
    config = json.loads(base64.b64decode(call.backend_config))
    assert set(config) == {"kernel_version", "klir_binary", "func_name", "grid", "has_collectives"}
    assert config["func_name"] == "accumulate" and config["grid"] == [2] and config["has_collectives"] is False
    binary = config["klir_binary"]
    assert binary["input_names"] == ["total", "x"] and len(binary["output_names"]) == 1
    program = ir.Program.from_json(binary["binary"])
    assert program == accumulate[2].program(data(4, 8), data(4, 8))


def test_custom_call_of_what_is_no_kernel() -> None:
    assert custom_call(torch.ops.aten.add.Tensor) is None
    assert custom_call(torch.ops.nki_tests.scaled.default) is None
    assert custom_call(len) is None
