"""Imitation of the optimum: keeps the blocks whose slots are expected to earn hits soonest, and bypasses the rest.

Trees fitted to the offline optimum's choices score each segment of a request from its history; the scores make classes,
whose times of return are learned online; a slot's worth is its hit density. The victim is the least dense of the
classes' oldest residents, or the new block itself. Cost does not grow with the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.decision.request_model import BlockTracker, RequestModel, shipped_model
from zerolayer.decision.request_policy import Request
from zerolayer.decision.request_queues import ClassQueues


class ImitationPolicy:
    """Evicts or bypasses what the optimum would, as far as history tells."""

    name = "imitation"

    def __init__(self, capacity: int, model: RequestModel | None = None) -> None:
        self.capacity = capacity
        self.tracker = BlockTracker(model or shipped_model())
        self._resident = ClassQueues(self.tracker.model.classes)
        self._chain: Sequence[int] = ()
        self._kinds: dict[int, int] = {}  # of the chain that is being served
        self._density: list[list[float]] = []
        self._compared = False

    def begin(self, request: Request) -> None:
        """Put the last chain in order, deepest block first to leave (chain rule); score the new one at once."""
        self._put(self._chain)
        self._chain = request.blocks
        self._kinds = dict(zip(request.blocks, self.tracker.begin(request), strict=True))
        self._put(self._chain)
        self._compared = False

    def hit(self, block: int) -> None:
        """Nothing: residents of the chain took their places when the request began."""

    def miss(self, block: int) -> int | None:
        """The least dense head leaves, unless the new block is less dense still.

        Blocks of the request that is being served do not leave for each other: it needs them now.
        """
        kind, victim = self._kinds[block], None
        if len(self._resident) >= self.capacity:
            if not self._compared:
                self._compared = True
                self._resident.compare(self._worth)
            worth, victim = self._resident.lowest(self._worth)
            if worth >= self.tracker.density(kind, self.tracker.now):
                return block
            self._resident.remove(victim)
        self._resident.put(block, kind)
        return victim

    def _put(self, chain: Sequence[int]) -> None:
        for block in reversed(chain):
            if block in self._resident:
                self._resident.put(block, self._kinds[block])

    def _worth(self, kind: int, block: int) -> tuple[float, float]:
        """Hit density of a resident now, and when it was referenced; of equals the oldest leaves first."""
        if block in self._kinds:
            return float("inf"), self.tracker.now
        last_s = float(self.tracker.time_s[block])
        return self.tracker.density(kind, last_s), last_s
