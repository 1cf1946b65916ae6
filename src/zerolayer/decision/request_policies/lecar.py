"""LeCaR: mixes LRU and LFU by regret (Vietri et al., HotStorage 2018)."""

from __future__ import annotations

import random
from collections import OrderedDict
from math import exp

from zerolayer.decision.request_policies.ranked import Ranking
from zerolayer.decision.request_policy import Request

LEARNING_RATE = 0.45
DISCOUNT = 0.005


class LecarRequestPolicy:
    """Each eviction follows one of two experts, drawn by weight; a miss on an expert's ghost lowers its weight."""

    name = "lecar"

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self._random = random.Random(seed)
        self._weights = [0.5, 0.5]  # LRU, LFU
        self._discount = DISCOUNT ** (1 / capacity)
        self._recency: OrderedDict[int, None] = OrderedDict()
        self._frequency = Ranking()
        self._count: dict[int, int] = {}
        self._ghosts: tuple[OrderedDict[int, int], ...] = (OrderedDict(), OrderedDict())  # block -> clock
        self._clock = 0

    def begin(self, request: Request) -> None:
        """Nothing: the experts know references only."""

    def hit(self, block: int) -> None:
        """Both experts take note."""
        self._touch(block)

    def miss(self, block: int) -> int | None:
        """The weights learn, then one expert's victim leaves."""
        self._learn(block)
        victim = None
        if len(self._recency) >= self.capacity:
            expert = int(self._random.random() >= self._weights[0])
            victim = self._frequency.lowest() if expert else next(iter(self._recency))
            del self._recency[victim]
            self._frequency.remove(victim)
            ghost = self._ghosts[expert]
            ghost[victim] = self._clock
            if len(ghost) > self.capacity:
                self._count.pop(ghost.popitem(last=False)[0], None)
        self._touch(block)
        return victim

    def _touch(self, block: int) -> None:
        self._clock += 1
        self._count[block] = self._count.get(block, 0) + 1
        self._recency[block] = None
        self._recency.move_to_end(block)
        self._frequency.put(block, (self._count[block], self._clock))

    def _learn(self, block: int) -> None:
        for expert, ghost in enumerate(self._ghosts):
            if block in ghost:
                regret = self._discount ** (self._clock - ghost.pop(block))
                self._weights[1 - expert] *= exp(LEARNING_RATE * regret)
                total = sum(self._weights)
                self._weights = [weight / total for weight in self._weights]
                return
