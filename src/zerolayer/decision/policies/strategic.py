"""The graded policy under a window strategy: what presets fix, and the hand of a learned policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray, Plan
from zerolayer.decision.observation import History
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.graded import GradedPolicy, GradedSettings
from zerolayer.decision.strategy import WindowStrategy, plan_watermark


class StrategicPolicy(GradedPolicy):
    """Recalls, evicts and grades as the graded policy does, within the strategy of the hour.

    With the default strategy it decides exactly as the graded policy. `history` is what it observes of itself.
    """

    name = "strategic"

    def __init__(
        self,
        strategy: WindowStrategy | None = None,
        settings: GradedSettings | None = None,
        model: PersistenceModel | None = None,
    ) -> None:
        super().__init__(settings, model)
        self.strategy = strategy or WindowStrategy()
        self.history = History(cut=self.settings.cut)
        self._there: BoolArray | None = None  # [n] on the device once recall is done
        self._recalled = self._loads = 0

    @property
    def cut(self) -> float:
        """The probability of use at which recall stops now."""
        return min(1.0, super().cut * self.strategy.recall_factor)

    def use(self, table: BlockTable, strategy: WindowStrategy) -> None:
        """Decide by `strategy` from now on."""
        if strategy.thresholds != self.settings.thresholds:
            self.set_thresholds(table, strategy.thresholds)
            self.history.locked = None  # graded again, so counted again
        self.strategy = strategy

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """As the graded policy, down to the strategy's cut."""
        chosen = super().recall(table, limit)
        self._there = table.resident.copy()
        self._there[chosen] = True
        self._recalled = len(chosen)
        self._loads += len(chosen)
        return chosen

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """What is forecast, likeliest first, at most the strategy's depth."""
        chosen = super().warm(table, min(limit, self.strategy.prefetch_blocks))
        self._loads += len(chosen)
        return chosen

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """As the graded policy."""
        chosen = super().expand(table, fault)
        self._loads += len(chosen)
        return chosen

    def release(self, table: BlockTable) -> Plan:
        """What leaves the device at the end of a turn, by the strategy's watermarks."""
        return plan_watermark(self, table, self.strategy.watermarks)

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learn and grade, then note what the next decision observes."""
        super().end_turn(table, used, mass)
        index = np.asarray(used, dtype=np.int64)
        covered = len(index) if self._there is None else int(self._there[index].sum())
        self.history.end_turn(table, used, covered, self._recalled, self._loads)
        self.history.drift, self.history.cut = self.drift, self.cut
        self._there, self._recalled, self._loads = None, 0, 0
