"""Where tensors lie in SBUF and PSUM: explicit addresses as given, the others first-fit over their lifetimes.

A tensor lives from its allocation to its last use. What is used in a loop that runs on the device, and allocated
outside of it, lives until the loop ends. It takes all partitions unless the memory would overflow: then tensors of up
to 64 partitions share bytes with others, in different partitions. A PSUM tensor that fits into one bank does not cross
into the next; a larger one begins at a bank.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import ir
from .dtypes import DTYPES
from .errors import NkiCapacityError
from .target import Target

_SHOWN = 6  # tensors that the message about a full memory lists


def accesses(instruction: ir.Instruction) -> Iterable[ir.Access]:
    """All access patterns of an instruction, and those that their addresses are read from."""
    pending = [op for op in instruction.operands.values() if isinstance(op, ir.Access)]
    while pending:
        access = pending.pop()
        yield access
        if access.rows is not None:
            pending.append(access.rows)
        pending += [part.source for part in access.dynamic if isinstance(part.source, ir.Access)]


def _lifetimes(instructions: list[ir.Instruction]) -> dict[int, tuple[int, int]]:
    """First and last place of each tensor."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    clock = 0

    def visit(items: list[ir.Instruction]) -> set[int]:
        nonlocal clock
        used: set[int] = set()
        for item in items:
            clock += 1
            if item.opcode == "alloc":
                first[item.attributes["tensor"]] = last[item.attributes["tensor"]] = clock
            numbers = {access.tensor for access in accesses(item)}
            if item.body is not None:
                begin = clock
                numbers |= {n for n in visit(item.body) if first.get(n, 0) <= begin}
                clock += 1
            for number in numbers:
                last[number] = clock
            used |= numbers
        return used

    visit(instructions)
    return {number: (start, last[number]) for number, start in first.items()}


def _bytes(tensor: ir.Tensor) -> int:
    """Bytes of a partition that a tensor takes; those that are placed here begin at multiples of 4."""
    size = tensor.free_elements * DTYPES[tensor.dtype].itemsize
    return size if tensor.address is not None else -(-size // 4) * 4


def _place(size: int, taken: list[tuple[int, int]], bank: int | None) -> int:
    """The lowest start of `size` bytes beside the sorted (start, end) pairs; with `bank` under PSUM's rule."""
    at = 0
    for start, end in [*taken, (1 << 62, 1 << 62)]:
        if bank is not None and (size > bank or at // bank != (at + size - 1) // bank):
            at = -(-at // bank) * bank
        if at + size <= start:
            return at
        at = max(at, -(-end // 4) * 4)
    raise AssertionError("unreachable")


def _intervals(holders: list[ir.Tensor]) -> list[tuple[int, int]]:
    """The bytes that tensors take, as sorted (start, end)."""
    return sorted((other.address or 0, (other.address or 0) + _bytes(other)) for other in holders)


def _beside(tensor: ir.Tensor, size: int, holders: list[ir.Tensor], bank: int | None, limit: int) -> int:
    """The start of a tensor in partitions that others leave free, and sets its partition; `limit` when there is none.

    Instructions start at partition 0 or 64 with up to 64 partitions, and at multiples of 32 with up to 32.
    """
    rows = tensor.shape[0]
    starts = (0, 32, 64, 96) if rows <= 32 else (0, 64) if rows <= 64 else (0,)
    best = limit
    for start in starts:
        there = [
            other for other in holders if start < other.partition + other.shape[0] and other.partition < start + rows
        ]
        at = _place(size, _intervals(there), bank)
        if at + size <= limit and at < best:
            best, tensor.partition = at, start
    return best


def _lay_out(program: ir.Program, core: int, buffer: str, limit: int, bank: int | None) -> int:
    """Addresses of one memory of one core; returns the highest byte in use."""
    lives = _lifetimes(program.cores[core])
    mine = [program.tensors[n] for n in sorted(lives, key=lambda n: lives[n][0])]
    mine = [tensor for tensor in mine if tensor.buffer == buffer]
    explicit = [tensor for tensor in mine if tensor.address is not None]
    peak = 0
    for position, tensor in enumerate(explicit):
        assert tensor.address is not None
        peak = max(peak, tensor.address + _bytes(tensor))
        # What lay there before stays readable, as on the chip: only the first owner finds uninitialised memory.
        tensor.fill = not any(_overlap(tensor, before) for before in explicit[:position])
    alive: list[ir.Tensor] = []
    for tensor in mine:
        if tensor.address is not None:
            continue
        start, end = lives[tensor.number]
        alive = [other for other in alive if lives[other.number][1] > start]
        pinned = [other for other in explicit if lives[other.number][0] <= end and lives[other.number][1] >= start]
        holders = alive + pinned
        size = _bytes(tensor)
        at = _place(size, _intervals(holders), bank)
        if at + size > limit:
            at = _beside(tensor, size, holders, bank, limit)
        if at + size > limit:
            raise _full(program, tensor, size, holders, buffer, limit)
        tensor.address = at
        peak = max(peak, at + size)
        alive.append(tensor)
    return peak


def _overlap(a: ir.Tensor, b: ir.Tensor) -> bool:
    assert a.address is not None and b.address is not None
    rows = a.partition < b.partition + b.shape[0] and b.partition < a.partition + a.shape[0]
    return rows and a.address < b.address + _bytes(b) and b.address < a.address + _bytes(a)


def _full(
    program: ir.Program, tensor: ir.Tensor, size: int, holders: list[ir.Tensor], buffer: str, limit: int
) -> NkiCapacityError:
    held = sorted(holders, key=_bytes, reverse=True)
    lines = [
        f"  {_bytes(other):>8} bytes: {other.name} {list(other.shape)} {other.dtype} ({other.location})"
        for other in held[:_SHOWN]
    ]
    if len(held) > _SHOWN:
        rest = sum(map(_bytes, held[_SHOWN:]))
        lines.append(f"  {rest:>8} bytes: {len(held) - _SHOWN} more")
    return NkiCapacityError(
        f"{buffer.upper()} is full: {tensor.name!r} {list(tensor.shape)} {tensor.dtype} needs {size} bytes of a "
        f"partition, {sum(map(_bytes, holders))} of {limit} are in use by tensors that are still needed:\n"
        + "\n".join(lines)
        + "\n",
        instruction="ndarray",
        location=tensor.location,
    )


def lay_out(program: ir.Program, target: Target) -> None:
    """Sets the address of each on-chip tensor. NkiCapacityError, with who holds what, when a memory is too small."""
    for core in range(len(program.cores)):
        sbuf = _lay_out(program, core, "sbuf", target.sbuf_bytes, None)
        psum = _lay_out(program, core, "psum", target.psum_bytes, target.psum_bank_bytes)
        program.sbuf_peak, program.psum_peak = max(program.sbuf_peak, sbuf), max(program.psum_peak, psum)
