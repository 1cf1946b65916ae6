"""Boosted trees of depth at most 3 as arrays: two scores for every block of a request in a dozen numpy calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.core import FloatArray, IntArray
from zerolayer.errors import SettingError

DEPTH = 3
NODES = 2**DEPTH - 1
LEAVES = 2**DEPTH


@dataclass(frozen=True, eq=False)
class TreeScores:
    """Complete binary trees; node i has children 2i + 1 (value <= threshold) and 2i + 2. Scores are log-odds."""

    feature: IntArray  # [trees, NODES]
    threshold: FloatArray  # [trees, NODES]
    leaf: FloatArray  # [trees, LEAVES]
    head: IntArray  # [trees] which score the tree adds to
    base: FloatArray  # [heads]

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TreeScores:
        """Raises SettingError for arrays that do not fit together."""
        trees = cls(
            np.asarray(record["feature"], dtype=np.int64),
            np.asarray(record["threshold"], dtype=np.float32),
            np.asarray(record["leaf"], dtype=np.float32),
            np.asarray(record["head"], dtype=np.int64),
            np.asarray(record["base"], dtype=np.float32),
        )
        count = len(trees.head)
        shapes = (trees.feature.shape, trees.threshold.shape, trees.leaf.shape)
        if shapes != ((count, NODES), (count, NODES), (count, LEAVES)):
            raise SettingError(
                f"trees of shapes {shapes} do not fit {count} trees of depth {DEPTH}; fit them again"
            )
        return trees

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {
            "feature": self.feature.tolist(),
            "threshold": np.round(self.threshold.astype(float), 5).tolist(),
            "leaf": np.round(self.leaf.astype(float), 5).tolist(),
            "head": self.head.tolist(),
            "base": self.base.astype(float).tolist(),
        }

    def scores(self, features: FloatArray) -> npt.NDArray[np.float32]:
        """[n, heads] log-odds of features [n, columns]."""
        trees = np.arange(len(self.head))
        node = np.zeros((len(features), len(trees)), dtype=np.int64)
        rows = np.arange(len(features))[:, None]
        for _ in range(DEPTH):
            value = features[rows, self.feature[trees, node]]
            node = 2 * node + 1 + (value > self.threshold[trees, node])
        leaves = self.leaf[trees, node - NODES]
        found = np.empty((len(features), len(self.base)), dtype=np.float32)
        for head, base in enumerate(self.base):
            found[:, head] = base + leaves[:, self.head == head].sum(axis=1)
        return found
