"""The books of a live session: which loads were used, what was covered, how long P0 blocks took to reach."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zerolayer.core import BoolArray, Grade, IntArray
from zerolayer.execution.addresses import HOST_BASE, AddressSpace
from zerolayer.execution.arena import Arena
from zerolayer.execution.isa import EvictP3, Instruction, MoveP0, Outcome, Prefetch, instruction_text
from zerolayer.execution.layout import FREE


@dataclass(slots=True)
class LoadCounts:
    """Blocks moved to the device and what became of them."""

    loads: int = 0
    used: int = 0
    wasted: int = 0  # left the device unused
    evictions: int = 0
    covered: int = 0  # used blocks that were on the device when their turn's answer began
    used_blocks: int = 0  # used blocks, summed over turns

    def add(self, other: LoadCounts) -> None:
        """Sum up."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class LoadBook:
    """Follows every load until a turn uses its block or the block leaves the device."""

    totals: LoadCounts = field(default_factory=LoadCounts)
    turn: LoadCounts = field(default_factory=LoadCounts)  # since the last `end_turn`
    _waiting: set[int] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """Loaded blocks that no turn has used yet."""
        return len(self._waiting)

    def note(self, evict: Iterable[int], load: Iterable[int]) -> None:
        """Blocks left the device, others came."""
        for block in evict:
            self.turn.evictions += 1
            if block in self._waiting:
                self._waiting.discard(block)
                self.turn.wasted += 1
        for block in load:
            self.turn.loads += 1
            self._waiting.add(block)

    def end_turn(self, used: Collection[int], resident: BoolArray) -> LoadCounts:
        """A turn ended that used these blocks; `resident` [blocks] as it was when its answer began."""
        hits = self._waiting.intersection(used)
        self._waiting -= hits
        self.turn.used += len(hits)
        self.turn.used_blocks += len(used)
        self.turn.covered += int(resident[list(used)].sum())
        done, self.turn = self.turn, LoadCounts()
        self.totals.add(done)
        return done


def p0_access_ns(
    grade: IntArray, resident: BoolArray, arena: Arena, log: Sequence[Outcome], space: AddressSpace
) -> list[int]:
    """Nanoseconds from asking for each P0 block to readable: its load where it was away, else finding its slot.

    `grade` and `resident` are [blocks], as they were when the turn began; `log` is of the turn's recall.
    """
    loads: dict[int, int] = {}
    for outcome in log:
        move = outcome.instruction
        if isinstance(move, MoveP0) and move.src >= HOST_BASE:
            loads[space.decode(move.src).index] = outcome.nanoseconds
    found = []
    for block in np.flatnonzero(grade == int(Grade.P0)).tolist():
        if resident[block]:
            started = time.perf_counter_ns()
            arena.slot_of(block)
            found.append(time.perf_counter_ns() - started)
        elif block in loads:
            found.append(loads[block])
    return found


HISTORY = 8
"""Instructions that are remembered of one block."""


@dataclass(frozen=True, slots=True)
class BlockNote:
    """One instruction that touched a block."""

    time: float  # seconds since the epoch
    turn: int
    text: str
    outcome: str
    nbytes: int
    ns: int
    reason: str


class BlockHistories:
    """The last instructions of every block."""

    def __init__(self) -> None:
        self._notes: dict[int, deque[BlockNote]] = {}

    def of(self, block: int) -> list[BlockNote]:
        """The last instructions of a block, oldest first."""
        return list(self._notes.get(block, ()))

    def note(self, outcomes: Sequence[Outcome], occupant: IntArray, space: AddressSpace, turn: int) -> None:
        """Add what a program did; `occupant` is [slots], as it was before. It is changed as the program went."""
        now = time.time()
        for outcome in outcomes:
            note = BlockNote(
                now,
                turn,
                instruction_text(outcome.instruction),
                outcome.status.value,
                outcome.bytes,
                outcome.nanoseconds,
                outcome.reason,
            )
            for block in _touched(outcome.instruction, occupant, space):
                self._notes.setdefault(block, deque(maxlen=HISTORY)).append(note)


def _touched(instruction: Instruction, occupant: IntArray, space: AddressSpace) -> list[int]:
    """Blocks of an instruction; moves and evictions change `occupant`."""
    width = space.slot_bytes
    count = instruction.size // width
    source = instruction.src if isinstance(instruction, MoveP0 | Prefetch) else instruction.addr
    first = source // width
    if source >= HOST_BASE:
        index = space.decode(source).index
        blocks = list(range(index, index + count))
    else:
        blocks = [int(block) for block in occupant[first : first + count] if block != FREE]
        if isinstance(instruction, MoveP0 | EvictP3):
            occupant[first : first + count] = FREE
    if isinstance(instruction, MoveP0):
        target = instruction.dst // width
        occupant[target : target + len(blocks)] = blocks
    return blocks
