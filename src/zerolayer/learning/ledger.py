"""The books of a replay: a simulated device, and the counts that every metric of DESIGN section 6 needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, IntArray
from zerolayer.errors import BudgetError, VerificationError
from zerolayer.learning.traces import DemandTrace

WRONG_WITHIN_TURNS = 10
_NEVER = np.iinfo(np.int64).max


class Ledger:
    """Carries out evictions, loads and uses on a block table and counts them.

    It begins as a session does after reading the document: sink blocks pinned, the last blocks on the device
    (not counted as loads), and every block in the backing store (write-behind).
    """

    def __init__(self, trace: DemandTrace, capacity_blocks: int, reserve_blocks: int) -> None:
        room = capacity_blocks - reserve_blocks - trace.sink_blocks
        if room < 1:
            raise BudgetError(
                f"a device of {capacity_blocks} blocks has no room for {trace.sink_blocks} sink blocks, "
                f"a reserve of {reserve_blocks} and one more; use at least {capacity_blocks - room + 1}"
            )
        n = len(trace.block_lengths)
        table = BlockTable.create(trace.block_lengths, capacity_blocks, trace.block_tokens)
        table.pinned[: trace.sink_blocks] = True
        table.resident[: trace.sink_blocks] = True
        table.resident[max(trace.sink_blocks, n - (capacity_blocks - trace.sink_blocks)) :] = True
        table.touch(np.flatnonzero(table.resident))
        self.table = table
        self.stored = np.ones(n, dtype=np.bool_)
        self.loads = self.evictions = self.wasted = self.wrong = self.discarded_tokens = 0
        self.peak_resident = table.resident_count
        self._idle = np.zeros(n, dtype=np.bool_)  # loaded, not used since
        # A use has the key turn * stride + position, so that keys order uses and // stride is the turn.
        self._stride = n + 1
        self._next, self._following = _next_uses(trace, self._stride)
        self._turn = 0

    def begin_turn(self, turn: int) -> None:
        """`turn` counts from 0 in trace order, whatever the trace calls its turns."""
        self._turn = turn

    def apply(self, evict: Sequence[int], load: Sequence[int]) -> None:
        """Evict, then load. Raises VerificationError, with nothing changed, if that would break a law."""
        self._verify(evict, load)
        table = self.table
        if evict:
            gone = np.asarray(evict, dtype=np.int64)
            table.resident[gone] = False
            self.evictions += len(gone)
            self.wasted += int(self._idle[gone].sum())
            self._idle[gone] = False
            self.wrong += self._count_wrong(gone)
            lost = ~table.resident & ~self.stored
            self.discarded_tokens = max(self.discarded_tokens, int(table.tokens[lost].sum()))
        if load:
            come = np.asarray(load, dtype=np.int64)
            table.resident[come] = True
            table.touch(come)
            self._idle[come] = True
            self.loads += len(come)
            self.peak_resident = max(self.peak_resident, table.resident_count)

    def use(self, block: int) -> None:
        """The running turn uses a resident block; uses come in the order of the trace."""
        self.table.touch([block])
        self._idle[block] = False
        self._next[block] = self._following[self._turn, block]

    def close(self) -> None:
        """The session ends: what was loaded and never used since is waste."""
        self.wasted += int(self._idle.sum())
        self._idle[:] = False

    def _count_wrong(self, gone: IntArray) -> int:
        stay = self._next[self.table.resident & ~self.table.pinned]
        if not len(stay):
            return 0
        upcoming = self._next[gone]
        soon = (upcoming != _NEVER) & (upcoming // self._stride - self._turn <= WRONG_WITHIN_TURNS)
        return int((soon & (upcoming < stay.max())).sum())

    def _verify(self, evict: Sequence[int], load: Sequence[int]) -> None:
        table = self.table
        reasons = [f"evicts block {b}, which is absent or pinned" for b in evict if not self._may_go(b)]
        reasons += [
            f"loads block {b}, which is resident or not stored" for b in load if not self._may_come(b)
        ]
        if len(set(evict)) != len(evict) or len(set(load)) != len(load):
            reasons.append("names a block twice")
        if table.resident_count - len(evict) + len(load) > table.capacity:
            reasons.append(f"overruns the capacity of {table.capacity} blocks")
        if reasons:
            raise VerificationError(reasons)

    def _may_go(self, block: int) -> bool:
        return bool(self.table.resident[block] and not self.table.pinned[block])

    def _may_come(self, block: int) -> bool:
        return bool(self.stored[block] and not self.table.resident[block])


def _next_uses(trace: DemandTrace, stride: int) -> tuple[IntArray, dict[tuple[int, int], int]]:
    """Key of every block's first use [n], and for each (turn, block) the key of the use after it."""
    upcoming = np.full(len(trace.block_lengths), _NEVER, dtype=np.int64)
    following: dict[tuple[int, int], int] = {}
    for turn in range(len(trace) - 1, -1, -1):
        blocks = trace.turns[turn].blocks
        for position in range(len(blocks) - 1, -1, -1):
            block = blocks[position]
            following[turn, block] = int(upcoming[block])
            upcoming[block] = turn * stride + position
    return upcoming, following
