"""S3-FIFO: three first-in-first-out queues (Yang et al., SOSP 2023)."""

from __future__ import annotations

from collections import OrderedDict

from zerolayer.decision.request_policy import Request

SMALL_SHARE = 0.1
MAX_COUNT = 3


class S3FifoRequestPolicy:
    """New blocks pass a small queue; only those used there, or back from the ghosts, reach the main one."""

    name = "s3-fifo"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._small_limit = max(1, round(SMALL_SHARE * capacity))
        self._small: OrderedDict[int, int] = OrderedDict()  # block -> uses while queued, at most MAX_COUNT
        self._main: OrderedDict[int, int] = OrderedDict()
        self._ghost: OrderedDict[int, None] = OrderedDict()

    def begin(self, request: Request) -> None:
        """Nothing: S3-FIFO knows references only."""

    def hit(self, block: int) -> None:
        """Count it; queues do not move on a hit."""
        queue = self._small if block in self._small else self._main
        queue[block] = min(MAX_COUNT, queue[block] + 1)

    def miss(self, block: int) -> int | None:
        """A ghost enters the main queue, any other block the small one."""
        victim = self._evict() if len(self._small) + len(self._main) >= self.capacity else None
        if block in self._ghost:
            del self._ghost[block]
            self._main[block] = 0
        else:
            self._small[block] = 0
        return victim

    def _evict(self) -> int:
        while self._small and (len(self._small) >= self._small_limit or not self._main):
            block, count = self._small.popitem(last=False)
            if count == 0:
                self._ghost[block] = None
                if len(self._ghost) > self.capacity:
                    self._ghost.popitem(last=False)
                return block
            self._main[block] = 0
        while True:
            block, count = self._main.popitem(last=False)
            if count == 0:
                return block
            self._main[block] = count - 1
