"""How likely a block is used in this turn, learned online from match rank and age of the last use.

Each block of a turn falls into a cell (bucket of its match rank, bucket of the turns since its last use). A
cell's estimate is the mean of a Beta posterior whose prior mean combines the two marginal rates as
independent evidence: odds = odds(rank) * odds(age) / odds(base), naive Bayes. Marginals are themselves Beta
means with fixed priors, so the first turns stand on the priors and a few dozen turns on what this session has
shown.
"""

from __future__ import annotations

from collections import deque
from math import exp, log

import numpy as np
import numpy.typing as npt

from zerolayer.core import BlockTable, BoolArray, FloatArray, IntArray

# Upper ends of the rank buckets; ranks start at 0, and one more bucket takes 128 and up.
_RANK_EDGES = np.array([2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
_AGE_EDGES = np.array([2, 3, 5, 10])  # turns since the last use; one more bucket for 10 and up
# The last bucket is for blocks without any match.
_RANK_PRIOR = np.array([0.6, 0.5, 0.35, 0.25, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.02, 0.01, 0.005])
_AGE_PRIOR = np.array([0.45, 0.25, 0.18, 0.12, 0.08, 0.02])  # the last: never used
_BASE_PRIOR = 0.03
_STRENGTH = 10.0  # a prior weighs as much as this many observed blocks

_WINDOW_TURNS = 20  # recall depth looks back this far
_PRIOR_TURNS = 1.0
_RUN_PRIOR = 0.2  # that the block after a used one is used
_MAX_REACH = 8

CountArray = npt.NDArray[np.float64]


class UseCalibration:
    """Counts of (used, seen) blocks per cell, and the probabilities they imply."""

    def __init__(self) -> None:
        shape = (len(_RANK_PRIOR), len(_AGE_PRIOR))
        self._used: CountArray = np.zeros(shape)
        self._seen: CountArray = np.zeros(shape)

    def cells(self, table: BlockTable) -> IntArray:
        """[n] cell of every block for the question in `table.match`. Equal matches rank in document order."""
        ages = len(_AGE_PRIOR)
        rank = np.empty(len(table), dtype=np.int64)
        rank[np.argsort(-table.match, kind="stable")] = np.arange(len(table))
        rank_bucket = np.searchsorted(_RANK_EDGES, rank, side="right")
        rank_bucket[table.match <= 0.0] = len(_RANK_PRIOR) - 1
        age_bucket = np.searchsorted(_AGE_EDGES, table.turn - table.last_used_turn, side="right")
        age_bucket[table.last_used_turn < 0] = ages - 1
        return (rank_bucket * ages + age_bucket).astype(np.int64)

    def probability(self, cells: IntArray) -> FloatArray:
        """[n] estimated probability that a block is used in this turn."""
        rank = _beta(_RANK_PRIOR, self._used.sum(axis=1), self._seen.sum(axis=1))
        age = _beta(_AGE_PRIOR, self._used.sum(axis=0), self._seen.sum(axis=0))
        base = _beta(np.array(_BASE_PRIOR), self._used.sum(), self._seen.sum())
        odds = np.outer(_odds(rank), _odds(age)) / _odds(base)
        cell = _beta(odds / (1.0 + odds), self._used, self._seen)
        return cell.astype(np.float32).ravel()[cells]

    def update(self, cells: IntArray, used: BoolArray) -> None:
        """Count one turn: the cells the blocks were in before the answer, and which of them it used."""
        size = self._seen.size
        self._seen += np.bincount(cells, minlength=size).reshape(self._seen.shape)
        self._used += np.bincount(cells[used], minlength=size).reshape(self._seen.shape)


class RecallDepth:
    """The probability at which recall stops, set so that the target share of use is covered, and no deeper.

    Over the last turns: the largest cut under which no more than `1 - target` of the used block-turns were
    absent and fell short of it. Before there is evidence the cut starts at `start`, which is deep: an unknown
    perception must not cost coverage. `start` goes on to weigh like `_PRIOR_TURNS` turns (geometric mean).
    """

    def __init__(self, start: float, target: float, cut_min: float, cut_max: float) -> None:
        self.cut = self._start = start
        self._target, self._min, self._max = target, cut_min, cut_max
        self._away: deque[IntArray] = deque(maxlen=_WINDOW_TURNS)  # cells of used blocks that were away
        self._used: deque[int] = deque(maxlen=_WINDOW_TURNS)

    def update(self, calibration: UseCalibration, away: IntArray, used: int) -> None:
        """Note a turn: the cells of the used blocks that were away, and how many blocks were used."""
        self._away.append(away)
        self._used.append(used)
        # Cells, not the chances of back then: early chances came from priors and would hold the cut down.
        chances = np.sort(calibration.probability(np.concatenate(list(self._away))))
        allowed = int((1.0 - self._target) * sum(self._used))
        best = float(chances[allowed]) if len(chances) > allowed else self._max
        turns = len(self._used)
        mean = (_PRIOR_TURNS * log(max(self._start, 1e-6)) + turns * log(max(best, 1e-6))) / (
            _PRIOR_TURNS + turns
        )
        self.cut = min(max(exp(mean), self._min), self._max)


class Locality:
    """How far the use of a block reaches to its neighbours: a clause is used with all its blocks."""

    def __init__(self) -> None:
        self._used = self._continued = 0

    def update(self, used: BoolArray) -> None:
        """Count the used blocks [n] of a turn, and those whose next block was used as well."""
        self._used += int(used.sum())
        self._continued += int((used[:-1] & used[1:]).sum())

    def reach(self, cut: float) -> int:
        """Blocks to each side, at most 8, that are used with a block with at least probability `cut`."""
        rate = (_STRENGTH * _RUN_PRIOR + self._continued) / (_STRENGTH + self._used)
        return min(_MAX_REACH, int(log(max(cut, 1e-9)) / log(rate)))  # largest k with rate**k >= cut


def _beta(prior: CountArray, used: CountArray, seen: CountArray) -> CountArray:
    """Mean of the Beta posterior with prior mean `prior`."""
    mean: CountArray = (_STRENGTH * prior + used) / (_STRENGTH + seen)
    return mean


def _odds(p: CountArray) -> CountArray:
    clipped: CountArray = np.clip(p, 1e-4, 1.0 - 1e-4)
    return clipped / (1.0 - clipped)
