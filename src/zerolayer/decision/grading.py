"""Persistence and grades: how likely a block is used again soon, and what that makes it.

Persistence is the estimated probability, 0 to 1, that a block is used within the next 10 turns. A calibrated
model (decision.persistence) gives it where there is one. Otherwise four independent pieces of evidence are
combined by noisy-or (J. Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, section 4.3.2):
p = 1 - prod(1 - p_k). Its weights are hand-set defaults, not a fit to any document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray, Grade, IntArray
from zerolayer.decision.persistence import PersistenceModel, all_features
from zerolayer.errors import SettingError

HORIZON_TURNS = 10
"""Persistence looks this many turns ahead."""

ATTENTION_DECAY = 0.8
"""Share of a block's observed attention that is carried from one turn to the next."""

_REASONS = 4
"""Signals that an explanation names, the strongest first."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Lower bounds of persistence for P0, P1 and P2. Raises SettingError unless 1 >= p0 > p1 > p2 >= 0."""

    p0_min: float = 0.17
    p1_min: float = 0.10
    p2_min: float = 0.05

    def __post_init__(self) -> None:
        if not 1.0 >= self.p0_min > self.p1_min > self.p2_min >= 0.0:
            raise SettingError(
                f"thresholds p0_min={self.p0_min} p1_min={self.p1_min} p2_min={self.p2_min} must fall "
                "from P0 to P2 within 0 to 1, such as 0.17, 0.10, 0.05"
            )


@dataclass(frozen=True, slots=True)
class PersistenceWeights:
    """How strongly each piece of evidence speaks."""

    recency: float = 0.5  # probability right after a use
    recency_turns: float = 4.0  # turns until that has fallen to 1/e
    prior_uses: float = 0.1  # Beta prior of the use rate: pseudo-uses ...
    prior_turns: float = 10.0  # ... in so many pseudo-turns
    attention: float = 0.3  # probability at very high observed attention
    attention_half: float = 0.02  # decayed mass at which half of that is reached
    match: float = 0.5  # probability at a match of 1


def evidence(table: BlockTable, weights: PersistenceWeights | None = None) -> dict[str, FloatArray]:
    """Probability of use within 10 turns from each piece of evidence alone, [n] each.

    recency: exponential in the turns since the last use. frequency: at least one use in 10 turns at the
    block's rate of use, shrunk by a Beta prior over the turns so far. attention: saturating in the decayed
    mass. question: linear in the match.
    """
    w = weights or PersistenceWeights()
    age = np.maximum(table.turn - table.last_used_turn, 0)
    recency = np.where(table.last_used_turn >= 0, w.recency * np.exp(-age / w.recency_turns), 0.0)
    rate = (table.use_count + w.prior_uses) / (max(table.turn, 0) + w.prior_turns)
    frequency = 1.0 - (1.0 - np.minimum(rate, 1.0)) ** HORIZON_TURNS
    mass = np.maximum(table.attention, 0.0)
    parts = {
        "recency": recency,
        "frequency": frequency,
        "attention": w.attention * mass / (mass + w.attention_half),
        "question": w.match * np.clip(table.match, 0.0, 1.0),
    }
    return {name: value.astype(np.float32) for name, value in parts.items()}


def persistence(table: BlockTable, weights: PersistenceWeights | None = None) -> FloatArray:
    """[n] probability, 0 to 1, that a block is used within the next 10 turns."""
    return combine(evidence(table, weights))


def combine(parts: Mapping[str, FloatArray]) -> FloatArray:
    """Noisy-or of independent probabilities, [n]."""
    unlikely = np.ones_like(next(iter(parts.values())))
    for part in parts.values():
        unlikely = unlikely * (1.0 - part)
    return (1.0 - unlikely).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Grading:
    """Grades of all blocks and why. Arrays are [n]."""

    grade: IntArray
    persistence: FloatArray
    parts: dict[str, FloatArray]
    thresholds: Thresholds
    floored: BoolArray  # raised by a pin or a floor
    capped: BoolArray  # earned P0, held at P1
    pinned: BoolArray
    calibrated: bool = False  # parts are log-odds that signals add, not probabilities
    notes: dict[str, str] = field(default_factory=dict)

    def explain(self, index: int) -> str:
        """Why block `index` has its grade, in one line."""
        text = f"P{self.grade[index]}: persistence {self.persistence[index]:.2f}"
        parts = [(name, float(part[index])) for name, part in self.parts.items()]
        if self.calibrated:
            most = sorted(parts, key=lambda part: -abs(part[1]))[:_REASONS]
            shares = "calibrated; log-odds " + ", ".join(f"{name} {value:+.2f}" for name, value in most)
        else:
            shares = ", ".join(f"{name} {value:.2f}" for name, value in parts)
        bounds = self.thresholds
        text += f" ({shares}); P0 from {bounds.p0_min}, P1 from {bounds.p1_min}, P2 from {bounds.p2_min}"
        if self.pinned[index]:
            return text + "; pinned"
        if self.floored[index]:
            return text + "; raised by a hint"
        return text + "; held at P1: absent, or the share of P0 is full" if self.capped[index] else text


def grade_blocks(
    table: BlockTable,
    thresholds: Thresholds | None = None,
    weights: PersistenceWeights | None = None,
    floors: IntArray | None = None,
    p0_limit: int | None = None,
    model: PersistenceModel | None = None,
) -> Grading:
    """Grades from persistence (of `model`, else by noisy-or with `weights`), then caps, then floors.

    `floors` [n] are the lowest grades that hints allow (P3 where there is none); a pinned block is P0. P0
    means must stay on the device, so persistence alone makes only resident blocks P0, and at most `p0_limit`
    of them (the most persistent; None for no limit): without that limit a device full of P0 could load
    nothing.
    """
    bounds = thresholds or Thresholds()
    if model is None:
        parts = evidence(table, weights)
        value = combine(parts)
    else:
        features = all_features(table)
        parts = model.contributions(features)
        value = model.calibrated(model.log_odds(features))
    cuts = np.array([bounds.p2_min, bounds.p1_min, bounds.p0_min], dtype=np.float32)
    grade = (3 - np.searchsorted(cuts, value, side="right")).astype(np.int64)

    earned = grade == int(Grade.P0)
    allowed = earned & table.resident & ~table.pinned
    if p0_limit is not None and int(allowed.sum()) > p0_limit:
        candidates = np.flatnonzero(allowed)
        best = candidates[np.lexsort((candidates, -value[candidates]))[: max(p0_limit, 0)]]
        allowed = np.zeros_like(allowed)
        allowed[best] = True
    grade[earned & ~allowed] = int(Grade.P1)

    lowest = np.where(table.pinned, int(Grade.P0), int(Grade.P3))
    if floors is not None:
        lowest = np.minimum(lowest, floors)
    return Grading(
        grade=np.minimum(grade, lowest),
        persistence=value,
        parts=parts,
        thresholds=bounds,
        floored=lowest < grade,
        capped=earned & ~allowed & (lowest > int(Grade.P0)),
        pinned=table.pinned.copy(),
        calibrated=model is not None,
    )


def chain_grades(grade: IntArray, parents: IntArray) -> IntArray:
    """[n] grades in which every block is at least as good as its best descendant.

    For prefix chains of request streams only (a prefix that is away makes its continuations useless); a
    document's blocks are recalled one by one and do not follow it. `parents` [n] holds each block's parent,
    -1 for a root. Ancestor doubling: log2(depth) vectorised passes. Raises SettingError if `parents` is out
    of range or cyclic.
    """
    n = len(grade)
    if len(parents) != n or (n and (parents.min() < -1 or parents.max() >= n)):
        raise SettingError(f"parents must hold {n} values from -1 (a root) to {n - 1}")
    best = grade.copy()
    ancestor = parents.copy()
    for _ in range(max(n, 1).bit_length() + 1):
        child = np.flatnonzero(ancestor >= 0)
        if not len(child):
            return best
        reach = best.copy()
        np.minimum.at(reach, ancestor[child], best[child])
        best = reach
        step = np.full(n, -1, dtype=np.int64)
        step[child] = ancestor[ancestor[child]]
        ancestor = step
    raise SettingError("parents contain a cycle; every chain must end at a root, -1")
