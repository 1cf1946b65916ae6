"""Expert mixing: every expert runs as a shadow of block numbers; the cache becomes that of the expert doing best.

LeCaR draws each victim by regret; mixing whole caches instead keeps what an expert's choices belong together for, and
bounds the loss: after a change of leader at most one cache of blocks is loaded again. Hits are discounted, so that the
leader follows the load. The shadows are the safety of the learned expert, and cost no KV.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import exp

import numpy as np

from zerolayer.decision.request_policies.arc import ArcRequestPolicy
from zerolayer.decision.request_policies.imitation import ImitationPolicy
from zerolayer.decision.request_policies.lfu import FrequencyBonusPolicy, LfuRequestPolicy
from zerolayer.decision.request_policies.lru import LruRequestPolicy
from zerolayer.decision.request_policies.s3_fifo import S3FifoRequestPolicy
from zerolayer.decision.request_policy import Request, RequestPolicy

EXPERTS: tuple[Callable[[int], RequestPolicy], ...] = (
    LruRequestPolicy,
    ImitationPolicy,
    FrequencyBonusPolicy,
    LfuRequestPolicy,
    ArcRequestPolicy,
    S3FifoRequestPolicy,
)
"""The first one leads until another has shown to be better."""

MEMORY_CAPACITIES = 10
"""A hit counts 1/e after this many references a block of capacity: longer than a cache takes to show its worth."""

DOUBT = 2.0
"""A new leader has to be better by so many standard errors. A change of leader costs loads, and a single long request
moves hits by more than two good experts differ; requests, not references, are the independent cases."""

PATIENCE_REFERENCES = 256
"""At least so many references, and a quarter of the capacity, between two changes of leader: renewing the cache's
list of strangers costs O(capacity), which is O(1) a reference this way."""


class _Shadow:
    """One expert with the blocks that it would hold."""

    def __init__(self, policy: RequestPolicy) -> None:
        self.policy = policy
        self.blocks: set[int] = set()
        self.hits = 0  # of the request that is being served

    def reference(self, block: int) -> int | None:
        """Let the expert decide; returns the block that it evicted."""
        if block in self.blocks:
            self.hits += 1
            self.policy.hit(block)
            return None
        victim = self.policy.miss(block)
        if victim == block:
            return None
        self.blocks.add(block)
        if victim is not None:
            self.blocks.discard(victim)
        return victim


class _Scores:
    """Discounted hits of every expert, and how sure the difference of each pair is."""

    def __init__(self, experts: int, memory: float) -> None:
        self._memory = memory  # references
        self._hits = np.zeros(experts)
        self._square = np.zeros((experts, experts))  # of the differences by request

    def note(self, hits: Sequence[int], references: int) -> None:
        """Add a request that is over."""
        keep = exp(-references / self._memory)
        found = np.array(hits, dtype=np.float64)
        self._hits = keep * self._hits + found
        self._square = keep * keep * self._square + (found[:, None] - found) ** 2

    def best(self, leader: int) -> int:
        """The expert with the most hits if it is better than `leader` beyond DOUBT, else `leader`."""
        best = int(self._hits.argmax())
        ahead = self._hits[best] - self._hits[leader]
        return best if ahead > DOUBT * self._square[best, leader] ** 0.5 else leader


class ExpertMixingPolicy:
    """Holds what the best expert of late would hold."""

    name = "expert-mixing"

    def __init__(self, capacity: int, experts: Sequence[Callable[[int], RequestPolicy]] = EXPERTS) -> None:
        self.capacity = capacity
        self._shadows = [_Shadow(expert(capacity)) for expert in experts]
        self._leader = self._shadows[0]
        self._scores = _Scores(len(experts), max(5_000, MEMORY_CAPACITIES * capacity))
        self._resident: set[int] = set()
        self._strangers: OrderedDict[int, None] = (
            OrderedDict()
        )  # residents that the leader would not hold, oldest first
        self._patience = max(PATIENCE_REFERENCES, capacity // 4)
        self._waited = self._length = 0

    @property
    def leader(self) -> str:
        """The expert that is followed."""
        return self._leader.policy.name

    def begin(self, request: Request) -> None:
        """Every expert sees every request; then the leader may change."""
        if self._length:
            self._scores.note([shadow.hits for shadow in self._shadows], self._length)
        self._length = len(request.blocks)
        for shadow in self._shadows:
            shadow.hits = 0
            shadow.policy.begin(request)
        if self._waited >= self._patience:
            self._choose()

    def hit(self, block: int) -> None:
        """Let every expert decide for its own cache."""
        self._reference(block)

    def miss(self, block: int) -> int | None:
        """Take the block if the leader holds it now, in place of one that it does not hold."""
        self._reference(block)
        victim = None
        if len(self._resident) >= self.capacity:
            if block not in self._leader.blocks or not self._strangers:
                return block
            victim = self._strangers.popitem(last=False)[0]
            self._resident.remove(victim)
        self._resident.add(block)
        if block not in self._leader.blocks:
            self._strangers[block] = None
        return victim

    def _reference(self, block: int) -> None:
        self._waited += 1
        for shadow in self._shadows:
            victim = shadow.reference(block)
            if shadow is self._leader:
                if victim is not None and victim in self._resident:
                    self._strangers[victim] = None
                if block in shadow.blocks:
                    self._strangers.pop(block, None)

    def _choose(self) -> None:
        self._waited = 0
        best = self._shadows[self._scores.best(self._shadows.index(self._leader))]
        if best is not self._leader:
            self._leader = best
            self._strangers = OrderedDict.fromkeys(sorted(self._resident - best.blocks))
