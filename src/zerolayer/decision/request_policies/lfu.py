"""Policies that rank by how often a block was referenced."""

from __future__ import annotations

from collections import defaultdict

from zerolayer.decision.request_policies.ranked import Ranking, Score
from zerolayer.decision.request_policy import Request


class LfuRequestPolicy:
    """Least frequently used; counts are kept for absent blocks too; ties go to the least recent, then the deepest."""

    name = "lfu"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._count: defaultdict[int, int] = defaultdict(int)
        self._resident = Ranking()
        self._request = self._depth = 0

    def begin(self, request: Request) -> None:
        """Count requests: recency is measured in them."""
        self._request += 1
        self._depth = 0

    def hit(self, block: int) -> None:
        """Rank it anew."""
        self._resident.put(block, self._score(block))

    def miss(self, block: int) -> int | None:
        """Every block enters; the lowest in rank leaves."""
        victim = self._resident.pop() if len(self._resident) >= self.capacity else None
        self._resident.put(block, self._score(block))
        return victim

    def _score(self, block: int) -> Score:
        self._count[block] += 1
        self._depth += 1
        return self.rank(self._count[block], self._request, self._depth)

    def rank(self, count: int, request: int, depth: int) -> Score:
        """Worth of a block referenced `count` times, last by request number `request` as its `depth`th block."""
        return count, request, -depth


class FrequencyBonusPolicy(LfuRequestPolicy):
    """LRU in which every reference beyond the first, up to four, is worth 500 requests of age."""

    name = "frequency-bonus"

    def rank(self, count: int, request: int, depth: int) -> Score:
        """Number of the request + 500 * min(count - 1, 4)."""
        return request + 500 * min(count - 1, 4), -depth
