"""Whether a run on the device agrees with the CPU's.

Everything but rounding has to be the same: variables, exceptions, dtypes, shapes, strides, versions, who shares memory
with whom. Values have to be equal bit by bit, or to differ by what rounding explains. How much that is depends on the
whole program (a difference of one unit in the last place may be amplified, or turn a comparison), so it is measured
rather than guessed: the CPU runs the program again a number of times, each statement's result moved at random by as
much as that statement's kernel may be off (Statement.noise). An element may differ by FACTOR times the largest
deviation that these runs show at it; where they show none, it must not differ at all.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from programs.compiled import backward
from programs.program import Outcome, Program, Statement, execute

FACTOR = 4.0
RUNS = (8, 32)  # noisy runs before an element's difference is called wrong: a rare rounding edge needs more
COMPILED_NOISE = 2.0  # compiled code may keep float32 between 16-bit operators, contract a*b+c, and reorder sums


@dataclasses.dataclass
class Difference:
    name: str  # variable or read
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


# --- noise ------------------------------------------------------------------------------------------------------------
class Noise:
    """Called after each statement of a run on the CPU: moves its results, and the gradients that pass through them."""

    def __init__(self, seed: int, least: float) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.least = least

    def __call__(self, statement: Statement, env: dict[str, Any]) -> None:
        ulps = max(statement.noise, 0.0 if statement.is_input else self.least)
        for name in statement.out:
            t = env.get(name)
            if not isinstance(t, torch.Tensor) or not t.is_floating_point() or t.numel() == 0:
                continue
            if ulps:
                scale = 0.0
                if statement.scale:
                    with torch.no_grad():
                        scale = float(eval(statement.scale, env))
                self.move(t, ulps, scale)
            if t.requires_grad and not t.is_inference():
                t.register_hook(self.moved_gradient)

    def move(self, t: torch.Tensor, ulps: float, scale: float) -> None:
        if any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride(), strict=True)):
            return  # several indices of one element: the statement made a view, not numbers
        with torch.no_grad(), torch.inference_mode(t.is_inference()):
            data = t.data
            data.copy_(self.moved(data, ulps, scale))

    def moved(self, t: torch.Tensor, ulps: float, scale: float = 0.0) -> torch.Tensor:
        if t.element_size() == 2:
            ulps = min(ulps, 1.0)  # computed in float32 and rounded once
        wide = t.double()
        size = ulps * (torch.finfo(t.dtype).eps * wide.abs() + 2.0**-23 * (scale if math.isfinite(scale) else 0.0))
        shift = torch.rand(wide.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        return torch.where(wide.isfinite(), wide + size * shift, wide).to(t.dtype)

    def moved_gradient(self, g: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.moved(g, 8.0, 8.0 * float(g.abs().double().nan_to_num(0, 0, 0).sum()))


# --- what is compared -------------------------------------------------------------------------------------------------
def observations(outcome: Outcome) -> dict[str, Any]:
    """Every value that a program can still see, on the CPU: tensors, their gradients, and what was read."""
    seen: dict[str, Any] = {}
    for name, t in outcome.tensors().items():
        with torch.no_grad():
            seen[name] = t.data.cpu()
        if is_leaf(t) is True and t.grad is not None:
            seen[f"{name}.grad"] = t.grad.detach().cpu()
    seen.update(outcome.reads)
    seen.update({k: v for k, v in outcome.env.items() if isinstance(v, float)})
    return seen


def is_leaf(t: torch.Tensor) -> bool | str:
    """Asking may raise: a view of several that one function made cannot follow a write into its base."""
    try:
        return t.is_leaf
    except RuntimeError as error:
        return str(error).split(".")[0]


def metadata(t: torch.Tensor, layout: bool, versions: bool) -> tuple[Any, ...]:
    """What has to be the same. Strides of dimensions of one element say nothing, to PyTorch's own checks either, and
    nor does where an empty tensor begins."""
    facts: tuple[Any, ...] = (t.dtype, tuple(t.shape), t.requires_grad, is_leaf(t))
    if layout:
        strides = [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1] if t.numel() else []
        facts = (*facts, strides, t.storage_offset() if t.numel() else 0, t.is_inference())
    return (*facts, t._version) if versions and not t.is_inference() else facts


def sharing(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each tensor the first one that has the same storage."""
    first: dict[int, str] = {}
    return {name: first.setdefault(t.untyped_storage()._cdata, name) for name, t in sorted(tensors.items())}


def as_double(value: Any) -> torch.Tensor | None:
    """Numbers as float64; None for what is not made of numbers."""
    if isinstance(value, torch.Tensor):
        return value.double()
    if isinstance(value, (bool, int, float)):
        return torch.tensor(float(value), dtype=torch.float64)
    if isinstance(value, list) and all(isinstance(v, (bool, int, float)) for v in value):
        return torch.tensor([float(v) for v in value], dtype=torch.float64)
    return None


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if torch.equal(a, b):
            return True
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, str):
        return "".join(a.replace(", device='neuron:0'", "").split()) == "".join(b.split())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def reference(program: Program, after: Noise | None = None) -> Outcome:
    """The run on the CPU, with the backward that a compiled program ends with."""
    outcome = execute(program, "cpu", after)
    if program.mode == "compile":
        backward(outcome)
    return outcome


def judge(program: Program, got: Outcome, expected: Outcome) -> list[Difference]:
    """All differences that rounding does not explain; an empty list if there are none."""
    for index in sorted(got.errors.keys() | expected.errors.keys()):
        ours, theirs = got.errors.get(index), expected.errors.get(index)
        if ours != theirs:
            text = program.statements[index].text if index >= 0 else "the compiled function"
            message = got.messages.get(index) or expected.messages.get(index)
            return [Difference(f"line {index}", f"{ours} instead of {theirs} ({message}): {text}")]
    ours, theirs = got.tensors(), expected.tensors()
    if ours.keys() != theirs.keys():
        return [Difference("variables", f"{sorted(ours)} instead of {sorted(theirs)}")]
    eager = program.mode == "eager"
    # On an inference tensor some of the CPU's operators fill their new result through out=, which counts as a write.
    versions = eager and not any("inference_mode" in s.text for s in program.statements)
    for name, t in theirs.items():
        a, e = metadata(ours[name], eager, versions), metadata(t, eager, versions)
        if a != e:
            return [Difference(name, f"{a} instead of {e}")]
        if ours[name].device.type != got.device:
            return [Difference(name, f"on {ours[name].device} instead of {got.device}")]
    if sharing(ours) != sharing(theirs):
        return [Difference("storages", f"{sharing(ours)} instead of {sharing(theirs)}")]
    values, wanted = observations(got), observations(expected)
    if values.keys() != wanted.keys():
        return [Difference("values", f"{sorted(values)} instead of {sorted(wanted)}")]
    suspects = [name for name in wanted if not same(values[name], wanted[name])]
    for runs in RUNS if suspects else ():
        suspects = beyond_noise(program, values, wanted, suspects, runs)
        if not suspects:
            break
    return [Difference(name, described(values[name], wanted[name])) for name in suspects]


def beyond_noise(
    program: Program, values: dict[str, Any], wanted: dict[str, Any], suspects: list[str], runs: int
) -> list[str]:
    """Those of the suspects that differ by more than noise of the statements explains."""
    least = COMPILED_NOISE if program.mode == "compile" else 0.0
    noisy = [observations(reference(program, Noise(seed, least))) for seed in range(runs)]
    wrong = []
    for name in suspects:
        value, exact = as_double(values[name]), as_double(wanted[name])
        others = [run[name] for run in noisy if name in run]
        if value is None or exact is None or value.shape != exact.shape:
            if all(same(other, wanted[name]) for other in others):
                wrong.append(name)  # a text, or a list of other things
            continue
        room = torch.zeros_like(exact)
        for other in others:
            seen = as_double(other)
            if seen is None or seen.shape != exact.shape:  # its size depends on data
                room = torch.full_like(exact, math.inf)
                break
            room = torch.maximum(room, distance(seen, exact))
        if bool((distance(value, exact) > FACTOR * room).any()):
            wrong.append(name)
    return wrong


def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|: 0 for two NaNs or equal infinities, infinity for a NaN and a number."""
    equal = (a == b) | (a.isnan() & b.isnan())
    return torch.where(equal, 0.0, (a - b).abs().nan_to_num(math.inf, math.inf, math.inf))


def described(value: Any, wanted: Any) -> str:
    a, e = as_double(value), as_double(wanted)
    if a is None or e is None or a.shape != e.shape or a.numel() < 2:
        return f"{value} instead of {wanted}"
    gap = distance(a, e).flatten()
    at = int(gap.argmax())
    share = f"{int((gap > 0).sum())} of {gap.numel()} elements"
    return f"{share}; at {at} of the flattened tensor {a.flatten()[at]:.9g} instead of {e.flatten()[at]:.9g}"
