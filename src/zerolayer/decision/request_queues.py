"""Resident blocks in one queue a class, so that the least worthy is found without looking at every block.

Within a class worth depends on age alone, so that only the oldest block of each class competes: a choice costs O(log
classes), whatever the number of blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heapreplace


class ClassQueues:
    """Residents by class, those put last at the end. `lowest` compares the heads."""

    def __init__(self, classes: int) -> None:
        self._queues: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(classes)]
        self._kind: dict[int, int] = {}
        self._heads: list[tuple[float, float, int, int]] = []  # heap of (worth, time, class, block)

    def __len__(self) -> int:
        return len(self._kind)

    def __contains__(self, block: int) -> bool:
        return block in self._kind

    def put(self, block: int, kind: int) -> None:
        """Add a block, or take it to the end of its (new) class."""
        before = self._kind.get(block, -1)
        if before >= 0:
            del self._queues[before][block]
        self._kind[block] = kind
        self._queues[kind][block] = None

    def remove(self, block: int) -> None:
        """Take a block out."""
        del self._queues[self._kind.pop(block)][block]

    def compare(self, worth: Callable[[int, int], tuple[float, float]]) -> None:
        """Collect the heads anew with their (worth, time) now."""
        self._heads = [
            (*worth(kind, block), kind, block)
            for kind, queue in enumerate(self._queues)
            for block in (next(iter(queue), None),)
            if block is not None
        ]
        heapify(self._heads)

    def lowest(self, worth: Callable[[int, int], tuple[float, float]]) -> tuple[float, int]:
        """(worth, block) of the least worthy head, of equals the oldest; heads that have moved on are renewed."""
        while self._heads:
            value, _, kind, block = self._heads[0]
            head = next(iter(self._queues[kind]), None)
            if head == block:
                return value, block
            if head is None:
                heappop(self._heads)
            else:
                heapreplace(self._heads, (*worth(kind, head), kind, head))
        return float("inf"), -1
