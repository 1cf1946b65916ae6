"""A bound on what can be known of a session: every use that is still to come, but not when.

The optimum of `decision.oracle` knows the order of questions, which nobody can. This policy knows their content: how
often each block will still be used. It loads on demand and lets go of what has the fewest uses left, so that it shows
how many loads and wrong evictions a perfect forecast of *what* would leave to the unknown *when*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision.policies.lru import LruPolicy
from zerolayer.decision.policy import evictable, lowest
from zerolayer.learning.traces import DemandTrace

ORDER_BLIND = "order-blind"


class OrderBlindPolicy(LruPolicy):
    """Evicts what has the fewest uses left in `trace`. No baseline: it has seen the session."""

    name = ORDER_BLIND

    def __init__(self, trace: DemandTrace) -> None:
        self._left = np.zeros(len(trace.block_lengths), dtype=np.int64)
        for turn in trace.turns:
            self._left[turn.blocks] += 1

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """The evictable blocks with the fewest uses left, then the oldest touch."""
        candidates = np.flatnonzero(evictable(table) & ~keep)
        return lowest(candidates, count, self._left[candidates], table.last_touch[candidates])

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """One use less."""
        self._left[np.asarray(used, dtype=np.int64)] -= 1
