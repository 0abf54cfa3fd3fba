"""Changes to PyTorch and its neighbours: each does what it is for, and leaves other devices alone."""

from __future__ import annotations

import inspect
import re
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_neuronx import compat


class Recorder(TorchDispatchMode):
    """Names of the operators that touch neuron tensors, other than views of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(isinstance(arg, torch.Tensor) and arg.is_neuron for arg in args):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def recorded(action: Callable[[], object]) -> list[str]:
    # repr() turns dispatch modes off, so the recorder sits where formatting begins instead
    seen = Recorder()
    original = torch._tensor_str._str_intern

    def inside(*args, **kwargs):
        with seen:
            return original(*args, **kwargs)

    torch._tensor_str._str_intern = inside
    try:
        action()
    finally:
        torch._tensor_str._str_intern = original
    return seen.seen


TENSORS = {
    "float": torch.tensor([[1.5, -2.0], [1e-8, float("nan")]]),
    "integer": torch.arange(5),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j, -1j]),
    "conjugate": torch.tensor([1 + 2j]).conj(),
    "scalar": torch.tensor(3.25),
    "empty": torch.empty(0, 3),
    "summarised": torch.arange(5000.0).reshape(50, 100),
    "bfloat16": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", TENSORS)
def test_printing_looks_as_on_the_cpu(name: str) -> None:
    expected = re.sub(r"\s", "", repr(TENSORS[name]))
    printed = repr(TENSORS[name].to("neuron"))
    assert "device='neuron:0'" in printed
    assert re.sub(r"\s", "", printed).replace(",device='neuron:0'", "") == expected


@pytest.mark.parametrize("name", [name for name in TENSORS if name not in ("empty", "conjugate")])
def test_printing_costs_one_copy(name: str) -> None:
    tensor = TENSORS[name].to("neuron")
    assert recorded(lambda: repr(tensor)) == ["aten._to_copy.default"]


def test_printing_with_gradient_and_module() -> None:
    x = torch.ones(2, device="neuron", requires_grad=True)
    assert repr(x * 2) == "tensor([2., 2.], device='neuron:0', grad_fn=<MulBackward0>)"
    assert repr(torch.nn.Parameter(x)) == (
        "Parameter containing:\ntensor([1., 1.], device='neuron:0', requires_grad=True)"
    )
    assert f"{torch.tensor(1.5, device='neuron'):.2f}" == "1.50"


def test_dlpack_round_trip_shares_memory() -> None:
    x = torch.arange(6.0, device="neuron:1").reshape(2, 3)
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 1)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and y.stride() == x.stride()
    y[0, 0] = 9
    assert x[0, 0].item() == 9
    capsule = torch.utils.dlpack.to_dlpack(x)
    assert torch.utils.dlpack.from_dlpack(capsule).data_ptr() == x.data_ptr()


def test_dlpack_with_numpy_goes_through_the_host() -> None:
    x = torch.arange(4.0, device="neuron")
    with pytest.raises((BufferError, RuntimeError, TypeError, ValueError)):
        np.from_dlpack(x)  # NumPy reads host memory only
    assert np.from_dlpack(x.cpu()).tolist() == [0, 1, 2, 3]
    assert torch.from_dlpack(np.arange(3)).to("neuron").tolist() == [0, 1, 2]
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"


def test_dlpack_refusals_are_pytorchs() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(torch.ones(1, device="neuron", requires_grad=True))
    assert torch.ones(1).__dlpack_device__()[0] == torch.utils.dlpack.DLDeviceType.kDLCPU


def test_sharing_is_refused_by_name() -> None:
    x = torch.ones(2, device="neuron:1")
    for share in (x.share_memory_, x.untyped_storage().share_memory_, torch.nn.Parameter(x).share_memory_):
        with pytest.raises(RuntimeError, match=r"share_memory_\(\) is not possible for tensors on neuron:1.*cpu\(\)"):
            share()
    with pytest.raises(RuntimeError, match="share_memory_"):
        torch.nn.Linear(2, 2).to("neuron").share_memory()
    assert not x.is_shared()
    assert torch.ones(2).share_memory_().is_shared()


def test_pickling_between_processes_is_refused_by_name() -> None:
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(2, device="neuron")
    for obj in (x, torch.nn.Parameter(x), x.untyped_storage(), {"nested": [x]}):
        with pytest.raises(RuntimeError, match="Sending to another process is not possible for tensors on neuron:0"):
            ForkingPickler.dumps(obj)
    assert torch.equal(ForkingPickler.loads(ForkingPickler.dumps(torch.ones(2))), torch.ones(2))
    assert isinstance(ForkingPickler.loads(ForkingPickler.dumps(torch.nn.Parameter(torch.ones(2)))), torch.nn.Parameter)


def test_ordinary_pickling_works() -> None:
    import pickle

    x = torch.arange(3.0, device="neuron:1")
    again = pickle.loads(pickle.dumps(x))
    assert again.device == x.device and torch.equal(again.cpu(), x.cpu()) and again.data_ptr() != x.data_ptr()


SAFETENSORS = """
import sys, torch
{first}
import safetensors, safetensors.torch
from safetensors import safe_open
x = torch.arange(3.0, device="neuron:1")
safetensors.torch.save_file({{"x": x}}, {path!r})
for device, expected in (("neuron", "neuron:0"), ("neuron:1", "neuron:1"), (torch.device("neuron:1"), "neuron:1"),
                         (1, "neuron:1"), ("cpu", "cpu")):
    loaded = safetensors.torch.load_file({path!r}, device=device)["x"]
    assert str(loaded.device) == expected and torch.equal(loaded.cpu(), x.cpu()), (device, loaded)
    with safe_open({path!r}, framework="pt", device=device) as file:
        assert str(file.get_tensor("x").device) == expected
try:
    safetensors.torch.load_file({path!r}, device="nonsense")
except Exception as error:
    assert "nonsense" in str(error)
print("ok")
"""


@pytest.mark.parametrize("first", ["", "import safetensors", "torch.neuron.init()"])
def test_safetensors(first: str, tmp_path, run_python) -> None:
    program = SAFETENSORS.format(first=first, path=str(tmp_path / "x.safetensors"))
    assert run_python(program).stdout.strip() == "ok"


def test_import_hook_waits_and_leaves(tmp_path, run_python) -> None:
    """The hook without safetensors itself: it fires once, for the right module, and is gone afterwards."""
    (tmp_path / "safetensors.py").write_text("def safe_open(name, framework, device='cpu'):\n    return device\n")
    program = f"""
import sys, torch
sys.path.insert(0, {str(tmp_path)!r})
hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "_AfterImport"]
assert len(hooks) == 1
import safetensors
assert not any(type(finder).__name__ == "_AfterImport" for finder in sys.meta_path)
print(safetensors.safe_open("f", "pt", device="neuron:2"), safetensors.safe_open("f", "pt"),
      safetensors.safe_open("f", "pt", "neuron"), safetensors.safe_open("f", "pt", "cuda:0"))
"""
    assert run_python(program, env={"LOCAL_RANK": None}).stdout.strip() == "2 cpu 0 cuda:0"


def test_import_hook_stays_out_of_the_way_of_a_missing_package(run_python) -> None:
    program = """
import sys, torch
import importlib.util
sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]
assert importlib.util.find_spec("safetensors") is None
try:
    import safetensors
except ModuleNotFoundError as error:
    print(error)
"""
    assert run_python(program).stdout.strip() == "No module named 'safetensors'"


def test_each_change_says_why_and_until_when() -> None:
    changes = re.findall(r"^    (\w+)\(\)$", inspect.getsource(compat.apply), re.M)
    assert len(changes) == 7
    for name in changes:
        text = inspect.getdoc(getattr(compat, name))
        assert text and "can go" in text.lower(), name
        assert "#" in text or "upstream" in text or "release" in text, name


def test_backward_threads_rest_when_drained() -> None:
    """After draining, no backward thread holds a Python object, even where another thread fights for the lock."""
    weight = torch.ones(64, 64, device="neuron", requires_grad=True)
    stop = threading.Event()

    def fight() -> None:
        while not stop.is_set():
            compat._drain_autograd_threads()

    fighter = threading.Thread(target=fight)
    fighter.start()
    try:
        for _ in range(30):
            gradient = torch.autograd.grad((weight @ weight).sum(), weight)
            alive = weakref.ref(gradient[0])
            del gradient
            compat._drain_autograd_threads()
            assert alive() is None
    finally:
        stop.set()
        fighter.join()
