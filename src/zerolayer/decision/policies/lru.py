"""Least recently used: the textbook baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision.policy import evictable, last_blocks, lowest, resident_blocks


class LruPolicy:
    """Evicts the block touched longest ago; a fault loads one block; nothing is recalled or knit."""

    name = "lru"

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """The `count` evictable blocks with the oldest touch."""
        candidates = np.flatnonzero(evictable(table) & ~keep)
        return lowest(candidates, count, table.last_touch[candidates])

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """Nothing: LRU has no idea of the question."""
        return []

    def attend(self, table: BlockTable, limit: int) -> list[int]:
        """Everything on the device."""
        return resident_blocks(table, limit)

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """The end of the document, as after reading it."""
        return last_blocks(table, limit)

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The block itself."""
        return [fault]

    def knit(self, table: BlockTable, candidates: Sequence[int], limit: int) -> list[int]:
        """Nothing."""
        return []

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Nothing to learn: recency is in `table.last_touch`."""
