"""Mixed precision: defaults, and the names of torch.cuda.amp."""

from __future__ import annotations

import threading

import pytest
import torch


def product_dtype() -> torch.dtype:
    a = torch.ones(2, 2, device="neuron")
    return (a @ a).dtype


def test_default_dtype_is_bfloat16() -> None:
    assert torch.get_autocast_dtype("neuron") == torch.bfloat16
    with torch.autocast("neuron"):
        assert product_dtype() == torch.bfloat16
    assert product_dtype() == torch.float32


def test_default_dtype_in_another_thread() -> None:
    seen: list[torch.dtype] = []

    def run() -> None:
        with torch.autocast("neuron"):
            seen.append(product_dtype())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [torch.bfloat16]


def test_a_chosen_default_is_kept() -> None:
    torch.set_autocast_dtype("neuron", torch.float16)
    try:
        with torch.autocast("neuron"):
            assert product_dtype() == torch.float16
    finally:
        torch.set_autocast_dtype("neuron", torch.bfloat16)


@pytest.mark.parametrize("dtype", torch.neuron.get_amp_supported_dtype())
def test_supported_dtypes(dtype: torch.dtype) -> None:
    with torch.autocast("neuron", dtype=dtype):
        assert product_dtype() == dtype


def test_other_dtypes_turn_autocast_off_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="neuron Autocast only supports"), torch.autocast("neuron", torch.float64):
        assert product_dtype() == torch.float32


def test_cuda_spellings() -> None:
    with torch.neuron.amp.autocast():
        assert product_dtype() == torch.bfloat16
    with torch.neuron.amp.autocast(enabled=False):
        assert product_dtype() == torch.float32
    with torch.neuron.amp.autocast(dtype=torch.float16):
        assert product_dtype() == torch.float16


def test_grad_scaler_skips_a_step_with_infinite_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(3, device="neuron"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.neuron.amp.GradScaler(init_scale=4.0)
    scaler.scale((weight * torch.tensor([1.0, float("inf"), 1.0], device="neuron")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight.detach().cpu(), torch.ones(3))
    assert scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    assert torch.equal(weight.detach().cpu(), torch.zeros(3))


def test_custom_function_decorators() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.neuron.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            assert not torch.is_autocast_enabled("neuron")
            return x * x

        @staticmethod
        @torch.neuron.amp.custom_bwd
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    x = torch.ones(2, device="neuron", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("neuron"):
        y = Product.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_binary_cross_entropy_of_probabilities_is_refused_as_on_cuda() -> None:
    p, target = torch.rand(4, device="neuron"), torch.rand(4, device="neuron")
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(p, target)
    torch.nn.functional.binary_cross_entropy(p, target)
