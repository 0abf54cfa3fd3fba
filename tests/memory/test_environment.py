"""What needs a process of its own: environment variables, the debug mode, a host that runs out, and fork."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]

TAKE = """
import torch
MIB = 1 << 20
def take(size): return torch.empty(size, dtype=torch.uint8, device="neuron")
def stats(): return torch.neuron.memory_stats()
def ptr(t): return t.untyped_storage().data_ptr()
"""

KEPT_WHOLE = (
    TAKE
    + """
big = take(96 * MIB); a = ptr(big); del big
small = take(4 * MIB)
assert ptr(small) != a, "a block from the split size on is not split for a smaller request"
again = take(80 * MIB)
assert ptr(again) == a and torch.neuron.memory_allocated() == 100 * MIB, "but may exceed a request by 20 MiB"
again = None
less = take(40 * MIB)
assert ptr(less) != a
s = stats()
assert s["oversize_allocations.allocated"] == 3 and s["oversize_allocations.current"] == 1, s
assert s["oversize_segments.current"] == 2 and s["max_split_size"] == 32 * MIB, s
print("ok")
"""
)


@pytest.mark.parametrize(
    "env",
    [
        {"PYTORCH_ALLOC_CONF": "max_split_size_mb:32,max_non_split_rounding_mb:20"},
        {"TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG": "kMaxSplitSizeBytes=33554432,kMaxNonSplitRoundingBytes=20971520"},
        {
            "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG": "kMaxSplitSizeBytes=33554432",
            "PYTORCH_ALLOC_CONF": "max_split_size_mb:100,max_non_split_rounding_mb:20",
        },
    ],
)
def test_blocks_kept_whole(run_python: Run, env: dict[str, str]) -> None:
    assert run_python(KEPT_WHOLE, env).stdout.strip() == "ok"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kMaxSplit=3", "there is no option 'kMaxSplit'. It takes kMaxSplitSizeBytes=<bytes> and kMaxNonSplitRounding"),
        ("kMaxSplitSizeBytes=many", "kMaxSplitSizeBytes takes a number of bytes, but got 'many'"),
        ("kMaxSplitSizeBytes", "kMaxSplitSizeBytes takes a number of bytes, but got ''"),
        ("kMaxSplitSizeBytes=5", "has to be at least 1048576"),
    ],
)
def test_wrong_segment_config(run_python: Run, text: str, message: str) -> None:
    code = TAKE + "try: take(4 * MIB)\nexcept ValueError as error: print(error)"
    done = run_python(code, {"TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG": text})
    assert f"TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG={text} is not valid" in done.stdout
    assert message in done.stdout


def test_rounding_to_divisions_of_powers_of_two(run_python: Run) -> None:
    code = TAKE + "t = take(5 * MIB + 1); print(torch.neuron.memory_allocated())"
    assert run_python(code, {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4"}).stdout.strip() == str(6 << 20)
    assert run_python(code, {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[2:8,>:1]"}).stdout.strip() == str(
        (5 << 20) + 512
    )


def test_garbage_collection_threshold(run_python: Run) -> None:
    code = (
        TAKE
        + """
torch.neuron.set_per_process_memory_fraction(100 * MIB / (24 << 30))
kept = [take(20 * MIB) for _ in range(3)]
del kept[0]
a = take(2 * MIB); b = take(30 * MIB)
s = stats()
print(s["num_device_free"] > 0, s["num_alloc_retries"], s["reserved_bytes.all.current"] <= 80 * MIB)
"""
    )
    env = {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.8"}
    assert run_python(code, env).stdout.split() == ["True", "0", "True"]
    assert run_python(code).stdout.split() == ["False", "0", "False"], "without it the cache stays"


def test_a_host_that_cannot_back_the_memory(run_python: Run) -> None:
    """The device has room, the host does not: an error that says so and that the program can catch."""
    code = (
        TAKE
        + """
t = []
for i in range(64):  # 1.4 TiB in all
    try: t.append(torch.empty(23 << 30, dtype=torch.uint8, device=f"neuron:{i}"))
    except torch.OutOfMemoryError as error:
        print(error); break
small = take(1000)
small.fill_(7)
print("goes on", small[5].item(), torch.neuron.memory_stats(i)["num_ooms"])
"""
    )
    env = {"TORCH_NEURONX_HOST_MEMORY_CHECK": "1", "TORCH_NEURONX_INSTANCE_TYPE": "trn2.48xlarge"}
    text = run_python(code, env).stdout
    assert re.search(
        r"NEURON host out of memory.*23\.00 GiB more were asked for, but this host has only .* available", text
    )
    for remedy in ("smaller model or batch", "NEURON_RT_NUM_CORES", "TORCH_NEURONX_HOST_MEMORY_CHECK=0"):
        assert remedy in text
    assert "goes on 7 1" in text


def test_the_check_can_be_turned_off(run_python: Run) -> None:
    code = """
import torch
print(len([torch.empty(23 << 30, dtype=torch.uint8, device=f"neuron:{i}") for i in range(4)]))
"""
    done = run_python(code, {"TORCH_NEURONX_HOST_MEMORY_CHECK": "0"}, check=False)
    # Untouched memory costs nothing, so this works unless the host forbids overcommitting.
    assert done.stdout.strip() == "4" or "The host refused" in done.stderr


DEBUG = {"TORCH_NEURONX_DEBUG_MEMORY": "1"}


def test_debug_mode_traps_stray_accesses(run_python: Run) -> None:
    code = (
        TAKE
        + "import ctypes\nt = torch.ones(8, device='neuron')\nprint(ctypes.c_float.from_address(t.data_ptr()).value)"
    )
    done = run_python(code, DEBUG, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert run_python(code).stdout.strip() == "1.0", "without the mode the same access works by luck"


def test_debug_mode_lets_kernels_work(run_python: Run) -> None:
    code = """
import torch, threading
def work(n):
    for _ in range(30):
        x = torch.randn(64, 64).to("neuron").requires_grad_()
        loss = torch.nn.functional.gelu(x @ x).sum()
        loss.backward()
        assert x.grad.cpu().isfinite().all() and loss.item() == loss.item()
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
x = torch.arange(10.0, device="neuron"); x[::2].add_(1); print(x.tolist())
"""
    done = run_python(code, DEBUG)
    assert done.stdout.strip() == str([1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0, 9.0, 9.0])


def test_flags_are_checked(run_python: Run) -> None:
    for name in ("TORCH_NEURONX_DEBUG_MEMORY", "TORCH_NEURONX_HOST_MEMORY_CHECK"):
        done = run_python(TAKE + "take(5)", {name: "maybe"}, check=False)
        assert done.returncode == 1 and name in done.stderr and "maybe" in done.stderr


FORK = (
    TAKE
    + """
import os, sys
kept = torch.full((5 * MIB,), 3, dtype=torch.uint8, device="neuron")
many = [torch.ones(100, device="neuron") for _ in range(100)]
child = os.fork()
if child == 0:
    many.clear(); del kept            # frees nothing that is the parent's
    assert torch.neuron.memory_allocated() == 0 and torch.neuron.memory_stats() == {}
    try: take(5)
    except RuntimeError as error: print(error, flush=True)
    sys.stdout.flush(); os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert kept.cpu().eq(3).all() and all(t.sum().item() == 100 for t in many)
del kept; many.clear(); torch.neuron.empty_cache()
print("parent", torch.neuron.memory_reserved())
"""
)


def test_fork(run_python: Run) -> None:
    out = run_python(FORK).stdout
    assert "Cannot re-initialize NEURON in forked subprocess" in out
    assert "parent 0" in out


def test_tensors_outlive_the_interpreter(run_python: Run) -> None:
    """Objects that live until the process ends are freed after static objects are gone."""
    code = (
        TAKE
        + "import sys\nsys.modules['keep'] = [take(5), take(3 * MIB), torch.ones(5, pin_memory=True)]\nprint('end')"
    )
    assert run_python(code).stdout.strip() == "end"
