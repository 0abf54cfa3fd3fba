"""What a user sees who makes a mistake. Types and texts are CUDA's, word for word, where CUDA has a text.

`cuda` is what PyTorch says on a CUDA device (written down as a fact; the tests need no GPU). "cuda" reads "neuron" and
"CUDA" reads "NEURON" in ours. `text` replaces it where ours differs on purpose, with the reason in `why`. CUDA reports
an index out of range as a device-side assert that ends the process; ours is the CPU's exception, raised at the call.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_neuronx
from regressions.helpers import DEVICE

GIB = 1 << 30


class Misuse(NamedTuple):
    label: str
    call: Callable[[], Any]
    error: type[BaseException]
    cuda: str = ""
    text: str = ""
    why: str = ""


def dev(*shape: int, **kwargs: Any) -> torch.Tensor:
    return torch.ones(shape, device=DEVICE, **kwargs)


def index(*values: int, on: str = DEVICE) -> torch.Tensor:
    return torch.tensor(values, device=on)


def cpu(*shape: int, **kwargs: Any) -> torch.Tensor:
    return torch.ones(shape, **kwargs)


def other_core() -> torch.Tensor:
    return torch.ones(3, device=f"{DEVICE}:1")


def twice_backward() -> None:
    y = (dev(3).requires_grad_() ** 2).sum()
    y.backward()
    y.backward()


def modified_for_backward() -> None:
    x = dev(3).requires_grad_()
    y = x.exp()
    z = y.sin()
    y.add_(1)
    z.sum().backward()


def saved_on(where: str) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(dev(2), buffer, _use_new_zipfile_serialization=False)  # the new format has checksums
    text = buffer.getvalue().replace(b"neuron:0", where.encode())
    assert text != buffer.getvalue()
    return io.BytesIO(text)


def elapsed(timing: bool, record: bool) -> float:
    a, b = torch.neuron.Event(enable_timing=timing), torch.neuron.Event(enable_timing=timing)
    if record:
        a.record()
        b.record()
    return a.elapsed_time(b)


def strict(call: Callable[[], Any]) -> Any:
    before = torch_neuronx.set_fallback_policy("raise")
    try:
        return call()
    finally:
        torch_neuronx.set_fallback_policy(before)


TWO = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
ONE_OFF = "Expected all tensors to be on the same device"
SIZES = "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
ORDINAL = "invalid device ordinal"
TYPE_NAMES = "PyTorch rewrites type names in messages for the CPU and CUDA only"
COUNT = torch.neuron.device_count()

DEVICES = [
    Misuse("add, cpu second", lambda: dev(3) + cpu(3), RuntimeError, TWO),
    Misuse("mul, in place", lambda: dev(3).mul_(cpu(3)), RuntimeError, TWO),
    Misuse("maximum", lambda: torch.maximum(dev(3), cpu(3)), RuntimeError, TWO),
    Misuse("comparison", lambda: dev(3) > cpu(3), RuntimeError, TWO),
    Misuse("lerp", lambda: torch.lerp(dev(3), cpu(3), 0.5), RuntimeError, TWO),
    Misuse("where", lambda: torch.where(dev(3) > 0, dev(3), cpu(3)), RuntimeError, ONE_OFF),
    Misuse("two cores", lambda: dev(3) + other_core(), RuntimeError,
           "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"),
    Misuse("matmul", lambda: dev(2, 3) @ cpu(3, 2), RuntimeError, ONE_OFF),
    Misuse("bmm", lambda: torch.bmm(dev(1, 2, 3), cpu(1, 3, 2)), RuntimeError, ONE_OFF),
    Misuse("linear", lambda: nn.Linear(3, 2)(dev(1, 3)), RuntimeError, ONE_OFF),
    Misuse("convolution", lambda: nn.Conv2d(1, 1, 3)(dev(1, 1, 4, 4)), RuntimeError,
           "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
           text=ONE_OFF, why="one text for every mix of devices"),
    Misuse("batch norm", lambda: nn.BatchNorm1d(3)(dev(2, 3)), RuntimeError, ONE_OFF),
    Misuse("layer norm", lambda: nn.LayerNorm(3)(dev(2, 3)), RuntimeError, ONE_OFF),
    Misuse("embedding", lambda: F.embedding(index(1, on="cpu"), dev(3, 2)), RuntimeError, ONE_OFF),
    Misuse("index_select", lambda: dev(3).index_select(0, index(1, on="cpu")), RuntimeError, ONE_OFF),
    Misuse("gather", lambda: dev(3).gather(0, index(1, on="cpu")), RuntimeError, ONE_OFF),
    Misuse("scatter", lambda: dev(3).scatter(0, index(1, on="cpu"), 1.0), RuntimeError, ONE_OFF),
    Misuse("indexing a cpu tensor", lambda: cpu(3)[index(1)], RuntimeError,
           "indices should be either on cpu or on the same device as the indexed tensor (cpu)"),
    Misuse("cat", lambda: torch.cat([dev(3), cpu(3)]), RuntimeError, ONE_OFF),
    Misuse("stack", lambda: torch.stack([dev(3), cpu(3)]), RuntimeError, ONE_OFF),
    Misuse("cross entropy", lambda: F.cross_entropy(dev(2, 3), index(0, 1, on="cpu")), RuntimeError, ONE_OFF),
    Misuse("out on the cpu", lambda: torch.add(dev(3), dev(3), out=cpu(3)), RuntimeError, ONE_OFF),
    Misuse("optimizer", lambda: torch._fused_adamw_([dev(2)], [cpu(2)], [dev(2)], [dev(2)], [], [dev()], lr=0.1,
           beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False), RuntimeError),
    Misuse("gradient", lambda: (dev(3).requires_grad_() * 2).backward(cpu(3)), RuntimeError,
           "invalid gradient at index 0 - expected device cuda:0 but got cpu"),
    Misuse("empty, no such device", lambda: torch.empty(2, device=f"{DEVICE}:{COUNT}"), RuntimeError, ORDINAL),
    Misuse("to, no such device", lambda: cpu(2).to(f"{DEVICE}:99"), RuntimeError, ORDINAL),
    Misuse("set_device", lambda: torch.neuron.set_device(99), RuntimeError, ORDINAL),
    Misuse("set_device of another type", lambda: torch.neuron.set_device("cpu"), ValueError,
           "Expected a cuda device, but got: cpu"),
    Misuse("synchronize", lambda: torch.neuron.synchronize(99), RuntimeError, ORDINAL),
    Misuse("device context", lambda: torch.neuron.device(99).__enter__(), RuntimeError, ORDINAL),
    Misuse("properties", lambda: torch.neuron.get_device_properties(99), RuntimeError,
           "Invalid device id", text=ORDINAL, why="one text for every ordinal"),
    Misuse("device string", lambda: torch.device("neuron:x"), RuntimeError, "Invalid device string: 'cuda:x'"),
    Misuse("accelerator index", lambda: torch.accelerator.set_device_index(99), RuntimeError, ORDINAL),
]  # fmt: skip

INDICES = [
    Misuse("integer index", lambda: dev(3)[10], IndexError, "index 10 is out of bounds for dimension 0 with size 3"),
    Misuse("tensor index", lambda: dev(3)[index(10)], IndexError,
           text="index 10 is out of bounds for dimension 0 with size 3", why="CUDA: device-side assert"),
    Misuse("assignment", lambda: dev(3).__setitem__(index(-4), 1.0), IndexError,
           text="index -4 is out of bounds for dimension 0 with size 3", why="CUDA: device-side assert"),
    Misuse("embedding row", lambda: F.embedding(index(10), dev(3, 2)), IndexError, text="index out of range in self",
           why="CUDA: device-side assert"),
    Misuse("gather index", lambda: dev(3).gather(0, index(10)), RuntimeError,
           text="index 10 is out of bounds for dimension 0 with size 3", why="CUDA: device-side assert"),
    Misuse("scatter index", lambda: dev(3).scatter(0, index(10), 1.0), RuntimeError,
           text="index 10 is out of bounds for dimension 0 with size 3", why="CUDA: device-side assert"),
    Misuse("index_select index", lambda: dev(3).index_select(0, index(10)), IndexError,
           text="index out of range in self", why="CUDA: device-side assert"),
    Misuse("class label", lambda: F.cross_entropy(dev(2, 3), index(0, 9)), IndexError,
           text="Target 9 is out of bounds.", why="CUDA: device-side assert"),
    Misuse("dimension", lambda: dev(3).sum(4), IndexError,
           "Dimension out of range (expected to be in range of [-1, 0], but got 4)"),
    Misuse("float index", lambda: dev(3)[dev(2)], IndexError,
           "tensors used as indices must be long, int, byte or bool tensors"),
    Misuse("gather with floats", lambda: dev(3).gather(0, dev(1)), RuntimeError,
           "gather(): Expected dtype int32/int64 for index"),
    Misuse("too many indices", lambda: dev(3)[0, 0], IndexError, "too many indices for tensor of dimension 1"),
    Misuse("one_hot", lambda: F.one_hot(index(5), 3), RuntimeError,
           text="index 5 is out of bounds for dimension 1 with size 3", why="CUDA: device-side assert"),
]  # fmt: skip

SHAPES_AND_TYPES = [
    Misuse("broadcast", lambda: dev(3) + dev(4), RuntimeError,
           "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0"),
    Misuse("matmul shapes", lambda: dev(2, 3) @ dev(2, 3), RuntimeError, SIZES),
    Misuse("matmul dtypes", lambda: dev(2, 3) @ dev(3, 2, dtype=torch.float64), RuntimeError,
           "expected m1 and m2 to have the same dtype, but got: float != double"),
    Misuse("view", lambda: dev(2, 3).t().view(6), RuntimeError,
           "view size is not compatible with input tensor's size and stride"),
    Misuse("reshape", lambda: dev(6).reshape(4, 2), RuntimeError, "shape '[4, 2]' is invalid for input of size 6"),
    Misuse("negative size", lambda: torch.empty(-1, device=DEVICE), RuntimeError,
           "Trying to create tensor with negative dimension -1"),
    Misuse("convolution channels", lambda: F.conv2d(dev(1, 2, 4, 4), dev(1, 3, 3, 3)), RuntimeError,
           "Given groups=1, weight of size [1, 3, 3, 3], expected input[1, 2, 4, 4] to have 3 channels"),
    Misuse("convolution dtypes", lambda: F.conv2d(dev(1, 1, 4, 4), dev(1, 1, 3, 3, dtype=torch.float16)), RuntimeError,
           "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
           text="expected scalar type Float but found Half", why="the CPU library's text"),
    Misuse("item of many", lambda: dev(2).item(), RuntimeError,
           "a Tensor with 2 elements cannot be converted to Scalar"),
    Misuse("result type", lambda: index(1).add_(0.5), RuntimeError,
           "result type Float can't be cast to the desired output type Long"),
    Misuse("bool subtraction", lambda: (dev(2) > 0) - (dev(2) > 0), RuntimeError,
           "Subtraction, the `-` operator, with two bool tensors is not supported."),
    Misuse("softmax of integers", lambda: index(1, 2).softmax(0), NotImplementedError,
           text='"softmax_lastdim_kernel_impl" not implemented for \'Long\'', why="the CPU kernel's name"),
    Misuse("requires_grad of integers", lambda: index(1).requires_grad_(), RuntimeError,
           "only Tensors of floating point dtype can require gradients"),
    Misuse("cholesky", lambda: torch.linalg.cholesky(-torch.eye(2, device=DEVICE)), torch.linalg.LinAlgError,
           "linalg.cholesky: The factorization could not be completed because the input is not positive-definite"),
    Misuse("inverse", lambda: torch.linalg.inv(torch.zeros(2, 2, device=DEVICE)), torch.linalg.LinAlgError,
           "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed because the input matrix "
           "is singular."),
    Misuse("multinomial", lambda: torch.multinomial(-dev(3), 1), RuntimeError,
           text="probability tensor contains either `inf`, `nan` or element < 0", why="CUDA: device-side assert"),
    Misuse("leaf in place", lambda: dev(2).requires_grad_().add_(1), RuntimeError,
           "a leaf Variable that requires grad is being used in an in-place operation."),
    Misuse("backward twice", twice_backward, RuntimeError, "Trying to backward through the graph a second time"),
    Misuse("modified for backward", modified_for_backward, RuntimeError,
           "one of the variables needed for gradient computation has been modified by an inplace operation: "
           "[torch.cuda.FloatTensor [3]]",
           text="has been modified by an inplace operation: [neuronFloatType [3]]", why=TYPE_NAMES),
    Misuse("expanded in place", lambda: dev(1).expand(3).add_(1), RuntimeError,
           "unsupported operation: more than one element of the written-to tensor refers to a single memory location"),
]  # fmt: skip

RUNTIME = [
    Misuse("numpy", lambda: dev(2).numpy(), TypeError,
           "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
           "first."),
    Misuse("asarray", lambda: np.asarray(dev(2)), TypeError, "can't convert cuda:0 device type tensor to numpy."),
    Misuse("out of memory", lambda: torch.empty(1024 * GIB, dtype=torch.uint8, device=DEVICE), torch.OutOfMemoryError,
           "CUDA out of memory. Tried to allocate 1024.00 GiB."),
    Misuse("memory fraction", lambda: torch.neuron.set_per_process_memory_fraction(2.0), ValueError,
           "Invalid fraction value: 2.0. Allowed range: 0~1"),
    Misuse("memory of no device", lambda: torch.neuron.mem_get_info(99), RuntimeError, ORDINAL),
    Misuse("pinning device memory", lambda: dev(2).pin_memory(), RuntimeError,
           "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
           text="cannot pin 'neuronFloatType' only dense CPU tensors can be pinned", why=TYPE_NAMES),
    Misuse("generator of the cpu", lambda: torch.rand(2, device=DEVICE, generator=torch.Generator()), RuntimeError,
           "Expected a 'cuda' device type for generator but found 'cpu'"),
    Misuse("generator on the cpu", lambda: torch.rand(2, generator=torch.Generator(DEVICE)), RuntimeError,
           "Expected a 'cpu' device type for generator but found 'cuda'"),
    Misuse("generator state, size", lambda: torch.Generator(DEVICE).set_state(torch.zeros(3, dtype=torch.uint8)),
           RuntimeError, "RNG state is wrong size"),
    Misuse("generator state, dtype", lambda: torch.Generator(DEVICE).set_state(torch.zeros(16)), TypeError,
           "RNG state must be a torch.ByteTensor"),
    Misuse("events not recorded", lambda: elapsed(True, False), ValueError,
           "Both events must be recorded before calculating elapsed time."),
    Misuse("events without timing", lambda: elapsed(False, True), ValueError,
           "Both events must be created with argument 'enable_timing=True'."),
    Misuse("stream of another device", lambda: torch.neuron.Stream(device="cpu"), Exception),
    Misuse("stream of no device", lambda: torch.neuron.Stream(device=99), RuntimeError, ORDINAL),
    Misuse("record_stream of a foreign stream", lambda: dev(2).record_stream(torch.Stream(device="cpu")), Exception),
    Misuse("deserialisation", lambda: torch.load(saved_on("neuron:9")), RuntimeError,
           "Attempting to deserialize object on CUDA device 9 but torch.cuda.device_count() is 4. Please use "
           "torch.load with map_location to map your storages to an existing device."),
    Misuse("second backend name", lambda: torch.utils.rename_privateuse1_backend("other"), RuntimeError,
           text="torch.register_privateuse1_backend() has already been set! Current backend: neuron"),
    Misuse("second device module", lambda: torch._register_device_module("neuron", torch.neuron), RuntimeError,
           text="The runtime module of 'neuron' has already been registered"),
    Misuse("quantized", lambda: torch.quantize_per_tensor(dev(2), 0.1, 0, torch.quint8), NotImplementedError,
           text="'aten::quantize_per_tensor' has a result of layout Strided (quantized)"),
    Misuse("fallback policy", lambda: torch_neuronx.set_fallback_policy("never"), ValueError,
           text="fallback policy 'never' is not one of allow, warn, raise"),
    Misuse("strict mode, dtype", lambda: strict(lambda: dev(2, dtype=torch.float64).exp()), NotImplementedError,
           text="Double, a type that Trainium does not compute in"),
]  # fmt: skip

TABLE = [*DEVICES, *INDICES, *SHAPES_AND_TYPES, *RUNTIME]


def test_the_table_is_complete():
    assert len(TABLE) >= 80
    assert len({m.label for m in TABLE}) == len(TABLE)
    assert all(m.why or not m.cuda for m in TABLE if m.text), "a text that differs from CUDA's needs its reason"


@pytest.mark.parametrize("misuse", TABLE, ids=[m.label.replace(" ", "-") for m in TABLE])
def test_misuse(misuse):
    with pytest.raises(misuse.error) as caught:
        misuse.call()
    message = str(caught.value)
    if misuse.error is not Exception:
        allowed = {misuse.error, torch.AcceleratorError} if misuse.error is RuntimeError else {misuse.error}
        assert type(caught.value) in allowed, f"{type(caught.value).__name__}: {message}"
    expected = misuse.text or misuse.cuda.replace("cuda", "neuron").replace("CUDA", "NEURON")
    assert expected in message
    assert message.strip(), "an exception without a text"


def test_the_program_goes_on_after_each_mistake():
    for misuse in TABLE:
        with pytest.raises(misuse.error):
            misuse.call()
        assert (dev(2) + 1).tolist() == [2.0, 2.0], f"broken after: {misuse.label}"
    assert torch.neuron.current_device() == 0


def test_autocast_to_an_integer_type_warns_and_is_off():
    with (
        pytest.warns(UserWarning, match="In neuron autocast, but the target dtype is not supported"),
        torch.autocast(DEVICE, dtype=torch.int32),
    ):
        assert (dev(2, 2) @ dev(2, 2)).dtype == torch.float32


def test_out_of_memory_names_what_is_needed():
    keep = torch.empty(GIB, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(100 * GIB, dtype=torch.uint8, device=DEVICE)
    message = str(caught.value)
    for part in ("Tried to allocate 100.00 GiB", "total capacity of", "free", "GiB"):
        assert part in message, message
    assert keep.numel() == GIB
    torch.empty(GIB, dtype=torch.uint8, device=DEVICE)


def test_a_fork_after_initialisation_is_refused(run_python):
    code = """
import os, torch
torch.ones(1, device="neuron")
if (child := os.fork()) == 0:
    try:
        torch.ones(1, device="neuron")
    except RuntimeError as error:
        print(error)
        os._exit(0 if "Cannot re-initialize NEURON in forked subprocess" in str(error) and "spawn" in str(error) else 1)
    os._exit(2)
_, status = os.waitpid(child, 0)
print("status", os.waitstatus_to_exitcode(status))
"""
    assert "status 0" in run_python(code).stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_NEURONX_FALLBACK", "perhaps"),
        ("NEURON_LOGICAL_NC_CONFIG", "3"),
        ("NEURON_RT_VISIBLE_CORES", "5-2"),
        ("NEURON_RT_NUM_CORES", "many"),
    ],
)
def test_a_bad_environment_value_is_named(run_python, name, value):
    done = run_python("import torch; torch.ones(1, device='neuron')", env={name: value}, check=False)
    assert done.returncode != 0, f"{name}={value} was accepted"
    last = done.stderr.strip().splitlines()[-1]
    assert name in done.stderr and value in done.stderr, last
    assert done.returncode > 0, "the process died of a signal"
