"""Every way to call an entry of the op database, run on the device and on the CPU.

One (operator, dtype) pair has these variants, each with a verdict of its own (compare.Verdict):
forward, method, inplace, out, noncontiguous, conj, neg, empty, backward; in the full form also inplace backward and
double backward. Once an operator: error (the database's error inputs) and unsupported (dtypes the CPU does not take).
A result counts as native if no fallback was counted while the device ran it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo

from conformance import tables
from conformance.compare import (
    Counter,
    Judge,
    Mismatch,
    Verdict,
    attempt,
    compare_aliasing,
    compare_errors,
    one_line,
    same_distribution,
)
from conformance.moving import Sample, map_structure, tensors_of
from conformance.reference import host_reference

Call = Callable[[Sample], Any]
Phase = Callable[[str], None]  # told what is about to run, so that a crash can be attributed

SEED = 20260
FULL = 10  # a budget from which on the dear variants run too
OUT_MODES = ("same", "strided", "empty", "wrong_size", "wrong_dtype", "wrong_device")


def op_name(info: OpInfo) -> str:
    return info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")


def spread(samples: Iterable[Any], count: int, window: int = 8) -> list[Any]:
    """`count` of the first `count * window` samples, evenly spaced: neighbours in the database are much alike."""
    pool = list(itertools.islice(samples, count * window))
    if len(pool) <= count:
        return pool
    return [pool[i * len(pool) // count] for i in range(count)]


class OpEngine:
    """Runs one (operator, dtype) pair. `budget` is the number of samples of the variants that cost most to skip."""

    def __init__(
        self,
        info: OpInfo,
        dtype: torch.dtype,
        device: str,
        budget: int,
        counter: Counter,
        phase: Phase = lambda _: None,
    ) -> None:
        self.info, self.dtype, self.device, self.budget = info, dtype, device, budget
        self.counter, self.phase = counter, phase
        self.name = op_name(info)
        self.judge = Judge(info, self.name, dtype, device, self.name in tables.METADATA_ONLY)
        self.approximate = self.name in tables.APPROXIMATE
        self.random = self.approximate or self.name in tables.RANDOM
        self._plain: list[Sample] | None = None

    # --- what there is to run -----------------------------------------------------------------------------------------
    def variants(self) -> dict[str, Callable[[Verdict], None]]:
        info = self.info
        table: dict[str, Callable[[Verdict], None]] = {"forward": self.forward}
        method = info.method_variant
        if method is not None and method is not info.op:
            table["method"] = self.method
        if info.inplace_variant is not None:
            table["inplace"] = self.inplace
        if info.supports_out:
            table["out"] = self.out
        table["noncontiguous"] = self.noncontiguous
        if self.dtype.is_complex and info.test_conjugated_samples:
            table["conj"] = self.conj
        if info.test_neg_view and can_negate(self.dtype):
            table["neg"] = self.neg
        if self.name not in tables.UNDEFINED_WHEN_EMPTY:
            table["empty"] = self.empty
        if info.supports_autograd and self.dtype in info.supported_backward_dtypes("cpu"):
            table["backward"] = self.backward
            if self.budget >= FULL:
                if info.supports_inplace_autograd and info.inplace_variant is not None:
                    table["inplace backward"] = self.inplace_backward
                if info.supports_gradgrad and self.dtype in (torch.float32, torch.float64):
                    table["double backward"] = self.double_backward
        return table

    def error_variants(self) -> dict[str, Callable[[Verdict], None]]:
        table: dict[str, Callable[[Verdict], None]] = {"unsupported": self.unsupported}
        if self.info.error_inputs_func is not None:
            table["error"] = self.error
        return table

    def samples(self) -> list[Sample]:
        if self._plain is None:
            found = spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=False), self.budget)
            self._plain = [Sample.of(s) for s in found]
        return self._plain

    # --- variants -----------------------------------------------------------------------------------------------------
    def forward(self, verdict: Verdict) -> None:
        for i, sample in enumerate(self.samples()):
            self.check(verdict, self.call_function, sample, aliasing=True, inputs=i == 0)

    def method(self, verdict: Verdict) -> None:
        for sample in self.samples()[: max(1, self.budget // 2)]:
            self.check(verdict, lambda s: self.info.method_variant(*s.args, **s.kwargs), sample, aliasing=True)

    def inplace(self, verdict: Verdict) -> None:
        def call(sample: Sample) -> Any:
            before = [t._version for t in tensors_of(sample.args[0])]
            result = self.info.inplace_variant(*sample.args, **sample.kwargs)
            bumped = [t._version > v for t, v in zip(tensors_of(sample.args[0]), before, strict=True)]
            return result, {"returns self": result is sample.args[0], "version moved": bumped}

        for sample in self.samples():
            self.check(verdict, call, sample, aliasing=True, inputs=True)

    def noncontiguous(self, verdict: Verdict) -> None:
        for sample in self.samples()[: max(1, self.budget // 2)]:
            self.check(verdict, self.call_function, sample.map_tensors(strided_like), aliasing=True)

    def conj(self, verdict: Verdict) -> None:
        def view(t: torch.Tensor) -> torch.Tensor:
            return torch.conj(torch.conj_physical(t)) if t.dtype.is_complex else t

        # Both bits on complex32 are beyond the CPU's kernels.
        def neg_conj(t: torch.Tensor) -> torch.Tensor:
            return torch._neg_view(torch.conj(-torch.conj_physical(t))) if t.dtype.is_complex else t

        views = [view] if self.dtype == torch.complex32 else [view, neg_conj]
        for sample, make in zip(self.samples(), itertools.cycle(views)):
            self.check(verdict, self.call_function, self.first_args(sample, make), aliasing=True)
            if self.info.inplace_variant is not None:
                call = lambda s: self.info.inplace_variant(*s.args, **s.kwargs)  # noqa: E731
                self.check(verdict, call, self.first_args(sample, make), inputs=True)

    def neg(self, verdict: Verdict) -> None:
        def view(t: torch.Tensor) -> torch.Tensor:
            return torch._neg_view(-t) if t.dtype == self.dtype and t.layout == torch.strided else t

        for sample in self.samples()[: max(1, self.budget // 2)]:
            self.check(verdict, self.call_function, self.first_args(sample, view), aliasing=True)

    def empty(self, verdict: Verdict) -> None:
        """Tensors without elements: the op database has few, and kernels that never met one crash."""

        def shrink(sample: Sample) -> Sample | None:
            first = next((t for t in sample.tensors() if t.layout == torch.strided and t.dim() and t.size(0)), None)
            if first is None:
                return None
            rows = first.size(0)

            def cut(t: torch.Tensor) -> torch.Tensor:
                return t[:0] if t.layout == torch.strided and t.dim() and t.size(0) == rows else t

            return sample.map_tensors(cut)

        made = (shrink(sample) for sample in self.samples())
        for sample in [m for m in made if m is not None][: max(1, self.budget // 4)]:
            self.check(verdict, self.call_function, sample)

    def out(self, verdict: Verdict) -> None:
        for sample in self.samples()[: max(1, self.budget // 3)]:
            torch.manual_seed(SEED)
            with host_reference(self.name, self.dtype):
                expected = attempt(lambda sample=sample: self.call_function(self.on("cpu", sample))).value
            pieces = [expected] if isinstance(expected, torch.Tensor) else expected
            if (
                not isinstance(pieces, (tuple, list))
                or not all(isinstance(t, torch.Tensor) for t in pieces)
                or not pieces
            ):
                continue
            for mode in OUT_MODES:
                made = [make_out(t.detach(), mode) for t in pieces]
                if any(t is None for t in made):
                    continue
                outs: Any = made[0] if isinstance(expected, torch.Tensor) else tuple(made)
                if mode == "wrong_device":
                    self.check_wrong_device(verdict, sample, outs)
                    continue
                given = Sample((*sample.args, outs), sample.kwargs)
                self.check(verdict, self.call_out, given, note=f"out={mode}", moments=False)

    def call_out(self, sample: Sample) -> Any:
        """Result, the out tensors, and whether each kept its strides and its memory."""
        outs = sample.args[-1]
        every = tensors_of(outs)
        before = [(t.shape, t.stride(), t.data_ptr()) for t in every]
        result = self.info.op(*sample.args[:-1], **sample.kwargs, out=outs)
        after = [(t.shape, t.stride(), t.data_ptr()) for t in every]
        kept = [b == a for b, a in zip(before, after, strict=True) if b[0] == a[0]]
        returned = [r is o for r, o in zip(tensors_of(result), every, strict=False)]
        strides = [list(t.stride()) for t in every]
        return {"out": list(every), "kept": kept, "returns out": returned, "strides": str(strides)}

    def check_wrong_device(self, verdict: Verdict, sample: Sample, outs: Any) -> None:
        """An out= on the CPU for inputs on the device has to be refused, as every accelerator does."""
        excused = any(
            getattr(d, "test_name", None) == "test_out" and getattr(d, "device_type", None) in (None, "cuda")
            for d in self.info.decorators
        )
        inputs = [t for t in sample.tensors() if t.dim() > 0]
        if excused or not inputs or self.device == "cpu" or not any(t.numel() for t in tensors_of(outs)):
            return
        on_device = self.on(self.device, sample)
        self.phase(f"device|{sample.describe()} out=wrong_device")
        got = attempt(lambda: self.info.op(*on_device.args, **on_device.kwargs, out=outs))
        used = self.counter.take()
        if type(got.error) is RuntimeError:
            self.settle(verdict, used, "")
        else:
            problem = one_line(got.error) if got.error else "does not raise"
            verdict.add("error", f"out= on the CPU: {problem}; RuntimeError expected", sample.describe())

    def backward(self, verdict: Verdict) -> None:
        found = spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=True), self.budget)
        for raw in found:
            sample = Sample.of(raw)
            if not any(t.requires_grad for t in sample.tensors()):
                continue
            self.check(verdict, self.gradients, sample, moments=False)

    def gradients(self, sample: Sample) -> Any:
        return self.gradients_of(sample.process(self.call_function(sample)), sample)

    def gradients_of(self, result: Any, sample: Sample, create_graph: bool = False) -> Any:
        """Gradients of the sample's leaves for a fixed gradient of the result; None if nothing depends on them."""
        leaves = [t for t in sample.tensors() if t.requires_grad]
        outputs = [t for t in tensors_of(result) if t.requires_grad]
        if not outputs or not leaves:
            return None
        seeds = []
        for i, t in enumerate(outputs):
            generator = torch.Generator().manual_seed(SEED + i)
            kind = torch.complex64 if t.is_complex() else torch.float32
            seeds.append(torch.randn(t.shape, generator=generator, dtype=kind).to(t.dtype).to(t.device))
        return list(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True, create_graph=create_graph))

    def inplace_backward(self, verdict: Verdict) -> None:
        def call(sample: Sample) -> Any:
            leaf = sample.args[0]
            changed = Sample((map_tensors(torch.clone, leaf), *sample.args[1:]), sample.kwargs, sample.process)
            result = self.info.inplace_variant(*changed.args, **changed.kwargs)
            return self.gradients_of(sample.process(result), sample)

        for raw in spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=True), self.budget // 4):
            if not raw.broadcasts_input:
                self.check(verdict, call, Sample.of(raw), moments=False)

    def double_backward(self, verdict: Verdict) -> None:
        self.judge = Judge(self.info, f"{self.name} double backward", self.dtype, self.device)  # its own tolerances

        def call(sample: Sample) -> Any:
            first = self.gradients_of(sample.process(self.call_function(sample)), sample, create_graph=True)
            return self.gradients_of(first, sample)

        for raw in spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=True), self.budget // 4):
            self.check(verdict, call, Sample.of(raw), moments=False)

    def error(self, verdict: Verdict) -> None:
        """The database's error inputs: the exact type that the CPU raises, and a message that matches upstream's."""
        for item in self.info.error_inputs("cpu"):
            sample = Sample.of(item.sample_input)
            expected = attempt(lambda sample=sample: self.call_function(self.on("cpu", sample)))
            if expected.error is None:
                continue  # the database describes another device's error
            self.phase(f"device|{sample.describe()}")
            got = attempt(lambda sample=sample: self.call_function(self.on(self.device, sample)))
            self.counter.reset()
            if problem := compare_errors(got, expected):
                verdict.add("error", problem, sample.describe())
            elif str(expected.error) != str(got.error) and not matches(item.error_regex, got.error):
                verdict.add(
                    "error", f"{one_line(got.error)} (the CPU says {one_line(expected.error)})", sample.describe()
                )
            else:
                verdict.add("native")

    def unsupported(self, verdict: Verdict) -> None:
        """Dtypes that the CPU does not take: the device raises the same type of exception, or computes the same."""
        for dtype in tables.HARDWARE_DTYPES:
            if dtype in self.info.dtypes:
                continue
            found = attempt(lambda dtype=dtype: spread(self.info.sample_inputs("cpu", dtype, requires_grad=False), 1))
            for raw in found.value or ():
                self.judge = Judge(self.info, self.name, dtype, self.device, self.name in tables.METADATA_ONLY)
                self.check(verdict, self.call_function, Sample.of(raw), same_error="native")

    # --- one call -----------------------------------------------------------------------------------------------------
    def call_function(self, sample: Sample) -> Any:
        if not sample.tensors() and "device" not in sample.kwargs:
            with torch.device(sample.device):  # a factory that was not told where: the default device
                return self.info.op(*sample.args, **sample.kwargs)
        return self.info.op(*sample.args, **sample.kwargs)

    def on(self, device: str, sample: Sample) -> Sample:
        return sample.on(device, keep_args_on_cpu=self.name in tables.CPU_TENSORS)

    def first_args(self, sample: Sample, view: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        made = Sample((map_tensors(view, sample.args[0]), *sample.args[1:]), sample.kwargs, sample.process)
        return made

    def check(
        self,
        verdict: Verdict,
        call: Call,
        sample: Sample,
        *,
        aliasing: bool = False,
        inputs: bool = False,
        note: str = "",
        moments: bool = True,
        same_error: str = "",
    ) -> None:
        """Runs `call` on both devices and adds the outcome to `verdict`.

        `aliasing` compares which inputs the results share memory with, `inputs` compares the inputs afterwards, and
        `same_error` is the verdict for the same exception on both (by default such a sample does not count).
        """
        described = sample.describe() + (f" {note}" if note else "")
        cpu_sample, device_sample = self.on("cpu", sample), self.on(self.device, sample)
        self.phase(f"cpu|{described}")
        torch.manual_seed(SEED)
        with host_reference(self.name, self.dtype):
            expected = attempt(lambda: call(cpu_sample))
        self.phase(f"device|{described}")
        torch.manual_seed(SEED)
        self.counter.reset()
        got = attempt(lambda: call(device_sample))
        used = self.counter.take()
        if expected.error is not None or got.error is not None:
            if problem := compare_errors(got, expected):
                verdict.add("error", problem, described)
            elif same_error:
                verdict.add(same_error)
            return
        try:
            if self.random and self.draws(call, sample, expected.value):
                self.check_draws(call, sample, got.value, expected.value, moments)
            else:
                self.judge.exact = True
                self.judge.compare(got.value, expected.value)
                verdict.inexact += not self.judge.exact
                if inputs:
                    self.judge.compare(device_sample.tensors(), cpu_sample.tensors(), "input", on_device=False)
            if aliasing:
                compare_aliasing(got.value, device_sample.tensors(), expected.value, cpu_sample.tensors())
        except Mismatch as mismatch:
            verdict.add("wrong", str(mismatch), described)
        except Exception as error:  # copying the result to the host failed
            verdict.add("error", one_line(error), described)
        else:
            if used and sample.asks_for(tables.lacks_hardware) and all(op.endswith("[dtype]") for op in used):
                verdict.other_types += 1  # equal, but no call in this pair's dtype
                used = {}
            self.settle(verdict, used, described)

    def settle(self, verdict: Verdict, used: dict[str, int], described: str) -> None:
        for op, count in used.items():
            verdict.fallbacks[op] = verdict.fallbacks.get(op, 0) + count
        verdict.add("fallback" if used else "native", ", ".join(used), described if used else "")

    # --- random results -----------------------------------------------------------------------------------------------
    def draws(self, call: Call, sample: Sample, value: Any) -> bool:
        """Whether this sample's result depends on the random state."""
        if self.approximate:
            return True
        if self.name in tables.SELDOM_DRAWS and self.dtype.itemsize == 2:
            return tables.SELDOM_DRAWS[self.name] not in sample.kwargs
        for seed in range(SEED + 1, SEED + 6):  # several: a few draws are the same by chance
            torch.manual_seed(seed)
            if not self.judge.equal(attempt(lambda: call(self.on("cpu", sample))).value, value):
                return True
        return False

    def check_draws(self, call: Call, sample: Sample, got: Any, expected: Any, moments: bool) -> None:
        shape_only = Judge(self.info, self.name, self.dtype, self.device, metadata_only=True)
        shape_only.compare(got, expected)
        torch.manual_seed(SEED)
        again = call(self.on(self.device, sample))
        if not self.judge.equal(again, tensors_to_cpu(got)):
            raise Mismatch("random result differs under the same seed")
        if not moments or self.approximate:
            return
        ours, theirs = (
            collect(call, lambda: self.on(self.device, sample)),
            collect(call, lambda: self.on("cpu", sample)),
        )
        channels = "dropout2d" in self.name or "dropout3d" in self.name or "feature_alpha" in self.name
        for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
            if not same_distribution(a, e, effective=0.05 if channels else 1.0):
                raise Mismatch(f"random result {i}: not the CPU's distribution")


def collect(call: Call, make: Callable[[], Sample], elements: int = 4096, calls: int = 200) -> list[torch.Tensor]:
    """Repeats a random call until about `elements` numbers of its first result are there."""
    torch.manual_seed(SEED + 2)
    draws: list[list[torch.Tensor]] = []
    seen = 0
    while seen < elements and len(draws) < calls:
        parts = [real(t.detach().cpu()) for t in tensors_of(call(make()))]
        draws.append(parts)
        seen += max((p.numel() for p in parts), default=0)
    return [torch.cat([d[i].flatten() for d in draws]) for i in range(len(draws[0]))]


def can_negate(dtype: torch.dtype) -> bool:
    """Whether the CPU negates this dtype: not unsigned, boolean or eight-bit floating-point numbers."""
    if dtype.is_floating_point:
        return dtype.itemsize > 1
    return dtype.is_complex or (dtype.is_signed and dtype != torch.bool)


def real(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.resolve_conj().to(torch.complex128)) if t.is_complex() else t.to(torch.float64)


def tensors_to_cpu(value: Any) -> Any:
    return map_tensors(lambda t: t.detach().cpu(), value)


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    return map_structure(lambda v: map_tensors(function, v), value)


def strided_like(t: torch.Tensor) -> torch.Tensor:
    """The same values with gaps between them and before them: no stride is dense and the offset is not zero."""
    if t.layout != torch.strided or t.dim() == 0 or t.numel() == 0:
        return t
    with torch.no_grad():
        wide = torch.zeros(*t.shape[:-1], 2 * t.shape[-1] + 1, dtype=t.dtype)
        wide[..., 1::2] = t
        return wide[..., 1::2].requires_grad_(t.requires_grad)


def make_out(result: torch.Tensor, mode: str) -> torch.Tensor | None:
    """An out= tensor of the given kind for `result` (on the CPU); None where the kind makes no sense."""
    if result.layout != torch.strided:
        return None
    fill: Any = 1 if result.dtype == torch.bool else 7
    if mode == "same" or mode == "wrong_device":
        return torch.full(result.shape, fill, dtype=result.dtype)
    if mode == "strided":
        return strided_like(torch.full(result.shape, fill, dtype=result.dtype)) if result.dim() else None
    if mode == "empty":
        return torch.empty(0, dtype=result.dtype)
    if mode == "wrong_size":
        return torch.full((*result.shape, 2), fill, dtype=result.dtype)
    wrong = torch.float32 if not (result.is_floating_point() or result.is_complex()) else torch.int64
    return torch.full(result.shape, fill, dtype=wrong)


def matches(pattern: str, error: Exception | None) -> bool:
    return re.search(pattern, str(error)) is not None
