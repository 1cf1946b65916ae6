"""Scores of forecasts, their baselines and intervals, for `zerolayer bench intent`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.bench.common import bootstrap_interval
from zerolayer.core import FloatArray

DoubleArray = npt.NDArray[np.float64]
_BINS = 10


@dataclass(slots=True)
class Scores:
    """Forecasts of one forecaster and what came. `groups` are what is resampled: a contract, a dialogue."""

    chances: list[FloatArray] = field(default_factory=list)  # [classes] each
    labels: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    def add(self, chance: FloatArray, label: int, group: int) -> None:
        """One forecast and its outcome."""
        self.chances.append(chance)
        self.labels.append(label)
        self.groups.append(group)

    def columns(self) -> dict[str, DoubleArray]:
        """[forecasts] of each measure."""
        chances, labels = np.asarray(self.chances, dtype=np.float64), np.asarray(self.labels)
        own = chances[np.arange(len(labels)), labels]
        # A forecast without preference gets its fair share: ties count in part.
        above = (chances > own[:, None]).sum(axis=1)
        tied = (chances == own[:, None]).sum(axis=1)
        return {
            "top1": np.clip((1 - above) / tied, 0, 1),
            "top3": np.clip((3 - above) / tied, 0, 1),
            "log_loss_bits": -np.log2(np.maximum(own, 1e-9)),
        }

    def calibration_error(self) -> float:
        """Expected calibration error of all probabilities of all classes, in bins of equal size."""
        chances = np.asarray(self.chances, dtype=np.float64)
        hits = np.zeros_like(chances)
        hits[np.arange(len(self.labels)), self.labels] = 1.0
        order = np.argsort(chances.ravel(), kind="stable")
        bins = np.array_split(order, _BINS)
        gaps = [abs(chances.ravel()[b].mean() - hits.ravel()[b].mean()) * len(b) for b in bins]
        return float(sum(gaps) / len(order))


def interval(values: DoubleArray, groups: Sequence[int], seed: int) -> list[float]:
    """95 % bootstrap interval of the mean, groups resampled whole."""
    low, high = bootstrap_interval(values, groups, seed)
    return [round(low, 4), round(high, 4)]


def summary(forecasters: dict[str, Scores], against: str, ours: str, seed: int) -> dict[str, Any]:
    """Means with intervals of every forecaster, and ours minus a baseline, paired."""
    result: dict[str, Any] = {}
    columns = {name: scores.columns() for name, scores in forecasters.items()}
    for name, scores in forecasters.items():
        result[name] = {
            measure: {"mean": round(float(v.mean()), 4), "interval": interval(v, scores.groups, seed)}
            for measure, v in columns[name].items()
        } | {"calibration_error": round(scores.calibration_error(), 4)}
    result[f"{ours} minus {against}"] = {
        measure: {
            "mean": round(float((v - columns[against][measure]).mean()), 4),
            "interval": interval(v - columns[against][measure], forecasters[ours].groups, seed),
        }
        for measure, v in columns[ours].items()
    }
    result["forecasts"] = len(forecasters[ours].labels)
    return result


class Bigram:
    """How often each class comes, and comes after each other one, on the train part; add-one towards the former."""

    def __init__(self, sequences: Sequence[Sequence[int]], classes: int) -> None:
        counts = np.zeros((classes, classes))
        for sequence in sequences:
            np.add.at(counts, (sequence[:-1], sequence[1:]), 1.0)
        total = counts.sum(axis=0) + 1.0
        self.majority: FloatArray = (total / total.sum()).astype(np.float32)
        after = counts + classes * self.majority
        self._after: FloatArray = (after / after.sum(axis=1, keepdims=True)).astype(np.float32)

    def after(self, last: int) -> FloatArray:
        """[classes] probability of each class after `last`."""
        row: FloatArray = self._after[last]
        return row
