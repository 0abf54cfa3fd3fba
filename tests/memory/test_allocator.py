"""How the caching allocator of device memory behaves."""

from __future__ import annotations

import random
import threading

import pytest
import torch

from .helpers import GIB, MIB, busy, consistent, limit, take


def pointer(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_sizes_are_rounded_and_aligned(device: torch.device) -> None:
    kept = []
    for size, rounded in (
        (1, 512),
        (512, 512),
        (513, 1024),
        (MIB, MIB),
        (MIB + 1, MIB + 512),
        (3 * MIB + 5, 3 * MIB + 512),
    ):
        before = torch.neuron.memory_allocated(device)
        kept.append(take(size, device))
        assert torch.neuron.memory_allocated(device) - before == rounded
        assert pointer(kept[-1]) % 512 == 0
        consistent(device)
    requested = torch.neuron.memory_stats(device)["requested_bytes.all.allocated"]
    assert requested == 1 + 512 + 513 + MIB + MIB + 1 + 3 * MIB + 5


def test_empty_tensor_takes_no_memory(device: torch.device) -> None:
    tensor = take(0, device)
    assert tensor.device == device and pointer(tensor) == 0
    assert torch.neuron.memory_stats(device)["allocation.all.allocated"] == 0


@pytest.mark.parametrize("size", [600, 300_000, 5 * MIB])
def test_freed_memory_is_reused(device: torch.device, size: int) -> None:
    first = take(size, device)
    address = pointer(first)
    del first
    reserved = torch.neuron.memory_reserved(device)
    second = take(size, device)
    assert pointer(second) == address
    assert torch.neuron.memory_reserved(device) == reserved


def test_pools_split_at_one_mebibyte(device: torch.device) -> None:
    tensors = [take(MIB - 512, device), take(MIB, device)]
    stats = torch.neuron.memory_stats(device)
    assert stats["allocated_bytes.small_pool.current"] == MIB - 512
    assert stats["allocated_bytes.large_pool.current"] == MIB
    assert stats["reserved_bytes.small_pool.current"] == stats["reserved_bytes.large_pool.current"] == 2 * MIB
    del tensors


def test_free_neighbours_join(device: torch.device) -> None:
    parts = [take(4 * MIB, device) for _ in range(4)]
    address = pointer(parts[0])
    del parts
    whole = take(16 * MIB, device)
    assert pointer(whole) == address
    assert torch.neuron.memory_reserved(device) == 16 * MIB


def test_a_segment_grows_in_place(device: torch.device) -> None:
    """One more page is mapped where the free block ends, instead of a second segment beside it."""
    first = take(10 * MIB, device)
    address = pointer(first)
    del first
    second = take(12 * MIB, device)
    assert pointer(second) == address
    assert torch.neuron.memory_reserved(device) == 12 * MIB
    assert torch.neuron.memory_stats(device)["segment.large_pool.current"] == 1


def test_alternating_sizes_do_not_fragment(small: torch.device) -> None:
    """Each round leaves holes of one size and then asks for a larger one, up to nearly all of the memory."""
    random.seed(0)
    for _ in range(60):
        size = random.randrange(2, 30) * MIB
        tensors = [take(size, small) for _ in range(90 * MIB // size)]
        holes = tensors[::2]
        del tensors  # every second tensor is free now
        left = 96 * MIB - sum(t.numel() for t in holes)
        # The holes are smaller than this request and far apart; their pages have to be given back for it.
        big = take(left - 2 * MIB, small)
        consistent(small)
        del holes, big
    whole = take(96 * MIB, small)
    assert torch.neuron.memory_stats(small)["num_ooms"] == 0
    assert whole.numel() == torch.neuron.memory_reserved(small)


@pytest.mark.parametrize("size", [MIB + 5_000, 1_700_000, 2_500_000, 3 * MIB + 1])
def test_holes_serve_larger_requests(small: torch.device, size: int) -> None:
    """Blocks that do not end on pages lose less than a page of 64 KiB at either end of a hole, not the whole hole."""
    tensors = [take(size, small) for _ in range(96 * MIB // (size + 512))]
    del tensors[::2]
    free = 96 * MIB - torch.neuron.memory_allocated(small)
    larger = [take(5 * size // 2, small) for _ in range(int(free * 0.85) // (5 * size // 2))]
    assert len(larger) >= 5 and torch.neuron.memory_stats(small)["num_ooms"] == 0
    consistent(small)


def test_small_and_large_tensors_share_the_memory(small: torch.device) -> None:
    """What small tensors leave behind serves large ones, and the other way round."""
    for _ in range(3):
        many = [take(500_000, small) for _ in range(150)]
        del many
        whole = take(96 * MIB, small)
        del whole
    assert torch.neuron.memory_stats(small)["num_ooms"] == 0


def test_random_programs_keep_the_books(small: torch.device) -> None:
    random.seed(1)
    streams = [torch.neuron.Stream(small) for _ in range(2)] + [torch.neuron.default_stream(small)]
    live: list[torch.Tensor] = []
    for step in range(3000):
        with torch.neuron.stream(random.choice(streams)):
            if random.random() < 0.55 or not live:
                size = random.choice((300, 5_000, 300_000, 2 * MIB, 9 * MIB)) + random.randrange(300)
                try:
                    live.append(take(size, small))
                except torch.OutOfMemoryError:
                    live = random.sample(live, len(live) // 2)
            else:
                tensor = live.pop(random.randrange(len(live)))
                if random.random() < 0.3:
                    tensor.record_stream(random.choice(streams))
                del tensor
        if step % 100 == 0:
            consistent(small)
    live.clear()
    torch.neuron.empty_cache()  # waits for the streams first, as in CUDA
    consistent(small)
    assert torch.neuron.memory_reserved(small) == 0
    assert torch.neuron.memory_stats(small)["num_ooms"] > 0, "the program was meant to run out now and then"


def test_contents_survive_their_neighbours(device: torch.device) -> None:
    torch.manual_seed(0)
    kept = []
    for i in range(200):
        tensor = torch.full((1000 + 37 * i,), float(i), device=device)
        if i % 3 == 0:
            kept.append((i, tensor))
        del tensor
    torch.neuron.empty_cache()
    for i, tensor in kept:
        assert tensor.cpu().eq(float(i)).all()


# --- streams ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [4096, 4 * MIB])
def test_a_block_belongs_to_its_stream(device: torch.device, size: int) -> None:
    side = torch.neuron.Stream(device)
    first = take(size, device)
    address = pointer(first)
    del first
    with torch.neuron.stream(side):
        assert pointer(take(size, device)) != address
    assert pointer(take(size, device)) == address


@pytest.mark.parametrize("size", [4096, 4 * MIB])
def test_record_stream_defers_reuse(device: torch.device, size: int) -> None:
    side = torch.neuron.Stream(device)
    with torch.neuron.device(device):
        tensor = take(size, device)
        address = pointer(tensor)
        with torch.neuron.stream(side):
            busy(device)
        tensor.record_stream(side)
        active = torch.neuron.memory_stats(device)["active_bytes.all.current"]
        allocated = torch.neuron.memory_allocated(device)
        del tensor
        assert torch.neuron.memory_allocated(device) < allocated
        assert torch.neuron.memory_stats(device)["active_bytes.all.current"] == active, "freed, but not yet reusable"
        states = [b["state"] for s in torch.neuron.memory_snapshot() for b in s["blocks"] if b["address"] == address]
        assert states == ["active_pending_free"]
        other = take(size, device)
        assert pointer(other) != address
        side.synchronize()
        assert pointer(take(size, device)) == address


def test_record_stream_on_its_own_stream_defers_nothing(device: torch.device) -> None:
    tensor = take(4096, device)
    address = pointer(tensor)
    with torch.neuron.device(device):
        busy(device)
        tensor.record_stream(torch.neuron.current_stream())
    del tensor
    assert pointer(take(4096, device)) == address


def test_running_out_waits_for_streams(small: torch.device) -> None:
    side = torch.neuron.Stream(small)
    tensor = take(60 * MIB, small)
    with torch.neuron.device(small), torch.neuron.stream(side):
        busy(small)
    tensor.record_stream(side)
    del tensor
    take(60 * MIB, small)  # fits only after the side stream is done
    stats = torch.neuron.memory_stats(small)
    assert stats["num_sync_all_streams"] == 1 and stats["num_alloc_retries"] == 1 and stats["num_ooms"] == 0


# --- running out ------------------------------------------------------------------------------------------------------
def test_out_of_memory_says_who_holds_what(small: torch.device) -> None:
    held = [torch.ones(5 * MIB, dtype=torch.uint8, device=small) + 1 for _ in range(3)]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        take(90 * MIB, small)
    message = str(caught.value)
    for part in (
        f"NEURON out of memory. Tried to allocate 90.00 MiB. {small} has a total capacity of 24.00 GiB of which ",
        " is free. 96.00 MiB allowed; ",
        "Of the allocated memory 15.00 MiB is allocated by PyTorch, and ",
        " is reserved by PyTorch but unallocated.",
        "Largest holders: 3 x 5.00 MiB from aten::add",
        "Use a smaller batch",
        "set_per_process_memory_fraction",
    ):
        assert part in message, message
    stats = torch.neuron.memory_stats(small)
    assert stats["num_ooms"] == 1
    consistent(small)
    assert all(t[0].item() == 2 for t in held), "what was there is still good"
    held.clear()
    assert take(90 * MIB, small).numel() == 90 * MIB, "the program goes on"


def test_beyond_the_device(device: torch.device) -> None:
    cache = take(8 * MIB, device)
    del cache
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 30\.00 GiB.*24\.00 GiB of which"):
        take(30 * GIB, device)
    assert torch.neuron.memory_reserved(device) == 8 * MIB, "no use giving the cache back for that"
    with pytest.raises(torch.OutOfMemoryError, match="more than 1EB"):
        take(1 << 60, device)


def test_the_cache_is_given_back_before_giving_up(small: torch.device) -> None:
    tensors = [take(size * MIB, small) for size in (30, 30, 30)]
    del tensors[1]
    assert take(34 * MIB, small).numel()
    stats = torch.neuron.memory_stats(small)
    assert stats["num_alloc_retries"] == 1 and stats["num_ooms"] == 0
    assert stats["num_device_free"] == 1
    del tensors


def test_only_what_is_needed_is_given_back(small: torch.device) -> None:
    tensors = [take(size * MIB, small) for size in (40, 2, 40)]
    del tensors[0]
    take_more = take(16 * MIB, small)  # fits into the free 40
    more = take(30 * MIB, small)  # 6 MiB short of the limit
    assert torch.neuron.memory_reserved(small) > 88 * MIB
    del take_more, more


# --- limits and threads -----------------------------------------------------------------------------------------------
def test_memory_fraction(device: torch.device) -> None:
    assert torch.neuron.get_per_process_memory_fraction(device) == 1.0
    limit(device, 8 * MIB)
    assert torch.neuron.get_per_process_memory_fraction(device) == 8 * MIB / (24 * GIB)
    kept = take(8 * MIB, device)
    with pytest.raises(torch.OutOfMemoryError):
        take(1, device)
    del kept
    assert torch.neuron.get_per_process_memory_fraction("neuron:0") == 1.0, "a limit is a device's own"
    with pytest.raises(TypeError, match="must be `float`"):
        torch.neuron.set_per_process_memory_fraction(1, device)
    for wrong in (-0.1, 1.5):
        with pytest.raises(ValueError, match="Allowed range: 0~1"):
            torch.neuron.set_per_process_memory_fraction(wrong, device)


def test_threads(device: torch.device) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = random.Random(seed)
            live: list[torch.Tensor] = []
            for _ in range(400):
                tensor = torch.full((rng.randrange(1, 40_000),), float(seed), device=device)
                live.append(tensor)
                if len(live) > 20:
                    old = live.pop(rng.randrange(20))
                    assert old.cpu().eq(float(seed)).all()
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    consistent(device)
    assert torch.neuron.memory_allocated(device) == 0
    assert torch.neuron.memory_stats(device)["allocation.all.allocated"] >= 1600


def test_raw_allocations(device: torch.device) -> None:
    address = torch.neuron.caching_allocator_alloc(1000, device)
    assert torch.neuron.memory_allocated(device) == 1024
    torch.neuron.caching_allocator_delete(address)
    assert torch.neuron.memory_allocated(device) == 0
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.neuron.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.neuron.caching_allocator_delete(4096)
    with pytest.raises(TypeError, match="Invalid type for stream argument"):
        torch.neuron.caching_allocator_alloc(1000, device, stream="0")  # type: ignore[arg-type]
