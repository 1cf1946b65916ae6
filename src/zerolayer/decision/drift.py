"""Drift: predicted minus observed use, measured every turn.

A prediction covers the next 10 turns, so it is held until then. Before ten turns have passed it is compared
with the turns there were, under a constant hazard: 1 - (1 - p) ** (turns / 10).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from zerolayer.core import BoolArray, FloatArray

_KEEP = 0.8
"""Share of the average that is carried from one turn to the next."""


class Drift:
    """Mean persistence minus the share of blocks used since, exponentially averaged over turns."""

    def __init__(self, horizon_turns: int) -> None:
        self._horizon = horizon_turns
        self._held: deque[tuple[FloatArray, BoolArray]] = deque(maxlen=horizon_turns)
        self._mean = self._weight = 0.0

    @property
    def value(self) -> float:
        """Above 0: use is overestimated. 0 before the second turn."""
        return self._mean / self._weight if self._weight else 0.0

    def update(self, persistence: FloatArray, used: BoolArray) -> None:
        """A turn used the blocks `used` [n]; after it, `persistence` [n] is predicted for the turns to come."""
        if self._held and len(self._held[0][0]) != len(used):
            self._held.clear()  # the stream has grown: what was predicted was of another set of blocks
        for _, since in self._held:
            since |= used
        if self._held:
            predicted, since = self._held[0]
            expected = 1.0 - (1.0 - predicted.astype(np.float64)) ** (len(self._held) / self._horizon)
            self._mean = _KEEP * self._mean + (1.0 - _KEEP) * float(expected.mean() - since.mean())
            self._weight = _KEEP * self._weight + (1.0 - _KEEP)
        self._held.append((persistence.copy(), np.zeros_like(used)))
