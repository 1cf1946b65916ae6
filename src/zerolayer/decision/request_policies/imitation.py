"""Imitation of the optimum: keeps the blocks whose slots are expected to earn hits soonest, and bypasses the rest.

Trees fitted to the offline optimum's choices score each block of a request from its history; the scores make classes,
whose times of return are learned online; a slot's worth is its hit density. The victim is the least dense of 64 sampled
residents (sampling as in LRB, Song et al., NSDI 2020), or the new block itself. Cost does not grow with the cache.
"""

from __future__ import annotations

import numpy as np

from zerolayer.decision.request_model import BlockTracker, RequestModel, shipped_model
from zerolayer.decision.request_policy import Request
from zerolayer.decision.request_survival import AGE_EDGES

CANDIDATES = 64
_DRAWS = 1024


class ImitationPolicy:
    """Evicts or bypasses what the optimum would, as far as history tells."""

    name = "imitation"

    def __init__(self, capacity: int, model: RequestModel | None = None, seed: int = 0) -> None:
        self.capacity = capacity
        self.tracker = BlockTracker(model or shipped_model())
        self._random = np.random.default_rng(seed)
        self._slots = np.zeros(capacity, dtype=np.int64)  # the resident blocks
        self._used = 0
        self._draws = np.zeros((0, 0), dtype=np.int64)
        self._drawn = 0

    def begin(self, request: Request) -> None:
        """Score the whole chain at once."""
        self.tracker.begin(request)

    def hit(self, block: int) -> None:
        """Nothing: the chain was noted when the request began."""

    def miss(self, block: int) -> int | None:
        """The least dense of the sampled residents leaves, unless the new block is less dense still.

        Blocks of the request that is being served are no candidates: it needs them now.
        """
        if self._used < self.capacity:
            self._slots[self._used] = block
            self._used += 1
            return None
        tracker = self.tracker
        slots = self._sample()
        blocks = self._slots[slots]
        ages = (tracker.now - tracker.time_s[blocks]) / tracker.timescale_s
        density = tracker.survival.density
        worth = density[tracker.kind[blocks], np.searchsorted(AGE_EDGES, ages, side="right") - 1]
        worth[tracker.number[blocks] >= tracker.first_number] = np.inf
        worst = int(worth.argmin())
        if worth[worst] >= density[tracker.kind[block], 0]:
            return block
        self._slots[slots[worst]] = block
        return int(blocks[worst])

    def _sample(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if self._drawn >= len(self._draws):
            size = (_DRAWS, min(CANDIDATES, self.capacity))
            self._draws, self._drawn = self._random.integers(0, self.capacity, size), 0
        self._drawn += 1
        row: np.ndarray[tuple[int], np.dtype[np.int64]] = self._draws[self._drawn - 1]
        return row
