"""torch.compile(backend="neuron") against eager execution on the device: the same numbers, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils.checkpoint import checkpoint

import torch_neuronx

DEVICE = "neuron"


def compiled(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(f, backend="neuron", **options)


def kinds() -> list[str]:
    return [row.kind for row in torch_neuronx.get_dynamo_metrics()]


def equal(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def tensor(*shape: int, **options: Any) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE).requires_grad_(options.get("requires_grad", False))


def test_the_backend_is_listed() -> None:
    assert "neuron" in torch._dynamo.list_backends()


def loops(x: Tensor) -> Tensor:
    return torch.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64, device=x.device), x)
    )[1]


def scanned(x: Tensor) -> Tensor:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros_like(x[0]), x)[1]


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "pointwise": lambda x: (x.sin() * 2 + x.exp()).clamp(-1, 3),
    "product": lambda x: x @ x.t(),
    "softmax": lambda x: F.softmax(x, -1).log(),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
    "views": lambda x: (x.t(), x[1:], x.view(-1)),
    "the input": lambda x: (x, x + 1),
    "factories": lambda x: x + torch.arange(x.size(1), device=x.device) + torch.ones((), device=x.device),
    "index": lambda x: x[torch.tensor([1, 0, 1], device=x.device)],
    "where": lambda x: torch.where(x > 0, x, -x).sum(0),
    "sort": lambda x: x.sort(-1),
    "repeated": lambda x: x.exp() + x.exp() + x.exp(),
    "autocast": lambda x: torch.autocast(DEVICE)(lambda y: y @ y.t())(x),
    "int": lambda x: (x * 10).long() // 3,
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
    "while_loop": loops,
    "scan": scanned,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_eager_results(name: str) -> None:
    x = tensor(4, 6)
    with torch.no_grad():
        expected = FUNCTIONS[name](x)
        equal(compiled(FUNCTIONS[name], fullgraph=True)(x), expected)
    assert kinds() == ["inference"]


@pytest.mark.parametrize("name", ["pointwise", "product", "softmax", "attention", "where", "repeated", "cond"])
def test_the_eager_gradients(name: str) -> None:
    def gradient(f: Callable[[Tensor], Any]) -> Tensor:
        x = tensor(4, 6, requires_grad=True)
        results = f(x)
        parts = results if isinstance(results, tuple) else (results,)
        sum(p.square().sum() for p in parts).backward()
        assert x.grad is not None
        return x.grad

    equal(gradient(compiled(FUNCTIONS[name], fullgraph=True)), gradient(FUNCTIONS[name]))
    assert kinds() == ["forward", "backward"]


def test_what_is_the_same_is_computed_once() -> None:
    compiled(FUNCTIONS["repeated"])(tensor(4, 6))
    (row,) = torch_neuronx.get_dynamo_metrics()
    assert (row.captured_nodes, row.nodes, row.vector_programs, row.calls) == (5, 1, 1, 1)


def test_random_numbers_are_eagers() -> None:
    x = tensor(64, 64)
    f = lambda x: F.dropout(x, 0.5) + torch.rand_like(x)  # noqa: E731
    torch.manual_seed(5)
    expected = f(x)
    torch.manual_seed(5)
    equal(compiled(f, fullgraph=True)(x), expected)


def test_one_graph_serves_a_range_of_shapes() -> None:
    f = compiled(lambda x: (x.view(-1) * x.size(0)).sum(), fullgraph=True, dynamic=True)
    for rows in (3, 5, 17, 64):
        x = tensor(rows, 4)
        equal(f(x), (x.view(-1) * rows).sum())
    assert len(kinds()) == 1 and torch_neuronx.get_dynamo_metrics()[0].calls == 4


def test_a_training_step_with_its_optimizer() -> None:
    def train(compile_it: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 2)).to(
            DEVICE
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: Tensor) -> Tensor:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = compiled(step) if compile_it else step
        losses = [run(tensor(8, 6)).detach() for _ in range(4)]
        return [*losses, *model.state_dict().values()]

    # Not to the last bit: while it is compiled, AdamW computes its bias corrections as tensors.
    torch.testing.assert_close(train(True), train(False), rtol=1e-4, atol=1e-6)
    assert "backward" in kinds()


def test_inputs_and_buffers_that_are_written() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            x[0] = self.seen
            return x.t()

    module = Counter().to(DEVICE)
    f, x = compiled(module, fullgraph=True), tensor(3, 4)
    out = f(x)
    out2 = f(x)
    assert module.seen.item() == 2.0
    assert x[0].tolist() == [2.0] * 4 and out.data_ptr() == out2.data_ptr() == x.data_ptr()


def test_graph_breaks_and_other_arguments() -> None:
    def f(x: Tensor, scale: float, names: dict[str, int]) -> Tensor:
        y = x * scale
        torch._dynamo.graph_break()
        return y + names["bias"] if y.sum().item() > 0 else y - names["bias"]

    x = tensor(3, 4)
    equal(compiled(f)(x, 2.0, {"bias": 3}), f(x, 2.0, {"bias": 3}))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(f, fullgraph=True)(x, 2.0, {"bias": 3})


def test_inference_mode_checkpointing_and_copies_of_a_compiled_module() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh()).to(DEVICE)
    x = tensor(4, 6)
    with torch.inference_mode():
        equal(compiled(module)(x), module(x))
    f = lambda x: checkpoint(module, x, use_reentrant=False).sum()  # noqa: E731
    compiled(f, fullgraph=True)(x).backward()
    gradients = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    f(x).backward()
    equal(gradients, [p.grad for p in module.parameters()])
    equal(compiled(copy.deepcopy(module))(x), module(x))


def test_custom_operators_are_nodes() -> None:
    @torch.library.custom_op("neuron_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    x = tensor(3)
    equal(compiled(lambda x: twice(x) + 1, fullgraph=True)(x), x * 2 + 1)


def test_device_questions_are_answered_while_tracing() -> None:
    def f(x: Tensor) -> Tensor:
        return x + 1 if x.device.type == DEVICE and torch.neuron.is_available() else x - 1

    equal(compiled(f, fullgraph=True)(tensor(3)), tensor(3) + 1)


# --- which backend
def test_a_plain_compile_of_neuron_tensors_takes_neuron() -> None:
    x = tensor(4, 6)
    equal(torch.compile(FUNCTIONS["pointwise"])(x), FUNCTIONS["pointwise"](x))
    assert kinds() == ["inference"]


def test_a_plain_compile_of_a_factory_on_the_device_takes_neuron() -> None:
    equal(torch.compile(lambda: torch.ones(3, device=DEVICE) + 1)(), torch.full((3,), 2.0, device=DEVICE))
    assert kinds() == ["inference"]


def test_a_plain_compile_of_cpu_tensors_stays_with_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def compile_fx(module: torch.fx.GraphModule, inputs: Any, **_: Any) -> Any:
        seen.append(inputs[0].device.type)
        return module.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    torch.compile(lambda x: x + 1)(torch.ones(3))
    assert seen == ["cpu"] and kinds() == []


def test_options_of_inductor_warn_on_neuron_tensors() -> None:
    with pytest.warns(UserWarning, match="Options of Inductor have no effect on neuron tensors: max_autotune"):
        torch.compile(lambda x: x + 1, options={"max_autotune": True})(tensor(3))


def test_set_default_backend() -> None:
    previous = torch._dynamo.backends.registry.get_default_backend()
    torch.compiler.set_default_backend("neuron")
    try:
        torch.compile(lambda x: x + 1)(tensor(3))
    finally:
        torch.compiler.set_default_backend(previous)
    assert kinds() == ["inference"]


# --- inputs on the CPU
def test_inputs_on_the_cpu_are_copied_and_results_come_back() -> None:
    module = nn.Linear(4, 2)
    x = torch.randn(3, 4)
    expected = module(x)
    out = compiled(module)(x)
    out.sum().backward()
    assert out.device.type == "cpu" and module.weight.grad is not None and module.weight.grad.device.type == "cpu"
    torch.testing.assert_close(out, expected)

    def write(x: Tensor) -> Tensor:
        x.add_(torch.ones(4))
        return x * 2

    y = torch.zeros(3, 4)
    with torch.no_grad():
        assert torch.equal(compiled(write)(y), torch.full((3, 4), 2.0)) and torch.equal(y, torch.ones(3, 4))


def test_copying_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(BackendCompilerFailed, match="CPU_AUTOCOPY=1 forbids"):
        compiled(lambda x: x + 1)(torch.ones(3))


def test_mixed_devices_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="device"):
        compiled(lambda x, y: x + y, fullgraph=True)(tensor(3), torch.ones(3))


# --- options and errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stric": True},
            "no option 'stric', only model_name, strict, fallback_execution, fusion; did you mean 'strict'",
        ),
        ({"strict": 1}, "option 'strict' .* is 1 of type int: it takes a bool"),
        ({"model_name": True}, "it takes a str"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendCompilerFailed, match=message):
        compiled(lambda x: x + 1, options=options)(tensor(3))


def test_mode_warns() -> None:
    with pytest.warns(UserWarning, match="mode='max-autotune'.* has no effect on backend 'neuron'"):
        compiled(lambda x: x + 1, mode="max-autotune")(tensor(3))


def test_the_model_name_is_in_the_metrics() -> None:
    compiled(lambda x: x + 1, options={"model_name": "mine"})(tensor(3))
    assert torch_neuronx.get_dynamo_metrics()[0].name.startswith("mine_")


def needs_the_cpu(x: Tensor) -> Tensor:
    y = x * 2
    return torch.fake_quantize_per_tensor_affine(y, 0.1, 0, 0, 255)  # no kernel for the device


def test_strict_names_the_operator_and_the_line() -> None:
    torch_neuronx.set_fallback_policy("allow")
    try:
        equal(compiled(needs_the_cpu)(tensor(3)), needs_the_cpu(tensor(3)))
    finally:
        torch_neuronx.set_fallback_policy("warn")
    torch._dynamo.reset()
    with pytest.raises(
        BackendCompilerFailed,
        match=r"fake_quantize.*would run on the CPU.*test_backend.py.*fake_quantize_per_tensor_affine\(y",
    ):
        compiled(needs_the_cpu, options={"strict": True})(tensor(3))


def test_a_graph_that_cannot_be_compiled_may_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"strict": True, "fallback_execution": True}
    torch_neuronx.set_fallback_policy("allow")
    try:
        with pytest.warns(UserWarning, match="cannot be compiled and runs eagerly"):
            equal(compiled(needs_the_cpu, options=options)(tensor(3)), needs_the_cpu(tensor(3)))
        torch._dynamo.reset()
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
        with pytest.warns(UserWarning, match="cannot be compiled and runs eagerly"):
            compiled(needs_the_cpu, options={"strict": True})(tensor(3))
    finally:
        torch_neuronx.set_fallback_policy("warn")
