"""Four models in plain PyTorch, small enough that one training step takes about a second on two slow cores.

They are written here, not imported, so the benchmark needs nothing but torch and its work is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["GPT", "MODELS", "Llama", "ModelSpec", "ResNet18", "ViT"]


class Block(nn.Module):
    """Pre-norm transformer block of GPT-2 and ViT: attention over `heads`, GELU feed-forward of 4 x `dim`."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """GPT-2 in small. Takes (batch, length + 1) token ids and returns the mean next-token loss."""

    def __init__(self, vocabulary: int, length: int, dim: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        inputs, targets = ids[:, :-1], ids[:, 1:]
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.size(1), device=ids.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class RMSNorm(nn.Module):
    """RMSNorm written out as Llama's published code has it: a chain of small operators, not `F.rms_norm`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * h.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x (batch, heads, length, head_dim); cos and sin are (length, head_dim)."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class LlamaBlock(nn.Module):
    """RMSNorm, grouped-query attention with rotary positions, SwiGLU feed-forward."""

    def __init__(self, dim: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, dim))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Llama in small. Takes (batch, length + 1) token ids and returns the mean next-token loss."""

    def __init__(
        self, vocabulary: int, length: int, dim: int, layers: int, heads: int, kv_heads: int, hidden: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, kv_heads, hidden) for _ in range(layers))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        half = torch.arange(0, dim // heads, 2) / (dim // heads)
        angles = torch.outer(torch.arange(length), 10000.0**-half).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        inputs, targets = ids[:, :-1], ids[:, 1:]
        x = self.tokens(inputs)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Residual(nn.Module):
    """ResNet's basic block: two 3x3 convolutions with batch norm, and a 1x1 shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with ImageNet's stem and `width` channels in its first stage (64 in the paper).

    Takes images (batch, 3, side, side) and returns the loss; targets are the places in the batch.
    """

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            for index in range(2):
                outputs = width * 2**stage
                blocks.append(Residual(inputs, outputs, stride=2 if stage and not index else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.classes, self.head = classes, nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.stem(images))
        logits = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return F.cross_entropy(logits, torch.arange(images.size(0), device=images.device) % self.classes)


class ViT(nn.Module):
    """Vision transformer with a class token. Takes images (batch, 3, side, side) and returns the loss, as ResNet18."""

    def __init__(self, side: int, patch: int, dim: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.classes, self.head = nn.LayerNorm(dim), classes, nn.Linear(dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.size(0), -1, -1), x), dim=1) + self.positions
        logits = self.head(self.norm(self.blocks(x))[:, 0])
        return F.cross_entropy(logits, torch.arange(images.size(0), device=images.device) % self.classes)


@dataclass(frozen=True)
class ModelSpec:
    """A model, its input for a batch size, and the batch for each precision.

    The bf16 batch is smaller because a CPU without bf16 instructions multiplies bf16 matrices about 30x slower than
    fp32 ones: with the same batch one step of the comparison would take a minute there.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    batch_fp32: int
    batch_bf16: int
    batch_quick: int = 1


def _tokens(vocabulary: int, length: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randint(vocabulary, (batch, length + 1))


def _images(side: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, 3, side, side)


MODELS: dict[str, ModelSpec] = {
    "GPT": ModelSpec(lambda: GPT(2048, 256, dim=256, layers=4, heads=4), _tokens(2048, 256), 8, 1),
    "Llama": ModelSpec(
        lambda: Llama(2048, 256, dim=256, layers=4, heads=8, kv_heads=2, hidden=688), _tokens(2048, 256), 8, 1
    ),
    "ResNet-18": ModelSpec(lambda: ResNet18(100, width=64), _images(64), 16, 2, 2),
    "ViT": ModelSpec(lambda: ViT(64, 8, dim=256, layers=6, heads=4, classes=100), _images(64), 16, 2),
}
