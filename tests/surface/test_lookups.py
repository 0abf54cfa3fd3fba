"""What PyTorch and the libraries around it look up by name on torch.neuron, used the way they use it.

Each row is run twice: as it is, and with the attribute hidden, when the use must fail or notice. The second run shows
that the row really depends on the attribute, so a row cannot pass without the function it is there for.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.run import determine_local_world_size
from torch.utils.checkpoint import checkpoint


def available_device_type() -> bool:  # TorchTitan; torch._utils
    return torch._utils._get_available_device_type() == "neuron"


def fork_rng() -> bool:  # torch.random, DTensor
    before = torch.neuron.get_rng_state()
    with torch.random.fork_rng(device_type="neuron"):
        torch.rand(8, device="neuron")
    return torch.equal(torch.neuron.get_rng_state(), before)


def seeded_by_torch() -> bool:  # torch.manual_seed; Trainer's set_seed relies on it
    torch.manual_seed(123)
    return torch.neuron.initial_seed() == 123


def all_states() -> bool:  # accelerate save_state and load_state
    states = torch.neuron.get_rng_state_all()
    first = torch.rand(4, device="neuron")
    torch.neuron.set_rng_state_all(states)
    return len(states) == torch.neuron.device_count() and torch.equal(torch.rand(4, device="neuron"), first)


def fake_tensor() -> bool:  # torch.compile, torch.export, DTensor
    with torch.accelerator.device_index(1), FakeTensorMode() as mode:
        fake = FakeTensor(mode, torch.empty(2, device="meta"), torch.device("neuron"))
    return fake.device == torch.device("neuron:1")


def trainer_device() -> bool:  # Trainer
    torch.neuron.set_device(torch.device("neuron:0"))
    return torch.accelerator.current_device_index() == 0


def accelerate_device() -> bool:  # accelerate, FSDP2, Diffusers
    return torch.empty(1, device=torch.device("neuron", torch.neuron.current_device())).is_neuron


def autocast() -> bool:  # torch.autocast
    with torch.autocast("neuron", dtype=torch.bfloat16):
        return torch.is_autocast_enabled("neuron")


def bf16_allowed() -> bool:  # TrainingArguments(bf16=True)
    return torch.neuron.is_bf16_supported() is True


def properties() -> bool:  # TRL passes an index and reads .name; TorchTitan passes nothing and reads .total_memory
    by_index, current = torch.neuron.get_device_properties(0), torch.neuron.get_device_properties()
    return by_index.name == current.name == "trn2" and current.total_memory == 24 << 30


def name_with_neuron() -> bool:  # TorchTitan chooses its peak-FLOPS branch by it
    return torch.neuron.get_device_name() == "neuron:0" and torch.neuron.get_device_name(1) == "neuron:1"


def metrics() -> bool:  # TorchTitan
    stats = torch.neuron.memory_stats(torch.device("neuron:0"))
    return all(key in stats for key in ("active_bytes.all.peak", "reserved_bytes.all.peak", "num_ooms"))


def free_memory() -> bool:  # accelerate, after each training
    return torch.neuron.empty_cache() is None


def memory_counters() -> bool:  # accelerate, Diffusers
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    held = torch.empty(1 << 20, device="neuron")
    grown = torch.neuron.memory_allocated() - before
    del held
    return grown >= 4 << 20 and torch.neuron.max_memory_allocated() >= before + grown


def memory_info() -> bool:  # Diffusers
    free, total = torch.neuron.mem_get_info(0)
    return 0 < free <= total == 24 << 30


def stream_discipline() -> bool:  # FSDP2: compute waits for a copy on a stream of high priority
    copy = torch.neuron.Stream(priority=-1)
    with torch.neuron.stream(copy):
        tensor = torch.ones(4, device="neuron")
        event = torch.neuron.Event()
        event.record()
    torch.neuron.current_stream().wait_event(event)
    return tensor.sum().item() == 4 and torch.neuron.current_stream() == torch.neuron.default_stream()


def offload_stream() -> bool:  # TRL's activation offloading
    side, main = torch.neuron.Stream(), torch.neuron.current_stream()
    torch.neuron.set_stream(side)
    on_side = torch.neuron.current_stream() == side
    torch.neuron.set_stream(main)
    return on_side and torch.neuron.current_stream() == main


def synchronize() -> bool:  # TorchTitan, Diffusers
    return torch.neuron.synchronize() is None and torch.neuron.synchronize(torch.device("neuron:0")) is None


def device_context() -> bool:  # torch.load, data-parallel code
    with torch.neuron.device(1):
        return torch.empty(1, device="neuron").device.index == 1


def load_elsewhere() -> bool:  # torch.load
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    try:
        torch.load(file, map_location="neuron:99")
    except RuntimeError as error:
        return "device 99 but torch.neuron.device_count() is 4" in str(error)
    return False


def torchrun() -> bool:  # torchrun --nproc-per-node=neuron
    return determine_local_world_size("neuron") == 4


def dropout_in_checkpoint() -> bool:  # torch.utils.checkpoint recomputes the forward pass with the same numbers
    seen = []

    def block(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.rand(16, device="neuron"))
        return x * seen[-1]

    checkpoint(block, torch.ones(16, device="neuron", requires_grad=True), use_reentrant=False).sum().backward()
    return len(seen) == 2 and torch.equal(seen[0], seen[1])


def graph_generators() -> bool:  # AOTAutograd
    index = torch.neuron.current_device()
    return torch.neuron.default_generators[index].device == torch.device("neuron", index)


def one_generator() -> bool:
    return torch.neuron._get_generator(torch.device("neuron:1")).device == torch.device("neuron:1")


def exchange() -> bool:  # torch.utils.data, device guards in Python
    previous = torch.neuron._exchange_device(1)
    now = torch.accelerator.current_device_index()
    return torch.neuron._maybe_exchange_device(previous) == now == 1


ROWS: list[tuple[str, Callable[[], bool]]] = [
    ("is_available", available_device_type),
    ("device_count", fork_rng),
    ("get_rng_state", fork_rng),
    ("set_rng_state", fork_rng),
    ("manual_seed_all", seeded_by_torch),
    ("_is_in_bad_fork", seeded_by_torch),
    ("get_rng_state_all", all_states),
    ("set_rng_state_all", all_states),
    ("is_initialized", fake_tensor),
    ("current_device", fake_tensor),
    ("current_device", accelerate_device),
    ("set_device", trainer_device),
    ("get_amp_supported_dtype", autocast),
    ("is_bf16_supported", bf16_allowed),
    ("get_device_properties", properties),
    ("get_device_name", name_with_neuron),
    ("memory_stats", metrics),
    ("empty_cache", free_memory),
    ("memory_allocated", memory_counters),
    ("max_memory_allocated", memory_counters),
    ("reset_peak_memory_stats", memory_counters),
    ("mem_get_info", memory_info),
    ("Stream", stream_discipline),
    ("Event", stream_discipline),
    ("stream", stream_discipline),
    ("current_stream", stream_discipline),
    ("default_stream", stream_discipline),
    ("set_stream", offload_stream),
    ("synchronize", synchronize),
    ("device", device_context),
    ("device_count", load_elsewhere),
    ("device_count", torchrun),
    ("is_available", torchrun),
    ("default_generators", graph_generators),
    ("_initialized", dropout_in_checkpoint),
    ("_get_generator", one_generator),
    ("_exchange_device", exchange),
    ("_maybe_exchange_device", exchange),
]


@pytest.mark.parametrize(("name", "use"), ROWS, ids=[f"{name}-{use.__name__}" for name, use in ROWS])
def test_use(name: str, use: Callable[[], bool]) -> None:
    assert hasattr(torch.neuron, name)
    assert use()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "use"), ROWS, ids=[f"{name}-{use.__name__}" for name, use in ROWS])
def test_hidden(name: str, use: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.rand(1, device="neuron")
    if name in vars(torch.neuron):
        monkeypatch.delattr(torch.neuron, name)
    else:  # a value that the module computes when it is asked
        monkeypatch.delattr(torch.neuron, "__getattr__")
    try:
        worked = use()
    except Exception:
        worked = False
    assert not worked
