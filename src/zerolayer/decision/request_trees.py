"""Boosted trees of depth at most 3 as arrays: two scores for every segment of a request in a dozen numpy calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
        first, width = np.arange(len(self.head)), features.shape[1]
        rows = np.arange(len(features))[:, None] * width
        node = np.zeros((len(features), len(first)), dtype=np.int64)
        for _ in range(DEPTH):
            place = node + first * NODES
            above = features.take(rows + self.feature.take(place)) > self.threshold.take(place)
            node = 2 * node + 1 + above
        leaves = self.leaf.take(node - NODES + first * LEAVES)
        return np.asarray(leaves @ self._to_head + self.base, dtype=np.float32)

    @cached_property
    def _to_head(self) -> npt.NDArray[np.float32]:
        """[trees, heads] 1 where a tree adds to a head."""
        return np.asarray(self.head[:, None] == np.arange(len(self.base)), dtype=np.float32)
