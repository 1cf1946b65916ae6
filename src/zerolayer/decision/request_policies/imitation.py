"""Imitation of the optimum: keeps the blocks whose slots are expected to earn hits soonest, and bypasses the rest.

Trees fitted to the offline optimum's choices score each block of a request from its history; the scores make classes,
whose times of return are learned online; a slot's worth is its hit density. The victim is the least dense of the
residents sampled for the request (sampling as in LRB, Song et al., NSDI 2020), or the new block itself. Cost does not
grow with the cache.
"""

from __future__ import annotations

import numpy as np

from zerolayer.decision.request_model import BlockTracker, RequestModel, shipped_model
from zerolayer.decision.request_policy import Request
from zerolayer.decision.request_survival import AGE_EDGES

CANDIDATES = 64
CANDIDATES_PER_BLOCK = 32
MOST_CANDIDATES = 2048
"""A request of n blocks samples 64 + 32 n residents, at most 2048, and all of them in a cache that is no larger."""


class ImitationPolicy:
    """Evicts or bypasses what the optimum would, as far as history tells."""

    name = "imitation"

    def __init__(self, capacity: int, model: RequestModel | None = None, seed: int = 0) -> None:
        self.capacity = capacity
        self.tracker = BlockTracker(model or shipped_model())
        self._random = np.random.default_rng(seed)
        self._slots = np.zeros(capacity, dtype=np.int64)  # the resident blocks
        self._used = 0
        self._length = 0  # blocks of the request that is being served
        self._queue: list[tuple[float, int, int]] = []  # (density, block, slot), the least dense last

    def begin(self, request: Request) -> None:
        """Score the whole chain at once."""
        self.tracker.begin(request)
        self._length = len(request.blocks)
        self._queue = []

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
        if not self._queue:
            self._queue = self._candidates()
        worth, victim, slot = self._queue[-1]
        if worth >= self.tracker.survival.density[self.tracker.kind[block], 0]:
            return block
        self._queue.pop()
        self._slots[slot] = block
        return victim

    def _candidates(self) -> list[tuple[float, int, int]]:
        """Sampled residents with their density now, the least dense last."""
        tracker = self.tracker
        size = min(CANDIDATES + CANDIDATES_PER_BLOCK * self._length, MOST_CANDIDATES)
        if size < self.capacity:
            slots = np.unique(self._random.integers(0, self.capacity, size))
        else:
            slots = np.arange(self.capacity)
        blocks = self._slots[slots]
        ages = (tracker.now - tracker.time_s[blocks]) / tracker.timescale_s
        buckets = np.searchsorted(AGE_EDGES, ages, side="right") - 1
        worth = tracker.survival.density[tracker.kind[blocks], buckets]
        worth[tracker.number[blocks] >= tracker.first_number] = np.inf
        # Of equals the oldest goes first, and of one request the deepest block, so that prefixes stay (chain rule).
        order = np.lexsort((-tracker.number[blocks], tracker.time_s[blocks], worth))[: 2 * self._length + 1][
            ::-1
        ]
        return list(zip(worth[order].tolist(), blocks[order].tolist(), slots[order].tolist(), strict=True))
