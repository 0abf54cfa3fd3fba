"""Devices: how they are named, chosen and described."""

from __future__ import annotations

import threading

import pytest
import torch

import torch_neuronx

COUNT = 4  # logical cores of the default instance, trn2.3xlarge at LNC 2


def test_both_spellings_give_the_same_object() -> None:
    assert torch_neuronx.neuron is torch.neuron
    for name in torch.neuron.__all__:
        if name != "default_generators":  # made anew at each access
            assert getattr(torch_neuronx, name) is getattr(torch.neuron, name), name
    with pytest.raises(AttributeError, match="module 'torch_neuronx' has no attribute 'nonsense'"):
        torch_neuronx.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="module 'torch.neuron' has no attribute 'nonsense'"):
        torch.neuron.nonsense  # noqa: B018


def test_submodules_are_not_imported_twice() -> None:
    import torch.neuron.memory
    import torch.neuron.random

    import torch_neuronx.neuron.memory

    assert torch.neuron.memory is torch_neuronx.neuron.memory
    assert torch.neuron.random is torch_neuronx.neuron.random


def test_all_names_exist_and_are_documented() -> None:
    assert len(set(torch.neuron.__all__)) == len(torch.neuron.__all__)
    for name in torch.neuron.__all__:
        value = getattr(torch.neuron, name)
        if callable(value):
            assert value.__doc__, f"torch.neuron.{name} has no docstring"
    assert set(torch.neuron.__all__) <= set(dir(torch.neuron))
    assert set(torch.neuron.__all__) <= set(dir(torch_neuronx))


def test_count_and_accelerator_agree() -> None:
    assert torch.neuron.is_available()
    assert torch.neuron.device_count() == torch.accelerator.device_count() == COUNT
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch._C._get_privateuse1_backend_name() == "neuron"
    assert torch.get_device_module("neuron") is torch.neuron


@pytest.mark.parametrize("device", [2, "neuron:2", torch.device("neuron:2"), torch.device("neuron", 2)])
def test_set_device(device: object) -> None:
    torch.neuron.set_device(device)
    assert torch.neuron.current_device() == torch.accelerator.current_device_index() == 2
    assert torch.empty(1, device="neuron").device == torch.device("neuron:2")
    assert torch.empty(1, device=2).device == torch.device("neuron:2")  # an integer is an accelerator index


def test_set_device_negative_does_nothing() -> None:
    torch.neuron.set_device(1)
    torch.neuron.set_device(-1)
    assert torch.neuron.current_device() == 1


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        (COUNT, RuntimeError, "invalid device ordinal"),
        ("neuron:77", RuntimeError, "invalid device ordinal"),
        ("cpu", ValueError, "Expected a neuron device, but got: cpu"),
        (True, ValueError, "Expected a neuron device, but got: True"),
        ("neuron", ValueError, "Expected a torch.device with a specified index"),
        (None, ValueError, "Expected a torch.device with a specified index"),
        ("nonsense", RuntimeError, "nonsense"),
        (1.5, (TypeError, RuntimeError), "float"),
    ],
)
def test_set_device_errors(device: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        torch.neuron.set_device(device)
    assert torch.neuron.current_device() == 0


@pytest.mark.parametrize("use", ["empty", "get_device_properties", "get_device_name", "synchronize", "current_stream"])
def test_ordinal_beyond_the_last_device(use: str) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        if use == "empty":
            torch.empty(1, device=f"neuron:{COUNT}")
        else:
            getattr(torch.neuron, use)(COUNT)


def test_device_context_restores_also_after_an_error() -> None:
    with torch.neuron.device("neuron:1"):
        assert torch.neuron.current_device() == 1
        with pytest.raises(KeyError), torch.neuron.device(3):
            assert torch.neuron.current_device() == 3
            raise KeyError
        with torch.neuron.device(-1):
            assert torch.neuron.current_device() == 1
        with torch.neuron.device(None):
            assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_device_of() -> None:
    tensor = torch.empty(1, device="neuron:2")
    for obj in (tensor, tensor.untyped_storage(), tensor.storage()):
        with torch.neuron.device_of(obj):
            assert torch.neuron.current_device() == 2
    with torch.neuron.device_of(torch.empty(1)):
        assert torch.neuron.current_device() == 0


def test_current_device_belongs_to_the_thread() -> None:
    torch.neuron.set_device(3)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert torch.neuron.current_device() == 3


LOCAL_RANK_PROGRAM = """
import threading, torch
here = torch.empty(1, device="neuron").device.index
there = []
thread = threading.Thread(target=lambda: there.append(torch.empty(1).to("neuron").device.index))
thread.start(); thread.join()
print(torch.neuron.device_count(), torch.neuron.current_device(), here, there[0])
"""


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LOCAL_RANK": "3"}, "4 3 3 3"),  # accelerate never calls set_device
        ({"LOCAL_RANK": "6"}, "4 2 2 2"),
        ({"LOCAL_RANK": "3", "NEURON_RT_VISIBLE_CORES": "2"}, "1 0 0 0"),  # one core per process
        ({"LOCAL_RANK": None}, "4 0 0 0"),
        ({"NEURON_RT_VISIBLE_CORES": "1-3", "LOCAL_RANK": None}, "3 0 0 0"),
        ({"NEURON_RT_NUM_CORES": "2", "LOCAL_RANK": None}, "2 0 0 0"),
        ({"NEURON_LOGICAL_NC_CONFIG": "1", "LOCAL_RANK": None}, "8 0 0 0"),
    ],
)
def test_environment_chooses_devices(env: dict[str, str | None], expected: str, run_python) -> None:
    assert run_python(LOCAL_RANK_PROGRAM, env=env).stdout.strip() == expected


def test_properties() -> None:
    properties = torch.neuron.get_device_properties("neuron:1")
    assert properties == torch.neuron.get_device_properties(torch.device("neuron:1"))
    assert properties.name == "trn2"
    assert properties.total_memory == 24 << 30  # bytes: 96 GiB of HBM a chip, 4 logical cores
    assert properties.multi_processor_count == properties.lnc == 2
    assert properties.instance_type == "trn2.3xlarge"
    assert properties.core == 1
    assert properties.sbuf_bytes == 28 << 20  # bytes of SBUF of one NeuronCore-v3
    assert properties.psum_bytes == 2 << 20
    assert torch.neuron.get_device_capability(1) == (3, 0)
    assert "trn2" in repr(properties)


def test_peers() -> None:
    assert torch.neuron.can_device_access_peer(0, 1)
    assert not torch.neuron.can_device_access_peer(1, 1)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.neuron.can_device_access_peer(0, COUNT)


def test_bf16_and_ipc() -> None:
    assert torch.neuron.is_bf16_supported()
    assert torch.neuron.is_bf16_supported(including_emulation=False)
    assert torch.neuron.ipc_collect() is None


def test_wrong_environment_is_named(run_python) -> None:
    program = """
import torch, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert not torch.neuron.is_available()
assert "NEURON_RT_VISIBLE_CORES" in str(caught[0].message), caught[0].message
try:
    torch.neuron.device_count()
except ValueError as error:
    print(error)
"""
    assert "NEURON_RT_VISIBLE_CORES" in run_python(program, env={"NEURON_RT_VISIBLE_CORES": "0-99"}).stdout


def test_methods_of_tensors_modules_and_storages() -> None:
    tensor = torch.arange(3.0)
    moved = tensor.neuron()
    assert moved.is_neuron and not tensor.is_neuron
    assert tensor.neuron(1).device == torch.device("neuron:1")
    assert torch.nn.Linear(2, 2).neuron().weight.is_neuron
    assert tensor.untyped_storage().neuron().is_neuron
    assert torch.equal(moved.cpu(), tensor)
    packed = torch.nn.utils.rnn.pack_sequence([tensor, tensor[:2]])
    assert packed.neuron().is_neuron and not packed.is_neuron


def test_calls_wait_for_initialisation(run_python) -> None:
    program = """
import torch
seen = []
torch.neuron._lazy_call(lambda: seen.append("queued"))
assert not torch.neuron.is_initialized() and not torch.neuron._initialized and seen == []
torch.neuron.init()
torch.neuron.init()
assert torch.neuron.is_initialized() and torch.neuron._initialized and seen == ["queued"]
torch.neuron._lazy_call(lambda: seen.append("at once"))
print(seen)
"""
    assert run_python(program).stdout.strip() == "['queued', 'at once']"


def test_first_tensor_runs_what_waits(run_python) -> None:
    program = """
import torch
seen = []
torch.neuron._lazy_call(lambda: seen.append("queued"))
torch.empty(1, device="neuron")  # PyTorch's C++ code calls torch.neuron._lazy_init
print(seen)
"""
    assert run_python(program).stdout.strip() == "['queued']"


def test_device_mesh_without_process_group_of_its_own(run_python) -> None:
    program = """
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
mesh = dist.device_mesh.init_device_mesh("neuron", (2,))
print(mesh.device_type, torch.neuron.current_device())
dist.destroy_process_group()
"""
    assert run_python(program, env={"LOCAL_RANK": None}).stdout.strip() == "neuron 0"


def test_fork(run_python) -> None:
    program = """
import os, torch
torch.empty(1, device="neuron")
assert not torch.neuron._is_in_bad_fork()
child = os.fork()
if child == 0:
    code = 1
    try:
        assert torch.neuron._is_in_bad_fork()
        assert not torch.neuron.is_initialized()
        torch.manual_seed(1)  # allowed: it leaves the device alone
        for use in (lambda: torch.empty(1, device="neuron"), torch.neuron.seed, torch.neuron.init):
            try:
                use()
            except RuntimeError as error:
                assert "spawn" in str(error), error
            else:
                raise AssertionError("no error in the child")
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("ok")
"""
    assert run_python(program).stdout.strip() == "ok"


def test_fork_before_use_is_fine(run_python) -> None:
    program = """
import os, torch
child = os.fork()
if child == 0:
    os._exit(0 if torch.ones(2, device="neuron").sum().item() == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(torch.ones(2, device="neuron").sum().item())
"""
    assert run_python(program).stdout.strip() == "2.0"
