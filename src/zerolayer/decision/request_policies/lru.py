"""Least recently used, deepest block of a chain first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from zerolayer.decision.request_policy import Request


class LruRequestPolicy:
    """Evicts the block referenced longest ago; of one request the deepest, so that prefixes stay (chain rule)."""

    name = "lru"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._order: OrderedDict[int, None] = OrderedDict()
        self._chain: Sequence[int] = ()

    def begin(self, request: Request) -> None:
        """Put the last request's blocks in order: the first block of the chain is the most recent."""
        for block in reversed(self._chain):
            if block in self._order:
                self._order.move_to_end(block)
        self._chain = request.blocks

    def hit(self, block: int) -> None:
        """It is the most recent now."""
        self._order.move_to_end(block)

    def miss(self, block: int) -> int | None:
        """Every block enters; the least recent leaves."""
        victim = self._order.popitem(last=False)[0] if len(self._order) >= self.capacity else None
        self._order[block] = None
        return victim
