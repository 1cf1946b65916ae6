"""The static window: what users have today, and the baseline that every table shows (DESIGN section 6).

Sinks and the last W tokens; the oldest tokens are cut when the budget is full; nothing is known of use; when
a turn needs something outside, the whole 1,024-token page around it and the page after it are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision.policy import evictable, last_blocks, lowest, resident_blocks

PAGE_TOKENS = 1024
"""The unit in which the baseline loads."""


class StaticWindowPolicy:
    """First in, first out: document order while reading, order of loading afterwards."""

    name = "static-window"

    def __init__(self) -> None:
        self._arrival = np.zeros(0, dtype=np.int64)  # [n] order of arrival on the device, -1 absent
        self._arrivals = 0

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """The `count` evictable blocks that arrived first."""
        self._note_arrivals(table)
        candidates = np.flatnonzero(evictable(table) & ~keep)
        return lowest(candidates, count, self._arrival[candidates])

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """Nothing: the window does not look at the question."""
        self._note_arrivals(table)
        return []

    def attend(self, table: BlockTable, limit: int) -> list[int]:
        """Everything on the device."""
        return resident_blocks(table, limit)

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """The end of the document, as after reading it."""
        return last_blocks(table, limit)

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The absent blocks of the fault's page and of the page after it, `fault` first, then in document
        order.

        A block belongs to the page in which it starts.
        """
        self._note_arrivals(table)
        page = (np.cumsum(table.tokens) - table.tokens) // PAGE_TOKENS
        near = np.flatnonzero(~table.resident & (page >= page[fault]) & (page <= page[fault] + 1))
        return [fault, *(int(index) for index in near if index != fault)]

    def knit(self, table: BlockTable, candidates: Sequence[int], limit: int) -> list[int]:
        """Nothing."""
        return []

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learns nothing; only the order of arrival is kept up to date."""
        self._note_arrivals(table)

    def _note_arrivals(self, table: BlockTable) -> None:
        """Number the blocks that came since the last call, in document order, and forget those that left.

        The table has no time of loading (a use advances `last_touch`), hence this record. A block cannot
        leave and return between two calls, since each fault and each eviction asks the policy first.
        """
        if len(self._arrival) < len(table):
            missing = len(table) - len(self._arrival)
            self._arrival = np.concatenate([self._arrival, np.full(missing, -1, dtype=np.int64)])
        arrival = self._arrival[: len(table)]
        arrival[~table.resident] = -1
        new = np.flatnonzero(table.resident & (arrival < 0))
        arrival[new] = self._arrivals + np.arange(len(new))
        self._arrivals += len(new)
