"""Sparse COO tensors against the CPU: made, moved, coalesced, multiplied, and as gradients of embeddings."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_neuronx

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
INDICES = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])


def sparse(dtype: torch.dtype = torch.float32) -> Tensor:
    """2 x 3, one place given twice."""
    return torch.sparse_coo_tensor(INDICES, torch.tensor([3.0, 4.0, 5.0, 1.0], dtype=dtype), (2, 3))


def same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.device.type == "neuron"
    assert ours.layout == theirs.layout
    if theirs.layout == torch.sparse_coo:
        assert ours.is_coalesced() == theirs.is_coalesced()
        assert ours.sparse_dim() == theirs.sparse_dim() and ours.dense_dim() == theirs.dense_dim()
        same(ours._indices(), theirs._indices())
        same(ours._values(), theirs._values())
    else:
        torch.testing.assert_close(ours.cpu(), theirs)


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "coalesce": lambda s: s.coalesce(),
    "to_dense": lambda s: s.to_dense(),
    "add": lambda s: s + s,
    "add to dense": lambda s: torch.ones(2, 3, device=s.device) + s,
    "mul by a number": lambda s: s * 2.0,
    "mul": lambda s: s.coalesce() * s.coalesce(),
    "mm": lambda s: torch.sparse.mm(s, torch.arange(6.0, device=s.device).view(3, 2)),
    "addmm": lambda s: torch.sparse.addmm(torch.ones(2, 2, device=s.device), s, torch.ones(3, 2, device=s.device)),
    "sparse by sparse": lambda s: torch.sparse.mm(s, s.t()).coalesce(),
    "sum": lambda s: torch.sparse.sum(s),
    "sum of rows": lambda s: torch.sparse.sum(s, 0),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "transpose": lambda s: s.t(),
    "index_select": lambda s: s.index_select(0, torch.tensor([1], device=s.device)),
    "cat": lambda s: torch.cat([s, s]),
    "sparse_mask": lambda s: torch.ones(2, 3, device=s.device).sparse_mask(s.coalesce()),
    "clone": lambda s: s.clone(),
    "neg": lambda s: s.coalesce().neg(),
    "norm": lambda s: s.coalesce().norm(),
    "pow": lambda s: s.coalesce().pow(2),
    "in place": lambda s: s.mul_(3.0),
    "zero_": lambda s: s.zero_(),
    "to_sparse": lambda s: s.to_dense().to_sparse(),
    "sparse_dim 1": lambda s: s.to_dense().to_sparse(1),
    "empty": lambda s: torch.empty(4, 5, layout=torch.sparse_coo, device=s.device),
    "zeros": lambda s: torch.zeros(4, 5, layout=torch.sparse_coo, device=s.device),
    "empty_like": lambda s: torch.empty_like(s),
    "parts": lambda s: s.coalesce().values() + s.coalesce().indices()[0],
    "dtype": lambda s: s.to(torch.bfloat16),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_cpus_results_without_fallbacks(call: str) -> None:
    torch_neuronx.reset_fallbacks()
    same(CALLS[call](sparse().to("neuron")), CALLS[call](sparse()))
    assert not torch_neuronx.fallbacks()


def test_an_operator_without_kernel_is_a_counted_fallback() -> None:
    torch_neuronx.reset_fallbacks()
    same(sparse().to("neuron").coalesce().atan(), sparse().coalesce().atan())
    assert [row.op for row in torch_neuronx.fallbacks()] == ["aten::atan"]


def test_made_from_parts_shares_their_memory() -> None:
    values = torch.ones(4, device="neuron")
    made = torch.sparse_coo_tensor(INDICES.to("neuron"), values, (2, 3))
    values.fill_(7.0)
    assert made._values().data_ptr() == values.data_ptr()
    assert made.to_dense().sum().item() == 28.0


def test_on_another_core_and_back() -> None:
    moved = torch.sparse_coo_tensor(INDICES, torch.ones(4), (2, 3), device="neuron:1")
    assert moved.device == moved._values().device == torch.device("neuron:1")
    assert moved.to("neuron:0")._indices().device == torch.device("neuron:0")
    assert torch.equal(moved.cpu().to_dense(), torch.tensor([[0.0, 0, 2], [1, 0, 1]]))


def test_copies_printing_and_files() -> None:
    ours = sparse().to("neuron")
    same(copy.deepcopy(ours), sparse())
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    same(torch.load(buffer, weights_only=True), sparse())
    assert "device='neuron:0'" in repr(ours) and "nnz=4" in repr(ours)


def test_dense_and_sparse_do_not_copy_into_each_other() -> None:
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        torch.ones(2, 3, device="neuron").copy_(sparse().to("neuron"))


def test_gradients_through_sparse_tensors() -> None:
    def gradient(device: str) -> Tensor:
        x = torch.arange(6.0, device=device).view(2, 3).requires_grad_()
        torch.sparse.mm(x.to_sparse(), torch.ones(3, 2, device=device)).square().sum().backward()
        assert x.grad is not None
        return x.grad

    same(gradient("neuron").to_dense(), gradient("cpu").to_dense())


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_embeddings_with_sparse_gradients_train_as_on_the_cpu(optimizer: type[torch.optim.Optimizer]) -> None:
    def train(device: str) -> Tensor:
        torch.manual_seed(0)
        layer = nn.Embedding(20, 4, sparse=True).to(device)
        steps = optimizer(layer.parameters(), lr=0.1)
        for step in range(5):
            steps.zero_grad()
            layer(torch.tensor([1, 3, 1, step], device=device)).square().sum().backward()
            assert layer.weight.grad is not None and layer.weight.grad.layout == torch.sparse_coo
            steps.step()
        return layer.weight.detach()

    torch_neuronx.reset_fallbacks()
    torch.testing.assert_close(train("neuron").cpu(), train("cpu"))
    assert not torch_neuronx.fallbacks()
