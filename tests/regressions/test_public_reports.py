"""Faults of PyTorch itself with out-of-tree backends, reported in public: one test each, named after the report.

Each test fails if the fault were here. Reports about parts that are not built yet are in NOT_BUILT with the reason; a
test makes sure that every number from 1 to 32 has a test, here or in test_public_reports_backends.py, or a reason.
"""

from __future__ import annotations

import pathlib
import re
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regressions.helpers import DEVICE, Dispatched, assert_fell_back, assert_same

NOT_BUILT = {
    11: "pytorch#192969, current_stream() inside a compiled function: torch.compile(backend='neuron') is not built yet",
    16: "pytorch#172803, common_dtensor raises KeyError: the process group is not built yet",
    17: "pytorch#186433, DRIVER events on the CPU side: the Kineto plug-in is not built yet",
}
# Of report 32, the half about compiling with autotune waits for the compiler; that torch.cuda is left alone is tested.
# Of report 10, random numbers across ranks are tested with the fake process group; a real one is not built yet.


def test_every_report_has_a_test_or_a_reason():
    here = pathlib.Path(__file__).parent
    text = "".join(path.read_text() for path in here.glob("test_public_reports*.py"))
    numbers = {int(n) for n in re.findall(r"^def test_(\d\d)_", text, re.MULTILINE)}
    assert numbers | set(NOT_BUILT) == set(range(1, 33))
    assert not numbers & set(NOT_BUILT)


def test_01_pytorch_195815_dlpack_of_a_renamed_backend():
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    y = torch.from_dlpack(x)
    assert y.device == x.device
    y[0, 0] = 7.0
    assert x[0, 0].item() == 7.0, "from_dlpack made a copy"
    assert x.__dlpack_device__() == (12, x.device.index)  # kDLExtDev
    assert np.array_equal(np.from_dlpack(x.cpu()), x.cpu().numpy())
    # NumPy knows no device memory: it has to refuse with an exception, not to read it.
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(x)


def test_02_pytorch_102081_optional_tensor_lists(library):
    x = torch.arange(24.0).reshape(2, 3, 4)
    mask, index = torch.tensor([True, False]), torch.tensor([3])
    assert_same(lambda x, m, i: x[m, :, i], x, mask, index)
    assert_same(lambda x, i: x[:, None, :, i], x, index)
    assert_same(lambda x, m, i: library.index(x, [m, None, i]), x, mask, index)
    assert_fell_back("public_reports::index")

    def put(x, m, i):
        x[m, :, i] = -1.0
        return x

    assert_same(put, x, mask, index)


def test_03_pytorch_104965_in_place_tensor_lists(library):
    def foreach(x, y):
        torch._foreach_add_([x, y], 1)
        return [x, y]

    def custom(x, y):
        library.add_([x, y[1:]], 1)
        return [x, y]

    x, y = torch.zeros(3), torch.arange(4.0)
    assert_same(foreach, x, y)
    assert_same(custom, x, y)
    assert_fell_back("public_reports::add_")


def test_04_pytorch_60902_cat_with_empty_tensors(library):
    x = torch.ones(2, 3)
    assert_same(lambda x: torch.cat([x, torch.empty(0, device=x.device), x]), x)
    assert_same(lambda x: torch.cat([x, x[:0], x]), x)
    assert_same(lambda x: library.join([x, torch.empty(0, device=x.device), x]), x)
    assert_fell_back("public_reports::join")


def test_05_pytorch_134293_no_device_module(run_python, tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(2, device=DEVICE), path)
    code = f"""
import torch
for call in (lambda: torch.ones(1, device='neuron'), lambda: torch.load({str(path)!r})):
    try:
        call()
    except Exception as error:
        assert 'neuron' in str(error), error
        print(type(error).__name__)
print(torch.load({str(path)!r}, map_location='cpu').tolist())
"""
    done = run_python(code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.stdout.split() == ["RuntimeError", "RuntimeError", "[1.0,", "1.0]"]
    assert torch.load(path).device.type == DEVICE


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_06_pytorch_101326_compiled_code_sees_the_right_device(backend):
    def function(x):
        return x + 1 if x.device.type == DEVICE else x - 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    assert compiled(torch.zeros(2, device=DEVICE)).cpu().tolist() == [1.0, 1.0]
    assert compiled(torch.zeros(2)).tolist() == [-1.0, -1.0]


def test_07_pytorch_161129_backward_once_the_backend_is_registered():
    for device in ("cpu", DEVICE):
        x = torch.ones(3, device=device, requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad.cpu().tolist() == [2.0] * 3
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, device=DEVICE, requires_grad=True)
    ((a * 2).to(DEVICE) * b).sum().cpu().backward()  # a graph with both devices
    assert a.grad.tolist() == [2.0] * 3
    assert b.grad.cpu().tolist() == [2.0] * 3


def test_08_pytorch_116957_backward_over_several_streams():
    def run(device):
        torch.manual_seed(0)
        w = torch.randn(8, 8).to(device).requires_grad_()
        x = torch.randn(8, 8).to(device)
        if device == "cpu":
            ((x @ w).relu() + (w @ x).tanh()).sum().backward()
            return w.grad
        parts, main = [], torch.neuron.current_stream()
        for branch in (lambda: (x @ w).relu(), lambda: (w @ x).tanh()):
            stream = torch.neuron.Stream()
            stream.wait_stream(main)
            with torch.neuron.stream(stream):
                parts.append(branch())
            main.wait_stream(stream)
        sum(parts).sum().backward()
        return w.grad.cpu()

    torch.testing.assert_close(run(DEVICE), run("cpu"))


@pytest.mark.parametrize("shape", [(2, 3, 8, 16), (3, 8, 16)])
def test_09_pytorch_162989_attention_reaches_the_fused_kernel(shape):
    torch.manual_seed(0)
    tensors = [torch.randn(shape) for _ in range(3)]
    inputs = [t.to(DEVICE).requires_grad_() for t in tensors]
    with Dispatched() as log:
        out = F.scaled_dot_product_attention(*inputs, is_causal=True)
        out.sum().backward()
    fused = [n for n in log.names if "_scaled_dot_product" in n and "math" not in n]
    assert any("backward" in n for n in fused) and any("backward" not in n for n in fused), log.names
    assert not any("softmax" in n or "bmm" in n for n in log.names), f"decomposed: {log.names}"
    reference = [t.clone().requires_grad_() for t in tensors]
    expected = F.scaled_dot_product_attention(*reference, is_causal=True)
    expected.sum().backward()
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)
    for a, e in zip(inputs, reference, strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-5)


def test_10_pytorch_147584_random_numbers_of_a_sharded_tensor(run_python):
    code = """
import sys, torch, torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group(backend="cpu:fake,neuron:fake", rank=int(sys.argv[1]), world_size=2, store=FakeStore())
mesh = torch.distributed.device_mesh.init_device_mesh("neuron", (2,))
x = DTensor.from_local(torch.ones(64, device="neuron"), mesh, [Shard(0)], run_check=False)
torch.manual_seed(3)
print(torch.nn.functional.dropout(x, 0.5).to_local().cpu().tolist())
"""
    runs = [run_python(code.replace("sys.argv[1]", str(rank))).stdout for rank in (0, 0, 1)]
    assert runs[0] == runs[1], "the same rank draws other numbers in the next run"
    assert runs[0] != runs[2], "both ranks draw the same numbers"
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.numel() == 16, (
        "DTensor's tracker reads a seed and an offset, 8 bytes each"
    )
    torch.neuron.manual_seed(5)
    seed, offset = torch.neuron.get_rng_state().view(torch.int64).tolist()
    assert (seed, offset) == (5, 0)


ACCELERATOR_CALLS = """
import os
import torch
acc = torch.accelerator
calls = {
    "current_accelerator": lambda: acc.current_accelerator(), "is_available": acc.is_available,
    "device_count": acc.device_count, "current_device_index": acc.current_device_index,
    "current_device_idx": lambda: acc.current_device_idx(), "set_device_index": lambda: acc.set_device_index(0),
    "set_device_idx": lambda: acc.set_device_idx(0), "current_stream": acc.current_stream,
    "set_stream": lambda: acc.set_stream(acc.current_stream()), "synchronize": acc.synchronize,
    "device_index": lambda: acc.device_index(0).__enter__(), "get_memory_info": acc.get_memory_info,
    "get_device_capability": acc.get_device_capability,
    "empty_cache": acc.empty_cache, "empty_host_cache": lambda: acc.empty_host_cache(),
    "memory_stats": acc.memory_stats, "memory_allocated": acc.memory_allocated,
    "max_memory_allocated": acc.max_memory_allocated, "memory_reserved": acc.memory_reserved,
    "max_memory_reserved": acc.max_memory_reserved,
    "reset_accumulated_memory_stats": acc.reset_accumulated_memory_stats,
    "reset_peak_memory_stats": acc.reset_peak_memory_stats,
}
missing = {n for n in acc.__all__ if callable(getattr(acc, n))} - set(calls) - {"Graph"}
assert not missing, f"not called here: {missing}"
for after in (False, True):
    for name, call in calls.items():
        if name not in acc.__all__:
            continue
        if (child := os.fork()) == 0:  # nothing has touched the device yet
            if after:
                torch.ones(1, device="neuron")
            call()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"{name} {'after' if after else 'before'} the first tensor: status {status}"
print("fine")
"""


def test_12_pytorch_197561_every_accelerator_function_in_a_fresh_process(run_python):
    assert run_python(ACCELERATOR_CALLS).stdout.split()[-1] == "fine"


def test_13_pytorch_163979_custom_operator_without_an_autograd_formula():
    made = torch.library.Library("report13", "DEF")
    made.define("opaque(Tensor x) -> Tensor")

    def kernel(x):  # like a C++ kernel: autograd cannot see through it
        with torch._C._AutoDispatchBelowAutograd():
            return x * 3

    made.impl("opaque", kernel, "CPU")
    made.impl("opaque", kernel, "PrivateUse1")

    def observe(device):
        x = torch.ones(2, device=device, requires_grad=True)
        y = torch.ops.report13.opaque(x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                y.sum().backward()
                outcome = "ran"
            except RuntimeError as error:
                outcome = str(error)[:60]
        gradient = None if x.grad is None else x.grad.tolist()
        return y.requires_grad, type(y.grad_fn).__name__, outcome, gradient, [str(w.message)[:60] for w in caught]

    try:
        assert observe(DEVICE) == observe("cpu")
    finally:
        made._destroy()


def test_14_pytorch_124902_sending_a_tensor_to_another_process(run_python):
    code = """
import torch, torch.multiprocessing as mp

def child(queue, back):
    back.put(queue.get().cpu() + 1)

if __name__ == "__main__":
    from multiprocessing.reduction import ForkingPickler
    x = torch.arange(3.0, device="neuron")
    try:
        ForkingPickler.dumps(x)
    except Exception as error:
        assert "neuron" in str(error), error
        print("named error")
    else:
        context = mp.get_context("spawn")
        queue, back = context.Queue(), context.Queue()
        process = context.Process(target=child, args=(queue, back))
        process.start()
        queue.put(x)
        assert back.get(timeout=60).tolist() == [1.0, 2.0, 3.0]
        process.join()
        print("works")
    try:
        shared = x.share_memory_()
    except Exception as error:
        assert "neuron" in str(error), error
    else:
        assert shared.is_shared(), "share_memory_ did nothing and said nothing"
"""
    script = "import runpy, tempfile, pathlib\np = pathlib.Path(tempfile.mkdtemp()) / 'm.py'\n"
    script += f"p.write_text({code!r})\nrunpy.run_path(str(p), run_name='__main__')"
    assert run_python(script).stdout.strip() in ("works", "named error")


def test_15_pytorch_119358_grad_scaler_skips_an_infinite_gradient():
    w = torch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=1)
    for factor, scale, expected in ((float("inf"), 4.0, [1.0, 1.0]), (1.0, 8.0, [0.0, 0.0])):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert w.tolist() == expected
