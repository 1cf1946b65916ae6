"""Residents ordered by a score that changes only when a block is referenced: a heap with lazy deletion, O(log n)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

Score = tuple[float, ...]


class Ranking:
    """The resident blocks, lowest score first."""

    def __init__(self) -> None:
        self._score: dict[int, Score] = {}
        self._heap: list[tuple[Score, int]] = []

    def __len__(self) -> int:
        return len(self._score)

    def __contains__(self, block: int) -> bool:
        return block in self._score

    def put(self, block: int, score: Score) -> None:
        """Add a block, or give it another score."""
        self._score[block] = score
        heappush(self._heap, (score, block))
        if len(self._heap) > 64 + 4 * len(self._score):  # stale entries must not outgrow the residents
            self._heap = [(value, block) for block, value in self._score.items()]
            heapify(self._heap)

    def lowest(self) -> int:
        """The block with the lowest score; it stays."""
        while self._score.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][1]

    def score(self, block: int) -> Score:
        """The score of a block that is in."""
        return self._score[block]

    def remove(self, block: int) -> None:
        """Take a block out."""
        del self._score[block]

    def pop(self) -> int:
        """Take the block with the lowest score out."""
        block = self.lowest()
        self.remove(block)
        return block
