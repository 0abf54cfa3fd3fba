"""Train a small GPT on real text, sample from it, and report what the device did.

Plain PyTorch: the device is a string, and nothing else depends on it. `--device cpu` (or `cuda`) runs the same program.
The default text is the reference manual inside CPython (`pydoc_data.topics`); `--text FILE` takes any other.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    """Sizes of the model and of a batch."""

    vocabulary: int
    context: int = 128
    dim: int = 192
    layers: int = 4
    heads: int = 6
    dropout: float = 0.1
    batch: int = 12


class Block(nn.Module):
    """Pre-norm transformer block; (batch, length, dim) in and out."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads, self.dropout = c.heads, c.dropout
        self.norm1, self.norm2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.qkv, self.proj = nn.Linear(c.dim, 3 * c.dim), nn.Linear(c.dim, c.dim)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(batch, length, dim)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Token ids (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(c.vocabulary, c.dim), nn.Embedding(c.context, c.dim)
        self.drop = nn.Dropout(c.dropout)
        self.blocks = nn.Sequential(*(Block(c) for _ in range(c.layers)))
        self.norm, self.head = nn.LayerNorm(c.dim), nn.Linear(c.dim, c.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.blocks(self.drop(x))))


def read_text(path: str | None) -> str:
    if path is None:
        from pydoc_data.topics import topics

        return "\n\n".join(topics.values())
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"--text {path}: {error}. Give a readable UTF-8 text file.")


def open_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        sys.exit(f"--device {name}: {reason}. Give one of: neuron, neuron:0, cuda, cpu.")
    return device


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over a tenth of the run, then a cosine down to a tenth of the peak."""
    warmup = max(1, steps // 10)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


class Progress:
    """One line that is rewritten on a terminal, and a line every tenth of the run elsewhere."""

    def __init__(self, steps: int) -> None:
        self.steps, self.terminal = steps, sys.stderr.isatty()

    def show(self, step: int, text: str) -> None:
        done = (step + 1) / self.steps
        bar = "#" * int(24 * done)
        line = f"[{bar:<24}] {step + 1:>4}/{self.steps}  {text}"
        if self.terminal:
            print(f"\r\033[K{line}", end="\n" if done == 1 else "", file=sys.stderr, flush=True)
        elif (step + 1) % max(1, self.steps // 10) == 0 or done == 1:
            print(line, file=sys.stderr, flush=True)


def train(
    model: GPT, data: Tensor, c: Config, args: argparse.Namespace, device: torch.device
) -> dict[str, list[float]]:
    """Returns the loss, the host seconds and the device milliseconds of every step."""
    accelerator = None if device.type == "cpu" else torch.get_device_module(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    order = torch.Generator().manual_seed(args.seed)  # the same batches on every device
    progress, history = Progress(args.steps), {"loss": [], "seconds": [], "device_ms": []}
    offsets = torch.arange(c.context + 1)
    for step in range(args.steps):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        starts = torch.randint(len(data) - c.context - 1, (c.batch, 1), generator=order)
        batch = data[starts + offsets].to(device)
        if accelerator:
            start, end = accelerator.Event(enable_timing=True), accelerator.Event(enable_timing=True)
            start.record()
        with torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == "bf16"):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if accelerator:
            end.record()
        history["loss"].append(loss.item())
        seconds = time.perf_counter() - began
        history["seconds"].append(seconds)
        text = f"loss {history['loss'][-1]:.3f}  {c.batch * c.context / seconds:,.0f} tokens/s"
        if accelerator:
            end.synchronize()
            history["device_ms"].append(start.elapsed_time(end))
            text += f"  device {history['device_ms'][-1]:.2f} ms/step"
            text += f"  HBM {accelerator.memory_allocated() / 2**20:.0f} MiB"
        progress.show(step, text)
    return history


@torch.no_grad()
def sample(model: GPT, alphabet: str, c: Config, device: torch.device, length: int = 200) -> str:
    """Continues a line break by `length` characters: temperature 0.8, among the 20 likeliest."""
    model.eval()
    ids = torch.full((1, 1), max(0, alphabet.find("\n")), device=device)
    for _ in range(length):
        logits = model(ids[:, -c.context :])[:, -1].float() / 0.8
        kept, places = logits.topk(min(20, len(alphabet)))
        ids = torch.cat([ids, places.gather(1, torch.multinomial(kept.softmax(-1), 1))], dim=1)
    return "".join(alphabet[i] for i in ids[0].tolist())


def report(device: torch.device, c: Config, history: dict[str, list[float]]) -> None:
    tokens = c.batch * c.context
    host = sorted(history["seconds"])[len(history["seconds"]) // 2]
    print(f"\n--- {device} ---\nhost speed       {tokens / host:,.0f} tokens/s (median step, this machine)")
    if device.type == "cpu":
        return
    accelerator = torch.get_device_module(device)
    device_ms = sorted(history["device_ms"])[len(history["device_ms"]) // 2]
    print(f"device time      {device_ms:.2f} ms a step, {tokens / device_ms * 1e3:,.0f} tokens/s (median step)")
    print(f"peak HBM         {accelerator.max_memory_allocated() / 2**20:.0f} MiB allocated, "
          f"{accelerator.get_device_properties(device).total_memory / 2**30:.0f} GiB on the device")  # fmt: skip
    if device.type == "neuron":
        import torch_neuronx
        from torch_neuronx import _C

        topology = _C.topology()
        print(f"chip emulated    {accelerator.get_device_properties(device).name} in {topology['instance']}, "
              f"{accelerator.device_count()} logical NeuronCores of {topology['lnc']} physical ones; "
              f"device time is the chip's by its model, not this machine's")  # fmt: skip
        print(f"native launches  {_C.launch_count(accelerator.current_device()):,}")
        print(f"fallbacks        {torch_neuronx.fallbacks() or 'none'}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="neuron", help="neuron (default), cuda, cpu")
    parser.add_argument("--text", metavar="FILE", help="UTF-8 text to learn (default: the manual inside CPython)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16", help="autocast type (default bf16)")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a model of 1/20 of the size, for tests")
    parser.add_argument("--json", metavar="FILE", help="write the loss of every step to this file")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: must be 1 or more")
    if not 0 <= args.dropout < 1:
        parser.error(f"--dropout {args.dropout}: must be in [0, 1)")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    device, text = open_device(args.device), read_text(args.text)
    alphabet = "".join(sorted(set(text)))
    sizes = {"context": 32, "dim": 48, "layers": 2, "heads": 3, "batch": 8} if args.small else {}
    c = Config(len(alphabet), dropout=args.dropout, **sizes)
    if len(text) < 2 * c.context:
        sys.exit(f"--text {args.text}: {len(text)} characters are too few; give at least {2 * c.context}.")
    index = {character: i for i, character in enumerate(alphabet)}
    data = torch.tensor([index[character] for character in text])
    torch.manual_seed(args.seed)
    model = GPT(c).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {len(text):,} characters, {args.dtype}, on {device}", file=sys.stderr)
    try:
        history = train(model, data, c, args, device)
    except KeyboardInterrupt:
        sys.exit("\nstopped before the end; nothing was saved")
    if args.json:
        partial = Path(f"{args.json}.part")
        partial.write_text(json.dumps(history))
        partial.replace(args.json)
    print(sample(model, alphabet, c, device))
    report(device, c, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
