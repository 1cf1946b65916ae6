"""The reward of a scheduling decision, in documented units with configurable weights.

| term | unit | default weight |
|---|---|---|
| device memory | MB (10^6 bytes) of KV on the device while the answer runs | -0.3 |
| answer | BLEU-4, 0 to 1, of the answer against the full-cache answer | +0.5 |
| P0 access | 1 / ms from asking for a block that the answer reads to readable | +0.2 |
| wrong eviction | tokens evicted that are used within 10 turns while a later-used block stayed | -2.0 |
| over-prefetch | tokens loaded ahead, or beside a fault, that no turn used | -0.1 |

1 / ms has no bound as latency falls to zero, so latency counts from `LATENCY_FLOOR_MS` up: the term is at most
weight / floor. In simulation no answer exists; learning.env says which proxy stands for BLEU-4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from zerolayer.errors import SettingError

LATENCY_FLOOR_MS = 0.1
"""Latencies below count as this: a resident block is readable in microseconds, and no answer feels the difference."""

_LONGEST_NGRAM = 4


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """What a unit of each term is worth. Costs are negative. Raises SettingError for a sign that rewards harm."""

    device_mb: float = -0.3
    answer_bleu4: float = 0.5
    p0_latency_ms: float = 0.2  # divided by the latency
    wrong_eviction_token: float = -2.0
    over_prefetched_token: float = -0.1

    def __post_init__(self) -> None:
        costs = ("device_mb", "wrong_eviction_token", "over_prefetched_token")
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            sign = -1.0 if name in costs else 1.0
            if not math.isfinite(value) or sign * value < 0:
                kind = "a cost: zero or below" if name in costs else "a gain: zero or above"
                raise SettingError(f"reward weight {name} is {value}; it is {kind}, finite")


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What a decision led to, by the end of its turn."""

    device_mb: float
    answer_bleu4: float  # 0 to 1
    p0_latency_ms: float
    wrong_eviction_tokens: int
    over_prefetched_tokens: int


@dataclass(frozen=True, slots=True)
class Reward:
    """The terms of one reward, weighted, and their sum."""

    device_memory: float
    answer: float
    latency: float
    wrong_eviction: float
    over_prefetch: float

    @property
    def total(self) -> float:
        """The scalar that is learned from."""
        return self.device_memory + self.answer + self.latency + self.wrong_eviction + self.over_prefetch


def reward(outcome: TurnOutcome, weights: RewardWeights | None = None) -> Reward:
    """The weighted terms of `outcome`."""
    w = weights or RewardWeights()
    return Reward(
        device_memory=w.device_mb * outcome.device_mb,
        answer=w.answer_bleu4 * outcome.answer_bleu4,
        latency=w.p0_latency_ms / max(outcome.p0_latency_ms, LATENCY_FLOOR_MS),
        wrong_eviction=w.wrong_eviction_token * outcome.wrong_eviction_tokens,
        over_prefetch=w.over_prefetched_token * outcome.over_prefetched_tokens,
    )


def bleu4(candidate: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """Sentence BLEU of n-grams up to 4, 0 to 1, on words or token ids (Papineni et al., ACL 2002).

    Precisions above unigrams are smoothed by adding one to both counts (Lin and Och, COLING 2004): a short answer
    without a common 4-gram is not worth nothing. N-grams longer than both texts are left out, so that an answer is
    always 1 against itself. Two empty texts give 1, one empty text 0.
    """
    if not candidate or not reference:
        return float(len(candidate) == len(reference))
    longest = min(_LONGEST_NGRAM, max(len(candidate), len(reference)))
    total = 0.0
    for n in range(1, longest + 1):
        ours, theirs = _ngrams(candidate, n), _ngrams(reference, n)
        smooth = int(n > 1)
        matched = sum((ours & theirs).values()) + smooth
        if not matched:
            return 0.0
        total += math.log(matched / (sum(ours.values()) + smooth))
    brevity = min(0.0, 1.0 - len(reference) / len(candidate))
    return math.exp(total / longest + brevity)


def _ngrams(items: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(items[i : i + n]) for i in range(len(items) - n + 1))
