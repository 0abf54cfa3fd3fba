"""Calling kernels: arguments and results, traces and their reuse, the program as data."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
import torch
from nki_helpers import F32, run, sample

import nki
import nki.isa as nisa
import nki.language as nl
from nki import ir
from nki.errors import NkiError, NkiTypeError, NkiValueError
from nki.interp import execute

A = sample(64, 32)


@nki.jit
def scaled(x, factor=2.0, shift=None):
    """x times a constant."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.multiply(nl.load(x), factor)
    nl.store(out, tile if shift is None else nl.add(tile, shift))
    return out


# --- arguments and results


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int32, torch.uint8]
)
@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_results_are_of_the_kind_of_the_arguments(dtype: torch.dtype, device: str) -> None:
    x = (torch.from_numpy(A).abs() * 10).to(dtype)
    got = scaled(x.to(device))
    assert got.device.type == device and got.dtype == dtype
    want = x.float() * 2
    assert torch.equal(got.cpu().float(), (want.round() if not dtype.is_floating_point else want.to(dtype).float()))


def test_numpy_in_numpy_out() -> None:
    for dtype in (np.float32, np.float16, np.int8, np.uint16):
        got = scaled(np.ones((4, 4), dtype))
        assert isinstance(got, np.ndarray) and got.dtype == dtype and (got == 2).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)  # without it, types that NumPy lacks are widened
        assert run(lambda x: nl.copy(x, nl.bfloat16), np.full((2, 2), 1.00390625, F32)).dtype == F32
    assert run(lambda x: nl.copy(x, nl.bool_), A).dtype == bool


def test_strided_and_gradient_arguments() -> None:
    x = torch.from_numpy(A).t()
    assert torch.equal(scaled(x), x * 2) and torch.equal(scaled(x.clone().requires_grad_()), x * 2)
    assert np.array_equal(scaled(A[::2, ::-1]), A[::2, ::-1] * 2)


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_arguments_that_are_written_change_in_place(device: str) -> None:
    @nki.jit
    def kernel(x, y):
        nl.store(x, nl.add(nl.load(x), nl.load(y)))
        return x

    x, y = (torch.from_numpy(sample(4, 8, seed=s)).to(device) for s in (1, 2))
    want = x + y
    assert kernel(x, y) is x and torch.equal(x, want)
    assert kernel(x, x) is x and torch.equal(x, want * 2)  # one tensor twice is one input
    host = A.copy()
    assert kernel(host, A) is host and np.array_equal(host, A * 2)


def test_tensors_in_tuples_and_dictionaries() -> None:
    @nki.jit
    def kernel(pair, options):
        out = nl.ndarray(pair[0].shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.add(nl.load(pair[0]), nl.load(pair[1])), nl.load(options["third"])))
        return (out,)

    (got,) = kernel((A, A), {"third": A, "unused": 3})
    assert np.array_equal(got, A * 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 2)),), "argument x: float64 is not an element type of the chip; convert to int32 or float32"),
        ((torch.ones(2, 2, dtype=torch.int64),), "is int64, it takes float32"),
        ((np.array(1.0, F32),), "argument x has no dimensions"),
        ((np.ones((0, 2), F32),), "argument x has shape"),
        ((), "missing a required argument"),
    ],
)
def test_arguments_that_cannot_be(arguments, message: str) -> None:
    with pytest.raises(NkiError, match=message):
        scaled(*arguments)


def test_arguments_of_two_kinds() -> None:
    @nki.jit
    def kernel(x, y):
        return x

    with pytest.raises(NkiTypeError, match="y is a NumPy array and x is a tensor on cpu"):
        kernel(torch.ones(2, 2), np.ones((2, 2), F32))
    with pytest.raises(NkiTypeError, match="y is a tensor on neuron:0 and x is a tensor on cpu"):
        kernel(torch.ones(2, 2), torch.ones(2, 2, device="neuron"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nl.ndarray((2, 2), nl.float32), "results are in shared HBM"),
        (lambda: nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)[0], "is a part of a tensor"),
        (lambda: 3, "a kernel returns tensors, not 3"),
        (lambda: (3,), "a kernel returns tensors, not 3"),
    ],
)
def test_results_that_cannot_be(make, message: str) -> None:
    with pytest.raises(NkiError, match=message):
        nki.jit(lambda x: make())(A)


def test_a_whole_tensor_may_be_returned_in_another_shape() -> None:
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out.reshape(4, 512), x.reshape(32, 64)

    got, other = kernel(A)
    assert np.array_equal(got, A.reshape(4, 512)) and np.array_equal(other, A.reshape(32, 64))


def test_nothing_returned() -> None:
    assert nki.jit(lambda x: None)(A) is None


def test_outside_of_a_kernel() -> None:
    for call in (lambda: nl.ndarray((2, 2), nl.float32), lambda: nl.program_id(0), lambda: nisa.register_alloc(1)):
        with pytest.raises(NkiError, match="only inside a kernel"):
            call()


def test_simulate_takes_functions_and_kernels() -> None:
    assert np.array_equal(nki.simulate(scaled)(A, 3.0), A * F32(3))
    assert np.array_equal(nki.simulate(scaled.function)(A, shift=1.0), A * F32(2) + F32(1))
    with pytest.raises(nki.errors.NkiNotImplementedError, match="race and saturation checks"):
        nki.simulate(scaled, check="all")
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "x times a constant."


# --- traces


def test_a_kernel_is_traced_once_for_each_signature(monkeypatch) -> None:
    traces = []

    @nki.jit
    def kernel(x, constant):
        traces.append((x.shape, constant))
        return scaled(x, constant)  # a kernel inside a kernel is a plain function

    for _ in range(2):
        kernel(A, 2.0)
        kernel(A + 1, 2.0)
    assert len(traces) == 1
    kernel(A, 2)  # an int is another constant than a float
    kernel(A, True)
    kernel(A[:32], 2.0)
    kernel(A.astype(np.float16), 2.0)
    assert len(traces) == 5
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    kernel(A, 2.0)
    kernel[2](A, 2.0)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    kernel(A, 2.0)
    assert len(traces) == 5 + 1 + 2 + 1


def test_a_constant_that_cannot_be_hashed_is_traced_anew() -> None:
    @nki.jit
    def kernel(x, options):
        return scaled(x, options["f"]["value"])

    options = {"f": bytearray(b"\2")}
    with pytest.raises(TypeError):
        kernel(A, options)

    class Options:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self) -> None:
            self.value = 2.0

    @nki.jit
    def other(x, options):
        return scaled(x, options.value)

    mutable = Options()
    first = other(A, mutable)
    mutable.value = 3.0
    assert np.array_equal(first, A * F32(2)) and np.array_equal(other(A, mutable), A * F32(3))


def test_functions_and_odd_objects_as_constants() -> None:
    @nki.jit
    def kernel(x, make, extra=None):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, make(nl.load(x)))
        return out

    for factor in (2.0, 3.0):
        assert np.array_equal(kernel(A, lambda t, f=factor: nl.multiply(t, f)), A * F32(factor))
    assert np.array_equal(kernel(A, nl.abs), np.abs(A)) and np.array_equal(kernel(A, nl.negative), -A)

    class Knot:
        def __init__(self) -> None:
            self.me = self

    class Holder:
        def __init__(self, array) -> None:
            self.array = array

    assert np.array_equal(kernel(A, nl.abs, Knot()), np.abs(A))
    assert np.array_equal(kernel(A, nl.abs, Holder(torch.ones(2))), np.abs(A))
    made = nki.jit(lambda x, holder: scaled(x, float(holder.array[0])))
    assert np.array_equal(made(A, Holder(np.ones(3))), A) and np.array_equal(
        made(A, Holder(np.full(3, 2.0))), A * F32(2)
    )


def test_records_are_constants_by_their_fields() -> None:
    class Settings(nl.NKIObject):
        factor: float
        shift: float = 0.0

    class More(Settings):
        name: str = "more"

        def __post_init__(self) -> None:
            self.total = self.factor + self.shift

    traces = []

    @nki.jit
    def kernel(x, settings):
        traces.append(settings.factor)
        return scaled(x, settings.factor, settings.shift)

    @dataclasses.dataclass
    class Plain(nl.NKIObject):
        width = 3
        items: list = dataclasses.field(default_factory=list)

    assert Plain(width=4, items=[1]).width == 4 and Plain().items == [] and Plain().items is not Plain().items

    settings = Settings(2.0)
    assert np.array_equal(kernel(A, settings), kernel(A, Settings(factor=2.0)))
    settings.factor = 3.0
    assert np.array_equal(kernel(A, settings), A * F32(3)) and traces == [2.0, 3.0]
    more = More(1.0, shift=2.0)
    assert (more.total, more.name, Settings(1.0).shift) == (3.0, "more", 0.0)
    with pytest.raises(AttributeError, match="field factor of .* has no value yet"):
        Settings().factor  # noqa: B018
    for wrong, message in (((1, 2, 3), "takes 2 fields"),):
        with pytest.raises(TypeError, match=message):
            Settings(*wrong)
    with pytest.raises(TypeError, match="has no field: nothing"):
        Settings(1.0, nothing=1)
    with pytest.raises(TypeError, match="was given twice: factor"):
        Settings(1.0, factor=1)


def test_a_program_is_data_and_runs_after_a_trip_through_text() -> None:
    @nki.jit
    def kernel(x, count):
        out = nl.ndarray((64, 32), nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((64, 32), nl.float32)
        identity = nl.shared_identity_matrix(64, nl.float32)
        steps = nisa.scalar_load(nl.load(count))

        def step(i):
            total = nl.ndarray((64, 32), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(total, identity, nl.load(x))
            nisa.tensor_tensor(acc, acc, total, nl.add, name="sum")

        nl.fori_loop(0, steps, step)
        nl.store(out, acc)
        return out

    count = np.array([[3]], np.int32)
    program = kernel.program(A, count)
    text = program.to_json()
    again = ir.Program.from_json(text)
    assert again.to_json() == text and json.loads(text)["format"] == ir.FORMAT
    memory = {number: value.reshape(-1).copy() for number, value in zip(again.inputs, (A, count), strict=True)}
    got = execute(again, memory)[again.outputs[0]].reshape(64, 32)
    assert np.array_equal(got, kernel(A, count)) and np.allclose(got, A * 3, atol=1e-5)
    with pytest.raises(ValueError, match="not a program of format"):
        ir.Program.from_json("{}")
    with pytest.raises(TypeError, match="function cannot be part of a program"):
        ir._pack(lambda: None)


def test_names_and_order_edges() -> None:
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        first = nisa.memset(t[0:32], 1.0, name="first")
        second = nisa.memset(t[32:64], 2.0, name="second")
        second.depends_on(first)
        with nl.no_reorder():
            nisa.memset(t[0:1], 3.0, name="third")
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    def edges(k):
        named = {item.name: item for item in k.program(A).instructions() if item.name}
        numbers = {item.number: name for name, item in named.items()}
        return {name: [numbers[n] for n in item.after] for name, item in named.items()}, named["third"].fixed

    assert edges(kernel) == ({"first": [], "second": ["first"], "third": []}, True)
    ordered = kernel.with_schedule([("third", ["first", "second"])])
    assert edges(ordered) == ({"first": [], "second": ["first"], "third": ["first", "second"]}, True)
    with pytest.raises(NkiValueError, match="no instruction named 'nothing'"):
        kernel.with_schedule([("third", "nothing")])(A)


def test_device_print(capsys) -> None:
    def body(x):
        nl.device_print("values", x[0:1, 0:2])
        return x

    run(body, np.array([[1.5, 2.5, 3.5]], F32))
    output = capsys.readouterr().out
    assert (
        "values: core 0, [1, 2] float32" in output and "[[1.5 2.5]]" in output and "test_nki_kernel_calls.py" in output
    )


def test_low_precision_kept_as_float32(monkeypatch) -> None:
    x = torch.full((2, 2), 1.0)

    def body(t):
        narrow = nl.copy(nl.add(t, 2.0**-12), nl.bfloat16)
        assert narrow.dtype == nl.bfloat16
        return nl.copy(nl.subtract(narrow, 1.0, nl.float32))

    assert (run(body, x) == 0).all()
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert (run(body, x) == 2.0**-12).all()
