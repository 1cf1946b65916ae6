"""How good probabilities are: calibration error, discrimination, and the base rate that both stand beside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zerolayer.core import BoolArray, FloatArray

BINS = 15


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of `count` predictions. `brier_skill` is 1 - Brier score / that of always saying the base rate."""

    count: int
    base_rate: float
    ece_mass: float
    ece_width: float
    auroc: float | None  # None where all or none were used
    brier_skill: float | None

    def to_json(self) -> dict[str, float | int | None]:
        """Plain numbers by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def scores(probability: FloatArray, used: BoolArray) -> Scores:
    """All scores of predictions [m] against what was used [m]."""
    if not len(used):
        return Scores(0, 0.0, 0.0, 0.0, None, None)
    base = float(used.mean())
    spread = base * (1.0 - base)
    brier = float(np.square(probability.astype(np.float64) - used).mean())
    return Scores(
        len(used),
        base,
        expected_calibration_error(probability, used),
        expected_calibration_error(probability, used, equal_mass=False),
        auroc(probability, used),
        1.0 - brier / spread if spread else None,
    )


def reliability(
    probability: FloatArray, used: BoolArray, bins: int = BINS, equal_mass: bool = True
) -> npt.NDArray[np.float64]:
    """[bins that hold something, 3] mean prediction, share used, and number of predictions.

    Bins of equal mass hold equally many predictions, those of equal width equal parts of 0 to 1.
    """
    p = probability.astype(np.float64)
    if equal_mass:
        groups = np.array_split(np.argsort(p, kind="stable"), bins)
    else:
        bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
        groups = [np.flatnonzero(bin_of == b) for b in range(bins)]
    rows = [(p[g].mean(), used[g].mean(), len(g)) for g in groups if len(g)]
    return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


def expected_calibration_error(
    probability: FloatArray, used: BoolArray, bins: int = BINS, equal_mass: bool = True
) -> float:
    """Mean distance of prediction and observation over bins, weighted by their numbers (Guo et al. 2017)."""
    table = reliability(probability, used, bins, equal_mass)
    return float((np.abs(table[:, 0] - table[:, 1]) * table[:, 2]).sum() / max(table[:, 2].sum(), 1))


def auroc(score: FloatArray, used: BoolArray) -> float | None:
    """Probability that a used block scores above an unused one, ties counting half; None without both kinds."""
    positives = int(used.sum())
    negatives = len(used) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return float((ranks[used].sum() - positives * (positives + 1) / 2.0) / (positives * negatives))


def mean_auroc(score: FloatArray, used: BoolArray, document: npt.NDArray[np.int64]) -> float | None:
    """The mean over documents of the AUROC within each, so that no document's base rate speaks for another's."""
    found = [auroc(score[document == d], used[document == d]) for d in np.unique(document)]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None
