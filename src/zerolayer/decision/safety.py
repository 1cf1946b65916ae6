"""When a learned policy may decide, and why it did not: time budget, range, drift, shadow, rollback.

A decision that is late or out of range is replaced by the static strategy, that decision only. Drift, or doing
worse than the shadow, suspends the learned policy for some turns. P0 evictions above the bound for five minutes
roll it back for the rest of the session. Every fallback is counted under its reason.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray, Grade
from zerolayer.decision.observation import FIELDS, HIGH, LOW
from zerolayer.decision.reward import RewardWeights
from zerolayer.decision.shadow import Books, Shadow
from zerolayer.errors import SettingError

Clock = Callable[[], float]
"""Seconds, rising."""

LATE, OUT_OF_RANGE, DRIFT, WORSE, P0_EVICTIONS = (
    "late",
    "out-of-range",
    "drift",
    "worse-than-shadow",
    "p0-evictions",
)

_KEEP = 0.8


@dataclass(frozen=True, slots=True)
class SafetySettings:
    """The bounds. Raises SettingError for one that is not above 0."""

    time_budget_s: float = 1e-3  # a decision takes under 50 µs; a busy machine may interrupt it
    period_s: float = 0.2  # a decision is at most this old while a turn runs
    drift_max: float = 0.25  # predicted minus observed use, either way
    worse_by: float = 0.1  # share of the shadow's mean reward by which the learned one may be lower
    least_turns: int = 5  # of comparison before it counts
    hold_turns: int = 20  # a suspension lasts
    p0_eviction_rate_max: float = 1e-4  # P0 evictions over evictions
    p0_window_s: float = 300.0
    block_mb: float = 1.47  # of one block on the device
    weights: RewardWeights = field(default_factory=RewardWeights)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, RewardWeights) and not value > 0:
                raise SettingError(f"safety bound {name} is {value}; it must be above 0")


class P0Watch:
    """Counts P0 blocks that left the device, and says when their rate has been too high for too long."""

    def __init__(self, settings: SafetySettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._resident = self._p0 = np.zeros(0, dtype=np.bool_)
        self._events: deque[tuple[float, int, int]] = deque()  # (time, P0 evictions, evictions)
        self._above_since: float | None = None
        self.p0_evictions = 0

    @property
    def rate(self) -> float:
        """P0 evictions over evictions within the window; 0 without evictions."""
        evictions = sum(count for _, _, count in self._events)
        return sum(count for _, count, _ in self._events) / evictions if evictions else 0.0

    def update(self, table: BlockTable) -> bool:
        """Compare with the last look at the table; True once the rate has been above its bound for the window."""
        now, window = self._clock(), self._settings.p0_window_s
        n = min(len(self._resident), len(table))
        went = self._resident[:n] & ~table.resident[:n]
        lost = int((went & self._p0[:n]).sum())
        if went.any():
            self._events.append((now, lost, int(went.sum())))
            self.p0_evictions += lost
        while self._events and now - self._events[0][0] > window:
            self._events.popleft()
        self._resident, self._p0 = table.resident.copy(), table.resident & (table.grade == int(Grade.P0))
        if self.rate <= self._settings.p0_eviction_rate_max:
            self._above_since = None
            return False
        if self._above_since is None:
            self._above_since = now
        return now - self._above_since >= window


class Guard:
    """Decides whether a learned decision counts. One object a session."""

    def __init__(
        self, shadow: Shadow, settings: SafetySettings | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or SafetySettings()
        self.clock: Clock = clock or time.perf_counter
        self.fallbacks: Counter[str] = Counter()
        self.p0_watch = P0Watch(self.settings, self.clock)
        self.shadow = shadow
        self._books = Books(self.settings.weights, self.settings.block_mb)
        self._there = np.zeros(0, dtype=np.bool_)
        self._mean = self._shadow_mean = self._weight = 0.0
        self._compared = 0
        self._held, self._hold_reason = 0, ""  # turns left of a suspension
        self.rolled_back = False

    def simulate(self) -> None:
        """Judge by turns only: what is replayed must not depend on how busy the machine is."""
        self.settings = replace(self.settings, time_budget_s=math.inf, period_s=math.inf)

    @property
    def suspended(self) -> str:
        """Why the learned policy may not decide now; empty if it may."""
        if self.rolled_back:
            return P0_EVICTIONS
        return self._hold_reason if self._held else ""

    @property
    def advantage(self) -> float:
        """Mean reward of a turn above the shadow's, exponentially averaged; 0 before the first turn."""
        return (self._mean - self._shadow_mean) / self._weight if self._weight else 0.0

    def in_range(self, observation: FloatArray) -> str:
        """Empty if the network may see the observation; else which field is outside its range (counted)."""
        # Not a number fails both comparisons.
        if observation.min() >= LOW and observation.max() <= HIGH:
            return ""
        index = int(np.argmin((observation >= LOW) & (observation <= HIGH)))
        self.fallbacks[OUT_OF_RANGE] += 1
        return f"{FIELDS[index]} is {observation[index]:.3g}, outside {LOW:g} to {HIGH:g}"

    def in_time(self, elapsed_s: float) -> str:
        """Empty if a decision came within its budget; else by how much it was late (counted)."""
        bound = self.settings.time_budget_s
        if elapsed_s <= bound:
            return ""
        self.fallbacks[LATE] += 1
        return f"took {elapsed_s * 1e6:.0f} µs, allowed are {bound * 1e6:.0f}"

    def begin_turn(self, table: BlockTable, limit: int) -> None:
        """A question came; the shadow plans for it."""
        self.watch(table)
        self.shadow.recall(table, limit)

    def begin_answer(self, there: BoolArray) -> None:
        """`there` [n] is what the device holds once recall is done."""
        self._there = there

    def watch(self, table: BlockTable) -> None:
        """Look for evicted P0 blocks; may roll back."""
        if self.p0_watch.update(table) and not self.rolled_back:
            self.rolled_back = True
            self.fallbacks[P0_EVICTIONS] += 1

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray, drift: float) -> None:
        """Judge the turn beside its shadow; may suspend the learned policy, or let it decide again."""
        self.watch(table)
        theirs = self.shadow.end_turn(used, mass)
        if theirs is None or len(self._there) != len(table):
            return
        ours = self._books.close_turn(table, self._there, used, mass)
        if self._held:  # the static strategy decides: there is nothing to compare
            self._held -= 1
            return
        self._mean = _KEEP * self._mean + (1.0 - _KEEP) * ours
        self._shadow_mean = _KEEP * self._shadow_mean + (1.0 - _KEEP) * theirs
        self._weight = _KEEP * self._weight + (1.0 - _KEEP)
        self._compared += 1
        if abs(drift) > self.settings.drift_max:
            self._suspend(DRIFT)
        elif self._compared >= self.settings.least_turns:
            bound = self.settings.worse_by * abs(self._shadow_mean) / self._weight
            if self.advantage < -bound:
                self._suspend(WORSE)

    def _suspend(self, reason: str) -> None:
        self.fallbacks[reason] += 1
        self._held, self._hold_reason = self.settings.hold_turns, reason
        self._mean = self._shadow_mean = self._weight = 0.0
        self._compared = 0
