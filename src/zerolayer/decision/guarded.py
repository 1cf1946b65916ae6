"""A learned chooser of window strategies, under guard.

`decision.safety` watches it: whatever is late, out of range, drifting or worse than the static policy falls back to
the default strategy, with which this is the graded policy. It decides on events (a question, a fault) and, while a
turn runs, at the latest every 200 ms.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision.observation import observe
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.graded import GradedPolicy
from zerolayer.decision.policies.strategic import StrategicPolicy
from zerolayer.decision.safety import LATE, OUT_OF_RANGE, Clock, Guard, SafetySettings
from zerolayer.decision.shadow import Shadow
from zerolayer.decision.strategy import ACTION_FIELDS, NO_CHANGE, WindowStrategy, action_mask, strategy_of

_DECISIONS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and why it is so."""

    turn: int
    event: str  # question | fault | period
    action: tuple[int, ...]
    strategy: WindowStrategy
    fallback: str  # empty: the chooser decided; else the reason why it did not
    detail: str
    seconds: float

    def why(self) -> str:
        """In one line."""
        s = self.strategy
        said = (
            f"turn {self.turn}, {self.event}: recall stops at {s.recall_factor:g} times the calibrated cut, device "
            f"filled to {s.watermarks.low:.0%} of {s.watermarks.high:.0%} after a turn, grades cut at "
            f"{s.thresholds.p0_min:g}/{s.thresholds.p1_min:g}/{s.thresholds.p2_min:g}, "
            f"{s.prefetch_blocks} blocks prefetched, {s.codec}"
        )
        if self.fallback:
            who = f"static strategy, {self.fallback}{': ' + self.detail if self.detail else ''}"
        else:
            changed = [name for name, index in zip(ACTION_FIELDS, self.action, strict=True) if index]
            who = "learned: " + (
                "departs from the default in " + ", ".join(changed) if changed else "keeps the default"
            )
        return f"{said} ({who}; {self.seconds * 1e6:.0f} µs)"


class Chooser(Protocol):
    """What a guard watches: a network, or anything else that names strategies."""

    def act(self, observation: FloatArray, mask: BoolArray) -> tuple[int, ...]:
        """The action for an observation [observation.SIZE] and the mask of valid indices."""
        ...


class Guarded(StrategicPolicy):
    """The graded policy under the strategies of a chooser, as far as its guard admits them.

    `codec` is what blocks are stored with: it does not change once a document is read.
    """

    name = "guarded"

    def __init__(
        self,
        chooser: Chooser,
        safety: SafetySettings | None = None,
        clock: Clock | None = None,
        codec: str = "K8V4",
        model: PersistenceModel | None = None,
    ) -> None:
        super().__init__(model=model)
        bounds = safety or SafetySettings()
        self.chooser = chooser
        self.guard = Guard(Shadow(GradedPolicy(model=model), bounds.weights, bounds.block_mb), bounds, clock)
        self.decisions: deque[Decision] = deque(maxlen=_DECISIONS_KEPT)
        self.codec = codec
        self._decided_s = -math.inf

    def decide(self, table: BlockTable, event: str) -> Decision:
        """Observe, choose, check, and decide by the outcome from now on."""
        guard = self.guard
        started = guard.clock()
        action: tuple[int, ...] = NO_CHANGE
        reason, detail = guard.suspended, ""
        if not reason:
            seen = observe(table, self.history)
            detail = guard.in_range(seen)
            if detail:
                reason = OUT_OF_RANGE
            else:
                action = self.chooser.act(seen, action_mask(table, self.codec, self.history.locked))
                detail = guard.in_time(guard.clock() - started)
                reason = LATE if detail else ""
        ended = guard.clock()
        strategy = strategy_of(NO_CHANGE if reason else action)
        decision = Decision(table.turn, event, action, strategy, reason, detail, ended - started)
        self.use(table, strategy)
        self.decisions.append(decision)
        self._decided_s = ended
        return decision

    def prepare(self, table: BlockTable, event: str) -> None:
        """A question is decided on; a fault renews a decision that has grown old."""
        if event == "question":
            self.decide(table, event)
        else:
            self.tick(table, event)

    def tick(self, table: BlockTable, event: str = "period") -> bool:
        """Decide again if the last decision is over 200 ms old; whether it did. For whoever runs a long turn."""
        if self.guard.clock() - self._decided_s < self.guard.settings.period_s:
            return False
        self.guard.watch(table)
        self.decide(table, event)
        return True

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """A question: the shadow plans for it, the graded policy recalls by what was decided."""
        self.guard.begin_turn(table, limit)
        chosen = super().recall(table, limit)
        assert self._there is not None
        self.guard.begin_answer(self._there)
        return chosen

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learn and grade as the graded policy does, then judge the turn beside its shadow."""
        super().end_turn(table, used, mass)
        self.guard.end_turn(table, used, mass, self.drift)

    def use_persistence(self, model: PersistenceModel | None) -> None:
        """Take persistence from a calibrated model; the shadow does the same."""
        super().use_persistence(model)
        shadow = self.guard.shadow.policy
        if isinstance(shadow, GradedPolicy):
            shadow.use_persistence(model)

    @property
    def fallback(self) -> str:
        """Why the static strategy decides now; empty where the chooser does."""
        return self.decisions[-1].fallback if self.decisions else ""

    def note_pressure(self, host: float, disk: float) -> None:
        """Stored bytes over the budget of either tier, for the decisions to come."""
        self.history.pressure_host, self.history.pressure_disk = host, disk

    def why(self) -> str:
        """Why the strategy is what it is now, in one line."""
        return (
            self.decisions[-1].why() if self.decisions else "nothing decided yet: the first question decides"
        )
