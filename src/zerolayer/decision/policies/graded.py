"""The graded policy: recall what the question needs, keep what the session is likely to need again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray, Grade, IntArray
from zerolayer.decision.calibration import Locality, RecallDepth, UseCalibration
from zerolayer.decision.drift import Drift
from zerolayer.decision.grading import (
    HORIZON_TURNS,
    Grading,
    PersistenceWeights,
    Thresholds,
    grade_blocks,
    persistence,
)
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policy import evictable, lowest
from zerolayer.errors import SettingError

_SHARES = ("cut", "target_coverage", "cut_min", "cut_max", "neighbour_cut", "later_weight", "p0_share")


@dataclass(frozen=True, slots=True)
class GradedSettings:
    """What can be tuned. Raises SettingError for a value out of range."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    weights: PersistenceWeights = field(default_factory=PersistenceWeights)
    cut: float = 0.04  # recall stops where the estimated probability of use falls under this
    adaptive: bool = True  # after each turn, move the cut to where target_coverage is just met
    target_coverage: float = 0.95
    cut_min: float = 0.01
    cut_max: float = 0.9
    neighbour_cut: float = 0.4  # a fault brings neighbours that are at least this likely to be used with it
    later_weight: float = 0.25  # worth of a use in a later turn against one in this turn
    p0_share: float = 0.25  # share of the room for document blocks that persistence alone may lock as P0

    def __post_init__(self) -> None:
        for name in _SHARES:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise SettingError(f"{name} {value} is out of range; it lies within 0 to 1")
        if self.cut_min > self.cut_max:
            raise SettingError(f"cut_min {self.cut_min} is above cut_max {self.cut_max}; swap them")


@dataclass(frozen=True, slots=True)
class _Turn:
    """What was known when a turn was planned. Arrays are [n]."""

    cells: IntArray  # of the calibration
    chance: FloatArray  # probability of use in this turn
    value: FloatArray  # worth of a block on the device; nothing that it depends on changes within a turn
    away: BoolArray  # not on the device


class GradedPolicy:
    """Recalls by calibrated probability of use, evicts by lowest persistence, grades after each turn."""

    name = "graded"

    def __init__(self, settings: GradedSettings | None = None, model: PersistenceModel | None = None) -> None:
        self.settings = settings or GradedSettings()
        s = self.settings
        self._depth = RecallDepth(s.cut, s.target_coverage, s.cut_min, s.cut_max)
        self.floors: IntArray | None = None  # [n] grades that hints ask for, set by the scheduler
        self.grading: Grading | None = None  # of the last turn
        self._model, self._drift = model, Drift(HORIZON_TURNS)
        self._calibration = UseCalibration()
        self._locality = Locality()
        self._turn: _Turn | None = None  # the running turn, from recall to end_turn
        self._room = 0  # device blocks that this policy decides about

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """The evictable blocks with the lowest value, then the oldest touch."""
        candidates = np.flatnonzero(evictable(table) & ~keep)
        if count <= 0 or len(candidates) < count:
            return []
        return lowest(candidates, count, self._value(table)[candidates], table.last_touch[candidates])

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """Absent blocks by probability of use in this turn, then by match + persistence, down to the cut.

        The previous turn's blocks take part through their age. Recall also stops where a block is worth no more
        than the one that would have to leave for it, in this turn and the next ones. An absent P0 block comes
        first, whatever its probability.
        """
        cells = self._calibration.cells(table)
        chance = self._calibration.probability(cells)
        later = self._persistence(table)
        value = 1.0 - (1.0 - self.settings.later_weight * later) * (1.0 - chance)
        self._turn = _Turn(cells, chance, value.astype(np.float32), ~table.resident)
        leaving = evictable(table)
        locked = table.resident & ~table.pinned & (table.grade == int(Grade.P0))
        self._room = limit + int(locked.sum())

        due = ~table.resident & (table.grade == int(Grade.P0))
        absent = np.flatnonzero(due | (~table.resident & (chance >= self.cut)))
        fused = table.match + later
        wanted = lowest(absent, min(limit, len(absent)), ~due[absent], -chance[absent], -fused[absent])

        candidates = np.flatnonzero(leaving)
        leaves = lowest(candidates, len(candidates), value[candidates], table.last_touch[candidates])
        free = limit - len(leaves)  # free beside the reserve; negative: the reserve itself evicts
        chosen = wanted[: max(free, 0)]
        for block in wanted[len(chosen) :]:
            if not due[block] and value[block] <= value[leaves[len(chosen) - free]]:
                break
            chosen.append(block)
        return chosen

    def attend(self, table: BlockTable, limit: int) -> list[int]:
        """The resident blocks that match the question best."""
        candidates = np.flatnonzero(table.resident & ~table.pinned & (table.match > 0))
        return lowest(candidates, min(limit, len(candidates)), -table.match[candidates])

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """What is forecast, likeliest first; without a forecast nothing: the first question says what is needed."""
        candidates = np.flatnonzero(~table.resident & (table.forecast > 0))
        return lowest(candidates, min(limit, len(candidates)), -table.forecast[candidates])

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The block, and absent neighbours as far as earlier answers have used runs of blocks."""
        reach = self._locality.reach(self.settings.neighbour_cut)
        near = range(max(0, fault - reach), min(len(table), fault + reach + 1))
        absent = [block for block in near if block != fault and not table.resident[block]]
        return [fault, *sorted(absent, key=lambda block: (abs(block - fault), block))]

    def knit(self, table: BlockTable, candidates: Sequence[int], limit: int) -> list[int]:
        """The candidates that match the question best."""
        index = np.asarray(candidates, dtype=np.int64)
        return lowest(index, min(limit, len(index)), -table.match[index])

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learn which cells were used, move the cut towards the coverage target, grade all blocks."""
        mask = np.zeros(len(table), dtype=np.bool_)
        mask[np.asarray(used, dtype=np.int64)] = True
        self._locality.update(mask)
        if self._turn is not None and len(self._turn.away) == len(table):
            self._calibration.update(self._turn.cells, mask)
            if self.settings.adaptive and len(used):
                self._depth.update(self._calibration, self._turn.cells[mask & self._turn.away], len(used))
        self._turn = None
        self._grade(table)
        assert self.grading is not None
        self._drift.update(self.grading.persistence, mask)

    def _grade(self, table: BlockTable) -> None:
        floors = self.floors
        if floors is not None and len(floors) < len(table):  # the conversation has grown since they were set
            floors = np.pad(floors, (0, len(table) - len(floors)), constant_values=int(Grade.P3))
        self.grading = grade_blocks(
            table,
            self.settings.thresholds,
            self.settings.weights,
            floors,
            p0_limit=int(self.settings.p0_share * self._room),
            model=self._model,
        )
        table.grade[:] = self.grading.grade

    def set_thresholds(self, table: BlockTable, thresholds: Thresholds) -> None:
        """Cut grades at these persistences from now on; what has been graded is graded again."""
        self.settings = replace(self.settings, thresholds=thresholds)
        if self.grading is not None:
            self._grade(table)

    def use_persistence(self, model: PersistenceModel | None) -> None:
        """Take persistence from a calibrated model, or (None) from the hand-set noisy-or."""
        self._model = model

    @property
    def drift(self) -> float:
        """Predicted minus observed use, exponentially averaged over turns."""
        return self._drift.value

    def _persistence(self, table: BlockTable) -> FloatArray:
        if self._model is not None:
            return self._model.probability(table)
        return persistence(table, self.settings.weights)

    @property
    def cut(self) -> float:
        """The probability of use at which recall stops now."""
        return self._depth.cut

    def explain(self, index: int) -> str:
        """Why block `index` has its grade, in one line."""
        if self.grading is None:
            return "not graded yet: grades follow the first turn"
        return self.grading.explain(index)

    def _value(self, table: BlockTable) -> FloatArray:
        """[n] worth of a block on the device: used in this turn, or (weighed less) in the 10 after it."""
        if self._turn is None or len(self._turn.chance) != len(table):
            return self._persistence(table)
        return self._turn.value
