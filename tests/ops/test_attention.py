"""Attention: the fused kernels against the CPU, forward and backward, and the choice between them and PyTorch's own."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

FUSED = "aten::_scaled_dot_product_fused_attention_overrideable"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 6e-2, torch.float16: 1e-2}


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def on_neuron(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().to("neuron").requires_grad_(t.requires_grad) for t in tensors]


def ops_of(f) -> list[str]:
    """Names of the operators that `f` calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU]) as run:
            f()
    return [event.name for event in run.events()]


def check(tensors: list[torch.Tensor], mask: torch.Tensor | None = None, **options) -> None:
    """Outputs and all gradients equal the CPU's."""
    dtype = tensors[0].dtype
    results = []
    for args, attn_mask in ((tensors, mask), (on_neuron(tensors), None if mask is None else on_neuron([mask])[0])):
        out = F.scaled_dot_product_attention(*args, attn_mask=attn_mask, **options)
        torch.manual_seed(1)
        grad = torch.randn(out.shape).to(dtype).to(out.device)
        wanted = args + ([attn_mask] if attn_mask is not None and attn_mask.requires_grad else [])
        results.append([out.detach(), *torch.autograd.grad(out, wanted, grad)])
    for expected, actual in zip(*results, strict=True):
        assert actual.device.type == "neuron" and actual.dtype == expected.dtype
        limit = TOLERANCE[dtype]
        torch.testing.assert_close(actual.cpu(), expected, rtol=limit, atol=limit)


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def qkv(request) -> list[torch.Tensor]:
    return inputs((2, 4, 17, 16), (2, 4, 23, 16), (2, 4, 23, 16), dtype=request.param)


def test_plain_causal_and_scaled(qkv: list[torch.Tensor]) -> None:
    check(qkv)
    check(qkv, is_causal=True)
    check(qkv, scale=0.3)


def test_masks(qkv: list[torch.Tensor]) -> None:
    dtype = qkv[0].dtype
    check(qkv, torch.randn(17, 23).to(dtype))
    check(qkv, torch.randn(2, 1, 17, 23).to(dtype))
    check(qkv, torch.rand(2, 1, 1, 23) > 0.3)
    check(qkv, torch.randn(4, 17, 23).to(dtype))
    hidden = torch.ones(17, 23, dtype=torch.bool)
    hidden[3] = False  # a row that may look at nothing
    check(qkv, hidden)


def test_a_mask_gets_its_gradient(qkv: list[torch.Tensor]) -> None:
    for shape in ((17, 23), (1, 4, 17, 23), (2, 1, 1, 23)):
        check(qkv, torch.randn(shape).to(qkv[0].dtype).requires_grad_())


def test_grouped_queries(qkv: list[torch.Tensor]) -> None:
    q, k, v = qkv
    check([q, *(t[:, :2].detach().requires_grad_() for t in (k, v))], enable_gqa=True)
    check([q, *(t[:, :1].detach().requires_grad_() for t in (k, v))], enable_gqa=True, is_causal=True)


def test_values_of_another_width_and_three_dimensions(qkv: list[torch.Tensor]) -> None:
    q, k, v = qkv
    check([q, k, v[..., :7].detach().requires_grad_()])
    check([t[0].detach().requires_grad_() for t in qkv], is_causal=True)
    check([t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in qkv])


@pytest.mark.parametrize("dims", [3, 4])
def test_the_fused_kernel_is_reached(dims: int) -> None:
    q = torch.randn((2, 8, 16) if dims == 3 else (2, 2, 8, 16), device="neuron")
    for options in ({}, {"is_causal": True}, {"dropout_p": 0.5}, {"attn_mask": torch.zeros(8, 8, device="neuron")}):
        assert FUSED in ops_of(lambda o=options: F.scaled_dot_product_attention(q, q, q, **o)), options


def test_backends_can_be_chosen() -> None:
    q = torch.randn(2, 2, 8, 16, device="neuron")

    def call() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q)

    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.OVERRIDEABLE):
        with sdpa_kernel(backend):
            assert FUSED in ops_of(call)
    with sdpa_kernel(SDPBackend.MATH):
        assert FUSED not in ops_of(call)
    five = q.unsqueeze(0)
    assert F.scaled_dot_product_attention(five, five, five).shape == five.shape  # by products, as on other devices
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        F.scaled_dot_product_attention(five, five, five)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_drops_and_backward_uses_the_same_mask(dtype: torch.dtype) -> None:
    q, k = (torch.randn(2, 4, 64, 16, device="neuron").to(dtype).requires_grad_() for _ in range(2))
    v = torch.eye(64, device="neuron", dtype=dtype).expand(2, 4, 64, 64).contiguous().requires_grad_()
    torch.manual_seed(1)
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)  # the values are the identity: probabilities
    keep = (dropped != 0).cpu()
    assert abs(keep.float().mean() - 0.75) < 0.02
    grad = torch.randn(dropped.shape).to(dtype)
    gradients = torch.autograd.grad(dropped, (q, k, v), grad.to("neuron"))
    qc, kc, vc = (t.detach().cpu().float().requires_grad_() for t in (q, k, v))
    expected = (torch.softmax(qc @ kc.mT / math.sqrt(16), -1) * keep / 0.75) @ vc
    limit = TOLERANCE[dtype]
    torch.testing.assert_close(dropped.cpu().float(), expected, rtol=limit, atol=limit)
    wanted = torch.autograd.grad(expected, (qc, kc, vc), grad.float())
    for actual, reference in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(actual.cpu().float(), reference, rtol=limit, atol=limit)
    torch.manual_seed(1)
    again = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    assert torch.equal(again, dropped)
    assert not torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=0.25), dropped)


def test_dropout_mask_does_not_depend_on_the_blocks() -> None:
    """Scores are worked on in blocks of about a million; the mask of a head is the same wherever it falls."""
    length = 600  # a block holds two heads
    q = torch.randn(1, 5, length, 4, device="neuron")
    v = torch.ones(1, 5, length, 1, device="neuron")
    torch.manual_seed(3)
    whole = F.scaled_dot_product_attention(q, q, v, dropout_p=0.5)
    torch.manual_seed(3)
    first = F.scaled_dot_product_attention(q[:, :1], q[:, :1], v[:, :1], dropout_p=0.5)
    torch.testing.assert_close(whole[:, :1], first)


def test_dropout_of_everything_is_zero() -> None:
    q = torch.randn(1, 2, 8, 4, device="neuron")
    assert not F.scaled_dot_product_attention(q, q, q, dropout_p=1.0).any()


@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention_module(need_weights: bool) -> None:
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 9, 16)
    expected, _ = module(x, x, x, need_weights=need_weights)
    actual, _ = module.to("neuron")(x.to("neuron"), x.to("neuron"), x.to("neuron"), need_weights=need_weights)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_mixed_devices_and_types_are_refused() -> None:
    q = torch.randn(1, 2, 8, 4, device="neuron")
    with pytest.raises(RuntimeError, match="same device"):
        F.scaled_dot_product_attention(q, q.cpu(), q)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(q, q.half(), q)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"enable_gqa": True}, {"attn_mask": True}], ids=str)
def test_second_derivatives(options: dict) -> None:
    """Where a graph of the backward is wanted, it is made of operators that have one."""
    torch.manual_seed(0)
    heads = 1 if "enable_gqa" in options else 2
    tensors = inputs((1, 2, 5, 4), (1, heads, 6, 4), (1, heads, 6, 3), dtype=torch.float64)
    results = []
    for device in ("cpu", "neuron"):
        q, k, v = (t.detach().to(device).requires_grad_() for t in tensors)
        chosen = dict(options)
        if "attn_mask" in options:
            chosen["attn_mask"] = torch.linspace(-1, 1, 30, device=device, dtype=torch.float64).view(5, 6)
        with sdpa_kernel(SDPBackend.MATH if device == "cpu" else SDPBackend.OVERRIDEABLE):
            out = F.scaled_dot_product_attention(q, k, v, **chosen)
        first = torch.autograd.grad(out.pow(2).sum(), (q, k, v), create_graph=True)
        second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), (q, k, v))
        results.append([*first, *second])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-10, atol=1e-10)


def test_second_derivatives_with_dropout() -> None:
    """Numerical derivatives of the gradient, with the same mask each time."""
    tensors = [t.detach().to("neuron").requires_grad_() for t in inputs(*[(1, 2, 3, 4)] * 3, dtype=torch.float64)]

    def attend(*args: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return F.scaled_dot_product_attention(*args, dropout_p=0.5)

    assert torch.autograd.gradcheck(attend, tensors)
    assert torch.autograd.gradgradcheck(attend, tensors)
