"""How likely a block is used in this turn, learned online from match rank and age of the last use.

Each block of a turn falls into a cell (bucket of its match rank, bucket of the turns since its last use). A
cell's estimate is the mean of a Beta posterior whose prior mean combines the two marginal rates as
independent evidence: odds = odds(rank) * odds(age) / odds(base), naive Bayes. Marginals are themselves Beta
means with fixed priors, so the first turns stand on the priors and a few dozen turns on what this session has
shown.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zerolayer.core import BlockTable, BoolArray, FloatArray, IntArray

_RANK_EDGES = np.array([2, 4, 8, 16, 32, 64, 128])  # ranks start at 0; one more bucket for 128 and up
_AGE_EDGES = np.array([2, 3, 5, 10])  # turns since the last use; one more bucket for 10 and up
_RANK_PRIOR = np.array([0.6, 0.5, 0.35, 0.22, 0.12, 0.06, 0.03, 0.01, 0.005])  # the last: no match at all
_AGE_PRIOR = np.array([0.45, 0.25, 0.18, 0.12, 0.08, 0.02])  # the last: never used
_BASE_PRIOR = 0.03
_STRENGTH = 10.0  # a prior weighs as much as this many observed blocks

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
        # The base rate is seen through every block, so its prior has to weigh like a whole table.
        base = _beta(np.array(_BASE_PRIOR), self._used.sum(), self._seen.sum())
        odds = np.outer(_odds(rank), _odds(age)) / _odds(base)
        cell = _beta(odds / (1.0 + odds), self._used, self._seen)
        return cell.astype(np.float32).ravel()[cells]

    def update(self, cells: IntArray, used: BoolArray) -> None:
        """Count one turn: the cells the blocks were in before the answer, and which of them it used."""
        size = self._seen.size
        self._seen += np.bincount(cells, minlength=size).reshape(self._seen.shape)
        self._used += np.bincount(cells[used], minlength=size).reshape(self._seen.shape)


def _beta(prior: CountArray, used: CountArray, seen: CountArray) -> CountArray:
    """Mean of the Beta posterior with prior mean `prior`."""
    mean: CountArray = (_STRENGTH * prior + used) / (_STRENGTH + seen)
    return mean


def _odds(p: CountArray) -> CountArray:
    clipped: CountArray = np.clip(p, 1e-4, 1.0 - 1e-4)
    return clipped / (1.0 - clipped)
