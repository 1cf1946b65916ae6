"""Compiles a plan into programs: evictions first, then moves and loads, then knits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from zerolayer.core import IntArray, Plan
from zerolayer.errors import BudgetError
from zerolayer.execution.addresses import AddressSpace
from zerolayer.execution.isa import (
    CompressP2,
    EvictP3,
    Instruction,
    Knit,
    MoveP0,
    PinL2,
    Prefetch,
    Program,
    Unpin,
)
from zerolayer.execution.layout import FREE, arrange


def runs(indices: Collection[int]) -> list[tuple[int, int]]:
    """Maximal runs (first, count) of consecutive numbers, rising: one instruction covers a run."""
    ordered = np.sort(np.fromiter(indices, dtype=np.int64, count=len(indices)))
    if not len(ordered):
        return []
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(ordered, breaks)]


def compile_moves(
    plan: Plan,
    occupant: IntArray,
    in_sight: Sequence[int],
    reserve: int,
    space: AddressSpace,
    on_host: Callable[[int], bool],
) -> Program:
    """Evict, load and arrange so that the blocks `in_sight` come first and `reserve` slots behind them are free.

    `occupant` is [slots] with FREE where empty. Raises BudgetError when it does not fit.
    """
    width = space.slot_bytes
    slots = occupant.copy()
    program: list[Instruction] = []
    victims = np.flatnonzero(np.isin(slots, np.asarray(plan.evict, dtype=np.int64)))
    for first, count in runs([int(slot) for slot in victims]):
        program.append(EvictP3(space.device(first), count * width))
        slots[first : first + count] = FREE
    free = int((slots == FREE).sum())
    if len(plan.load) + reserve > free:
        raise BudgetError(
            f"{len(plan.load)} blocks to load and {reserve} slots for the tail exceed {free} free slots; "
            "evict more first, or raise the device budget"
        )
    # Blocks that will be in sight take the lowest free slots, so that few of them have to move again.
    seen = set(in_sight)
    for block in sorted(plan.load, key=lambda block: block not in seen):
        slot = int(np.flatnonzero(slots == FREE)[0])
        source = space.host(block) if on_host(block) else space.disk(block)
        program.append(MoveP0(source, space.device(slot), width))
        slots[slot] = block
    for source_slot, target in arrange(slots, in_sight, reserve):
        program.append(MoveP0(space.device(source_slot), space.device(target), width))
    return Program(tuple(program))


def compile_insert(
    block: int, slot: int, occupant: IntArray, space: AddressSpace, on_host: Callable[[int], bool]
) -> Program:
    """Put one block into a free slot, from wherever it is."""
    resident = np.flatnonzero(occupant == block)
    if len(resident):
        source = space.device(int(resident[0]))
    else:
        source = space.host(block) if on_host(block) else space.disk(block)
    return Program((MoveP0(source, space.device(slot), space.slot_bytes),))


def compile_prefetch(blocks: Collection[int], space: AddressSpace) -> Program:
    """Copy blocks from disk to host memory."""
    width = space.slot_bytes
    return Program(tuple(Prefetch(space.disk(first), count * width) for first, count in runs(blocks)))


def compile_pins(leaving: Collection[int], coming: Collection[int], space: AddressSpace) -> Program:
    """Unpin the slots `leaving`, then pin the slots `coming`; all of them hold blocks."""
    width = space.slot_bytes
    unpins = [Unpin(space.device(first), count * width) for first, count in runs(leaving)]
    pins = [PinL2(space.device(first), count * width) for first, count in runs(coming)]
    return Program((*unpins, *pins))


def compile_compress(slots: Collection[int], space: AddressSpace, codec: str) -> Program:
    """Write behind: encode these slots into the host tier."""
    width = space.slot_bytes
    return Program(
        tuple(CompressP2(space.device(first), count * width, codec) for first, count in runs(slots))
    )


def compile_knit(slots: Collection[int], space: AddressSpace) -> Program:
    """Recompute these slots in each other's sight; the executor makes one pass of neighbouring instructions."""
    width = space.slot_bytes
    return Program(tuple(Knit(space.device(first), count * width) for first, count in runs(slots)))
