"""The fitted part of the imitation policy, and how blocks are followed with it: scores, classes, survival."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.decision.request_features import REQUEST_FEATURES, BlockHistory
from zerolayer.decision.request_policy import Request
from zerolayer.decision.request_survival import AGE_EDGES, AGES, SurvivalTable
from zerolayer.decision.request_trees import TreeScores
from zerolayer.errors import SettingError

SHIPPED = "imitation.json"
SWEEP_REFERENCES = 256
"""References between two renewals of the survival table."""

_AGE_EDGES = AGE_EDGES.tolist()


@dataclass(frozen=True, eq=False)
class RequestModel:
    """Two scores (soon, kept by the optimum), where their classes are cut, and how long each class takes to return."""

    trees: TreeScores
    edges: tuple[FloatArray, FloatArray]  # inner cuts of each score
    hazard: FloatArray  # [classes, AGES]
    trained_on: str  # SHA-256 of the trace's references
    seed: int
    command: str

    @property
    def classes(self) -> int:
        """Number of classes."""
        return (len(self.edges[0]) + 1) * (len(self.edges[1]) + 1)

    def classify(self, features: FloatArray) -> IntArray:
        """[segments] class of each segment of one chain.

        A prefix scores at least what its best descendant scores: a use of the descendant uses it too (chain rule).
        """
        scores = np.maximum.accumulate(self.trees.scores(features)[::-1], axis=0)[::-1]
        soon = np.searchsorted(self.edges[0], scores[:, 0])
        kept = np.searchsorted(self.edges[1], scores[:, 1])
        return np.asarray(soon * (len(self.edges[1]) + 1) + kept, dtype=np.int64)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RequestModel:
        """Raises SettingError for a file of other features or shapes."""
        if tuple(record.get("features", ())) != REQUEST_FEATURES:
            raise SettingError(
                "the imitation model was fitted on other features than this version has; fit it again"
            )
        model = cls(
            TreeScores.from_json(record["trees"]),
            (np.asarray(record["edges"][0]), np.asarray(record["edges"][1])),
            np.asarray(record["hazard"]),
            str(record["trained_on"]),
            int(record["seed"]),
            str(record["command"]),
        )
        if model.hazard.shape != (model.classes, AGES):
            raise SettingError(
                f"hazard has shape {model.hazard.shape}, {(model.classes, AGES)} is needed; fit the model again"
            )
        return model

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "features": list(REQUEST_FEATURES),
            "trained_on": self.trained_on,
            "seed": self.seed,
            "command": self.command,
            "edges": [np.round(edges, 5).tolist() for edges in self.edges],
            "hazard": np.round(self.hazard, 6).tolist(),
            "trees": self.trees.to_json(),
        }


@cache
def shipped_model() -> RequestModel:
    """The model in `decision/data`."""
    text = files("zerolayer.decision").joinpath("data", SHIPPED).read_text(encoding="utf-8")
    return RequestModel.from_json(json.loads(text))


class BlockTracker:
    """Follows every block, resident or not: its class, when it was last referenced, and what its class has shown."""

    def __init__(self, model: RequestModel) -> None:
        self.model = model
        self.history = BlockHistory()
        self.survival = SurvivalTable(model.hazard)
        self.now = 0.0
        self.kind = np.zeros(1024, dtype=np.int64)  # [blocks] class
        self.time_s = np.zeros(1024)  # [blocks] of the last reference
        self.number = np.full(1024, -1, dtype=np.int64)  # [blocks] of the last reference, -1 never
        self._since_sweep = 0
        self._density: list[list[float]] = self.survival.density.tolist()

    @property
    def timescale_s(self) -> float:
        """Median time after which a chain is extended."""
        return self.history.timescale_s

    def begin(self, request: Request) -> list[int]:
        """Classify the request's blocks, learn from what returned; returns the class of each block."""
        chain = np.asarray(request.blocks, dtype=np.int64)
        self.now = request.time_s
        if not len(chain):
            return []
        segments = self.history.observe(request)
        self._grow(len(self.history.count))
        back = chain[self.number[chain] >= 0]
        ages = ((self.now - self.time_s[back]) / self.timescale_s).astype(np.float32)
        self.survival.returned(self.kind[back], ages)
        kinds = np.repeat(self.model.classify(segments.features), np.diff(segments.ends, prepend=0))
        numbers = self.survival.note(chain, kinds, self.now)
        self.kind[chain], self.time_s[chain], self.number[chain] = kinds, self.now, numbers
        self._since_sweep += len(chain)
        if self._since_sweep >= SWEEP_REFERENCES:
            self._since_sweep = 0
            self.survival.sweep(self.now, self.timescale_s, self.number.__getitem__)
            self._density = self.survival.density.tolist()
        return kinds.tolist()

    def density(self, kind: int, last_s: float) -> float:
        """Hits per timescale that a block of a class, referenced last at `last_s`, is expected to earn from now on."""
        age = bisect_right(_AGE_EDGES, (self.now - last_s) / self.timescale_s) - 1
        return self._density[kind][age]

    def _grow(self, size: int) -> None:
        more = size - len(self.kind)
        if more > 0:
            self.kind = np.concatenate([self.kind, np.zeros(more, dtype=np.int64)])
            self.time_s = np.concatenate([self.time_s, np.zeros(more)])
            self.number = np.concatenate([self.number, np.full(more, -1, dtype=np.int64)])
