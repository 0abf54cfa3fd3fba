"""Writes random programs. A statement is chosen, run on the CPU at once, and what it made can be used by the next."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import torch

from programs import grammar
from programs.judge import is_leaf
from programs.program import POOL, Outcome, Program, Statement, restore, seed_all, start, step

MAX_LIVE = 12
MAX_ELEMENTS = 4096
LARGE = (3 * 33_000, 70_001)  # beyond the grain at which the host's kernels use several threads
KIND_OF = {torch.bool: "b", torch.int32: "i", torch.int64: "i"}


def kind_of(t: torch.Tensor) -> str:
    return KIND_OF.get(t.dtype, "f")


def fits(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether b broadcasts to a."""
    return len(b) <= len(a) and all(m in (1, n) for n, m in zip(reversed(a), reversed(b), strict=False))


def overlaps_itself(t: torch.Tensor) -> bool:
    """Whether two indices may name the same element: what a write leaves there is then undefined."""
    reach = 1
    for size, stride in sorted(zip(t.shape, t.stride(), strict=True), key=lambda p: p[1]):
        if size > 1:
            if stride < reach:
                return True
            reach += stride * (size - 1)
    return False


class Writer:
    """Makes one program from a seed. `cpu` is the run on the CPU so far."""

    def __init__(self, seed: int, mode: str) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed, mode, [])
        self.cpu: Outcome = start("cpu")
        self.mode = mode
        self.counter = itertools.count()
        self.live: list[str] = []  # tensors that the current thread may use
        self.scalars: list[str] = []
        self.streams: list[str] = []
        self.thread = 0
        self.one_thread = True
        makers: list[tuple[Callable[[], Statement | None], float, str]] = [
            (self.fresh, 1.2, "ec"),
            (self.unary, 5, "ec"),
            (self.with_number, 4, "ec"),
            (self.binary, 6, "ec"),
            (self.cast, 1.5, "ec"),
            (self.reduction, 3, "ec"),
            (self.norm, 0.8, "ec"),
            (self.view, 3, "ec"),
            (self.inplace, 4, "ec"),
            (self.out, 1, "e"),
            (self.breaker, 1, "ec"),
            (self.random, 0.6, "ec"),
            (self.delete, 1.5, "e"),
            (self.read, 1.5, "e"),
            (self.number_read, 0.4, "e"),
            (self.error, 0.3, "e"),
            (self.gradient, 2.0, "e"),
            (self.stream, 1.0, "e"),
            (self.grad_mode, 0.15, "e"),
            (self.hook, 0.1, "e"),
            (self.replace_data, 0.1, "e"),
        ]
        chosen = [(m, w) for m, w, modes in makers if mode[0] in modes]
        self.makers = [m for m, _ in chosen]
        self.weights = list(itertools.accumulate(w for _, w in chosen))

    # --- the whole
    def write(self) -> Program:
        rng = self.rng
        seed_all(self.program.seed)
        try:
            for _ in range(rng.randint(1, 3)):
                self.add(self.fresh(as_input=True))
            if self.mode == "eager" and rng.random() < 0.3:
                self.add(self.stream())
            threaded = self.mode == "eager" and rng.random() < 0.06
            self.one_thread = not threaded  # two threads that draw have no fixed order
            length = rng.randint(4, 24)
            if threaded:
                self.lines(length // 2)
                self.two_threads(length)
            self.lines(length)
        finally:
            restore()
        return self.program

    def lines(self, count: int) -> None:
        for _ in range(count):
            maker = self.rng.choices(self.makers, cum_weights=self.weights)[0]
            self.add(maker())
            if len(self.live) > MAX_LIVE and self.mode == "eager":
                self.add(self.delete())

    def two_threads(self, length: int) -> None:
        """A part in which lines of two threads alternate. The second one has copies: nothing that either writes, and
        no graph of autograd, is the other's."""
        mine = list(self.live)
        theirs: list[str] = []
        for name in mine:
            if self.rng.random() < 0.5:
                copied = self.name()
                self.add(Statement(f"{copied} = {name}.detach().clone()", (copied,)))
                theirs.append(copied)
        lives = [mine, theirs]
        numbers = [list(self.scalars), list(self.scalars)]
        streams = [list(self.streams), list[str]()]
        for line in range(length):
            self.thread = int(line % 2 == 0)
            self.live, self.scalars, self.streams = (x[self.thread] for x in (lives, numbers, streams))
            if not self.live:
                self.add(self.fresh())
            self.lines(1)
        self.thread = 0
        self.live, self.scalars, self.streams = lives[0] + lives[1], numbers[0] + numbers[1], streams[0] + streams[1]

    def add(self, statement: Statement | None) -> None:
        if statement is None:
            return
        statement.thread = self.thread
        index = len(self.program.statements)
        # A statement that raises may still have drawn: the device's run of a compiled program would not have it.
        state = torch.neuron.get_rng_state() if self.mode == "compile" and statement.reference else None
        step(statement, index, "cpu", self.cpu)
        failed = index in self.cpu.errors
        if failed and self.mode == "compile":
            del self.cpu.errors[index]
            if state is not None:
                torch.neuron.set_rng_state(state)
            return
        self.program.statements.append(statement)
        for name in statement.out:
            value = self.cpu.env.get(name)
            if isinstance(value, torch.Tensor) and name not in self.live and not failed:
                self.live.append(name)

    # --- choosing
    def name(self, letter: str = "x") -> str:
        return f"{letter}{next(self.counter)}"

    def tensor(self, name: str) -> torch.Tensor:
        found = self.cpu.env[name]
        assert isinstance(found, torch.Tensor)
        return found

    def pick(self, kinds: str = "fib", least_dim: int = 0, largest: int = 1 << 30) -> str | None:
        """A live tensor of one of these kinds; later ones more often, as in real programs."""
        wanted = kinds.lower()
        for _ in range(4):
            if not self.live:
                return None
            count = len(self.live)
            name = self.live[max(self.rng.randrange(count), self.rng.randrange(count))]
            t = self.tensor(name)
            if kind_of(t) in wanted and t.dim() >= least_dim and t.numel() <= largest:
                return name
        return None

    def partner(self, a: str, kinds: str) -> str | None:
        """A tensor that broadcasts with `a`; made from `a` or anew when none is there."""
        rng, first = self.rng, self.tensor(a)
        found = []
        for name in self.live:
            t = self.tensor(name)
            if kinds == "F" and t.dtype != first.dtype:
                continue
            if fits(first.shape, t.shape) and (name != a or rng.random() < 0.3):
                found.append(name)
        if found and rng.random() < 0.8:
            return rng.choice(found)
        shape = [n if rng.random() < 0.7 else 1 for n in first.shape]
        while shape and rng.random() < 0.25:
            shape.pop(0)
        dtype = first.dtype if kinds == "F" or rng.random() < 0.7 else rng.choice(grammar.DTYPES)
        made = self.fresh(tuple(shape), dtype)
        self.add(made)
        return made.out[0] if made.out[0] in self.live else None

    def number(self) -> str:
        if self.scalars and self.rng.random() < 0.3:
            return self.rng.choice(self.scalars)
        return self.rng.choice(("2", "1", "-1", "3", "0.5", "-0.75", "1.1", "0.0078125", "0"))

    def shape(self) -> tuple[int, ...]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.03:
            return rng.choice(((0,), (3, 0), (0, 5, 2)))
        if roll < 0.08:
            return ()
        if roll < 0.085:
            return (rng.choice(LARGE),)
        dims: list[int] = []
        count = 1
        for _ in range(rng.choice((1, 1, 1, 2, 2, 2, 3, 4))):
            size = rng.choice(grammar.SIZES)
            if count * size > MAX_ELEMENTS:
                size = rng.choice((1, 2, 3))
            count *= size
            dims.append(size)
        rng.shuffle(dims)
        return tuple(dims)

    def store(self, expression: str, noise: float = 0.0, scale: str = "", reference: str | None = None) -> Statement:
        """`x = expression`, sometimes in a mode of autograd."""
        name = self.name()
        prefix = ""
        if self.mode == "eager":
            roll = self.rng.random()
            prefix = (
                "with torch.no_grad(): " if roll < 0.04 else "with torch.inference_mode(): " if roll < 0.055 else ""
            )
        reference = None if reference is None else f"{prefix}{name} = {reference}"
        return Statement(f"{prefix}{name} = {expression}", (name,), noise, scale, reference)

    # --- statements
    def fresh(
        self, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None, as_input: bool = False
    ) -> Statement:
        rng = self.rng
        shape = self.shape() if shape is None else shape
        dtype = dtype or rng.choices(grammar.DTYPES, grammar.DTYPE_WEIGHTS)[0]
        name = self.name()
        count = 1
        for size in shape:
            count *= size
        offset = rng.randrange(min(2000, POOL - count))
        if not as_input and rng.random() < 0.2:
            value = "True" if dtype == torch.bool else "3"
            text = rng.choice((f"full({shape}, {value}, ", f"ones({shape}, ", f"zeros({shape}, "))
            return Statement(f"{name} = torch.{text}dtype={dtype}, device=dev)", (name,))
        text = f"data({dtype}, {offset}, {shape}{', True' if rng.random() < 0.05 else ''})"
        if dtype.is_floating_point and rng.random() < 0.5:
            text += ".requires_grad_()"
        return Statement(f"{name} = {text}", (name,), is_input=True)

    def unary(self) -> Statement | None:
        expression, kinds, noise = self.rng.choice(grammar.UNARY)
        a = self.pick(kinds)
        if self.mode == "compile" and "deepcopy" in expression:
            return None  # Dynamo does not trace it
        return a and self.store(expression.format(a=a), noise)

    def with_number(self) -> Statement | None:
        expression, kinds, noise = self.rng.choice(grammar.SCALAR)
        a = self.pick(kinds)
        return a and self.store(expression.format(a=a, s=self.number()), noise)

    def binary(self) -> Statement | None:
        expression, kinds, noise = self.rng.choice(grammar.BINARY)
        a = self.pick(kinds)
        b = a and self.partner(a, kinds)
        if not b or kind_of(self.tensor(b)) not in kinds.lower():
            return None
        if self.rng.random() < 0.3 and kinds != "F":
            a, b = b, a
        return self.store(expression.format(a=a, b=b), noise)

    def cast(self) -> Statement | None:
        a = self.pick()
        if not a:
            return None
        dtype = self.rng.choice(grammar.DTYPES)
        if dtype in grammar.INTS and kind_of(self.tensor(a)) == "f":  # out of range is undefined
            return self.store(f"{a}.nan_to_num(0, 9, -9).clamp(-99, 99).to({dtype})")
        return self.store(f"{a}.to({dtype})")

    def reduction(self) -> Statement | None:
        rng = self.rng
        expression, kinds, noise, scale = rng.choice(grammar.REDUCTION)
        a = self.pick(kinds)
        if not a:
            return None
        dims = self.tensor(a).dim()
        one = rng.choice((-1, -1, 0, rng.randrange(dims) if dims else 0))
        several = one
        if dims > 1 and rng.random() < 0.3:
            several = tuple(rng.sample(range(dims), 2))  # type: ignore[assignment]
        text = expression.format(a=a, d=several, d1=one, k=rng.random() < 0.4)
        return self.store(text, noise, scale.format(a=a))

    def norm(self) -> Statement | None:
        expression, scale = self.rng.choice(grammar.NORMS)
        a = self.pick("f", least_dim=1)
        if not a:
            return None
        weight = ""
        if "{w}" in expression:
            made = self.fresh(tuple(self.tensor(a).shape[-1:]), self.tensor(a).dtype)
            self.add(made)
            weight = made.out[0]
        return self.store(expression.format(a=a, w=weight), 2 * grammar.LIBM, scale.format(a=a))

    def view(self) -> Statement | None:
        rng = self.rng
        expression, least = rng.choice(grammar.VIEWS)
        a = self.pick(least_dim=least)
        if not a or (".expand" in expression and self.tensor(a).numel() > MAX_ELEMENTS):
            return None
        text = expression.format(a=a, i=rng.choice((0, 0, 1, -1)), z=rng.choice((0, -1)))
        name = self.name()
        return Statement(f"{name} = {text}", (name,))

    def safe_to_write(self, a: str, b: str | None) -> str | None:
        """An operand for a write into `a`: a copy of `b` where the two might share elements in another order."""
        target = self.tensor(a)
        if overlaps_itself(target):
            return None
        if b is None or b == a:
            return a if b is None else b
        other = self.tensor(b)
        if other.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
            return f"{b}.clone()"
        return b

    def inplace(self) -> Statement | None:
        expression, kinds, noise = self.rng.choice(grammar.INPLACE)
        a = self.pick(kinds)
        if not a:
            return None
        b = self.partner(a, kinds) if "{b}" in expression else None
        if "{b}" in expression and (b is None or not fits(self.tensor(a).shape, self.tensor(b).shape)):
            return None
        operand = self.safe_to_write(a, b)
        if operand is None and self.rng.random() < 0.9:
            return None
        if operand is None and "{b}" in expression:
            return None
        text = expression.format(a=a, b=operand, s=self.number())
        if self.mode == "eager" and self.rng.random() < 0.1:
            text = f"with torch.no_grad(): {text}"
        return Statement(text, (a,), noise)

    def out(self) -> Statement | None:
        expression, kinds, noise = self.rng.choice(grammar.OUT)
        a = self.pick(kinds)
        b = a and self.partner(a, kinds)
        if not a or not b:
            return None
        o = self.pick("f" if "sum" in expression or "exp" in expression or "softmax" in expression else kinds)
        if o is None or self.rng.random() < 0.4:
            made = self.fresh((0,), self.tensor(a).dtype)
            self.add(made)
            o = made.out[0]
        target = self.tensor(o).untyped_storage().data_ptr()
        shared = target in (self.tensor(n).untyped_storage().data_ptr() for n in (a, b))
        if overlaps_itself(self.tensor(o)) or (shared and o not in (a, b)):
            return None
        if shared and "-1" in expression:  # resized while it is read
            return None
        scale = f"{a}.abs().float().sum()" if "sum" in expression else ""
        text = expression.format(a=a, b=b, o=o, s=self.number())
        if self.tensor(o).requires_grad or self.tensor(a).requires_grad:
            text = f"with torch.no_grad(): {text}"
        return Statement(text, (o,), noise, scale)

    def breaker(self) -> Statement | None:
        expression, kinds, noise, scale = self.rng.choice(grammar.BREAKERS)
        if self.mode == "compile" and ("nonzero" in expression or "[{a} > 0]" in expression or "'cpu'" in expression):
            return None  # sizes that depend on data break graphs; tests/conformance has them
        a = self.pick(kinds, least_dim=1, largest=MAX_ELEMENTS)
        return a and self.store(expression.format(a=a), noise, scale.format(a=a))

    def random(self) -> Statement | None:
        if not self.one_thread:
            return None
        text, reference = self.rng.choice(grammar.RANDOM)
        a = self.pick("f")
        if not a or not self.tensor(a).numel():  # dropout of nothing is its input itself, which no copy can be
            return None
        shape = self.shape()
        return self.store(text.format(a=a, shape=shape), 0, "", reference.format(a=a, shape=shape))

    def delete(self) -> Statement | None:
        if len(self.live) < 2:
            return None
        name = self.live.pop(self.rng.randrange(len(self.live)))
        return Statement(f"del {name}")

    def read(self) -> Statement | None:
        a = self.pick()
        expression = self.rng.choice(grammar.READS)
        noise = grammar.SUMS if "sum()" in expression else 0.0
        label = self.name("r")
        return a and Statement(f"read('{label}', {expression.format(a=a)})", (), noise)

    def number_read(self) -> Statement | None:
        """A number from the device that later statements compute with."""
        a = self.pick("f")
        if not a:
            return None
        name = self.name("s")
        text = f"{name} = {a}.flatten()[0].clamp(-2, 2).nan_to_num().item()"
        if self.tensor(a).numel():
            self.scalars.append(name)
        return Statement(text)

    def error(self) -> Statement | None:
        a = self.pick()
        name = self.name()
        return a and Statement(self.rng.choice(grammar.ERRORS).format(a=a, n=name), (name,))

    def gradient(self) -> Statement | None:
        rng = self.rng
        with_graph = [n for n in self.live if self.tensor(n).requires_grad]
        if not with_graph:
            return None
        a = with_graph[max(rng.randrange(len(with_graph)), rng.randrange(len(with_graph)))]
        leaves = [n for n in with_graph if is_leaf(self.tensor(n)) is True]
        keep = ", retain_graph=True" if rng.random() < 0.3 else ""
        roll = rng.random()
        if roll < 0.45:
            return Statement(f"{a}.sum().backward({keep[2:]})")
        if roll < 0.6:
            return Statement(f"{a}.backward(torch.ones_like({a}){keep})")
        if not leaves:
            return None
        leaf = rng.choice(leaves)
        if roll < 0.8:
            more = ", create_graph=True" if rng.random() < 0.2 else keep
            name = self.name()
            text = f"{name}, = torch.autograd.grad({a}.sum(), [{leaf}]{more})"
            return Statement(text, (name,))
        if roll < 0.9:
            return Statement(f"{leaf}.grad = None")
        return self.store(f"{leaf}.grad.clone()")

    def hook(self) -> Statement | None:
        """Hooks of autograd run on the thread of backward."""
        found = [n for n in self.live if self.tensor(n).requires_grad]
        if not found:
            return None
        a = self.rng.choice(found)
        # PyTorch 2.13 crashes, on the CPU too, if the hook is the first to notice that the base of a view was written.
        return Statement(f"{a}.grad_fn, {a}.register_hook(lambda g: g * 2)")

    def stream(self) -> Statement | None:
        if not self.streams or self.rng.random() < 0.2:
            name = self.name("st")
            self.streams.append(name)
            return Statement(f"{name} = torch.neuron.Stream()", reference="pass")
        text = self.rng.choice(grammar.STREAMS[1:]).format(st=self.rng.choice(self.streams), a=self.pick())
        return None if "None." in text else Statement(text, reference="pass")

    def grad_mode(self) -> Statement | None:
        if not self.one_thread:  # a mode belongs to a thread, and the CPU runs both parts in one
            return None
        return Statement(f"torch.set_grad_enabled({self.rng.random() < 0.7})")

    def replace_data(self) -> Statement | None:
        a = self.pick("f")
        b = self.pick("f")
        # A view keeps its place in the graph of its base, which the new memory need not have: undefined in PyTorch.
        if not a or not b or self.tensor(a)._is_view():
            return None
        return Statement(f"{a}.data = {b}.detach() * 2", (a,))


def generate(seed: int, mode: str) -> tuple[Program, Outcome]:
    """A program and its run on the CPU."""
    writer = Writer(seed, mode)
    return writer.write(), writer.cpu
