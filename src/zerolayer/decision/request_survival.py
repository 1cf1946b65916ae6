"""Hit density: how many hits a slot earns per unit of time if it keeps a block, learned online.

Blocks fall into classes (by their scores at the last reference). For each class and bucket of age since that reference
the chance to be referenced in the bucket is events over blocks that reached it, with the shipped table as a prior. The
worth of a block at an age is the best, over times to hold it, of expected hits over expected time held (LHD, Beckmann
et al., NSDI 2018; the Gittins index of a slot). Ages are in units of the timescale.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zerolayer.core import FloatArray, IntArray

AGE_EDGES = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.5, 5.0, 8.0, 16.0])
AGES = len(AGE_EDGES) - 1
PRIOR_BLOCKS = 300.0
HALF_LIFE = 300_000.0  # references after which an observation counts half


class SurvivalTable:
    """Events and exposures by class and age; `density` [classes, AGES + 1] in hits per timescale."""

    def __init__(self, prior: FloatArray, prior_blocks: float = PRIOR_BLOCKS) -> None:
        classes = len(prior)
        self.prior = prior.astype(np.float64)
        self.weight = prior_blocks
        self.events = np.zeros((classes, AGES))
        self.exposed = np.zeros((classes, AGES))
        self._swept = [0] * AGES
        self._size, self._first = 0, 0
        self._block = np.zeros(4096, dtype=np.int64)
        self._class = np.zeros(4096, dtype=np.int64)
        self._time = np.zeros(4096)
        self.density = np.zeros((classes, AGES + 1))
        self.refresh()

    def note(self, blocks: IntArray, classes: IntArray, now: float) -> IntArray:
        """Log references; returns their numbers, which identify them for `sweep`."""
        count = len(blocks)
        if self._size + count > len(self._block):
            self._compact(count)
        span = slice(self._size, self._size + count)
        self._block[span], self._class[span], self._time[span] = blocks, classes, now
        self._size += count
        return np.arange(self._first + span.start, self._first + span.stop)

    def returned(self, classes: IntArray, ages: FloatArray) -> None:
        """Blocks of these classes were referenced again at these ages."""
        bucket = np.searchsorted(AGE_EDGES, ages, side="right") - 1
        young = bucket < AGES
        np.add.at(self.events, (classes[young], bucket[young]), 1.0)

    def sweep(self, now: float, timescale: float, latest: Callable[[IntArray], IntArray]) -> None:
        """Count the blocks that reached each age since the last sweep, and renew the densities.

        `latest` gives for blocks the number of their latest reference: earlier ones have returned already.
        """
        before = self._swept[0]
        passed = np.searchsorted(self._time[: self._size], now - AGE_EDGES[:AGES] * timescale, side="right")
        for age, reached in enumerate(passed.tolist()):
            low = self._swept[age]
            if reached <= low:
                continue
            numbers = np.arange(self._first + low, self._first + reached)
            alive = (
                np.ones(reached - low, dtype=np.bool_)
                if age == 0
                else latest(self._block[low:reached]) == numbers
            )
            self.exposed[:, age] += np.bincount(self._class[low:reached][alive], minlength=len(self.exposed))
            self._swept[age] = reached
        keep = 0.5 ** ((self._swept[0] - before) / HALF_LIFE)
        self.events *= keep
        self.exposed *= keep
        self.refresh()

    def hazard(self) -> FloatArray:
        """[classes, AGES] chance to be referenced in the bucket, given that it was reached."""
        found = (self.events + self.prior * self.weight) / (self.exposed + self.weight)
        return np.clip(found, 1e-6, 0.999)

    def refresh(self) -> None:
        """Compute the densities from the counts."""
        hazard = self.hazard()
        alive = np.concatenate([np.ones((len(hazard), 1)), np.cumprod(1 - hazard, axis=1)], axis=1)
        held = np.diff(AGE_EDGES) * (alive[:, 1:] + alive[:, :-1]) / 2
        held = np.concatenate([np.zeros((len(hazard), 1)), np.cumsum(held, axis=1)], axis=1)
        for age in range(AGES):
            hits = alive[:, age : age + 1] - alive[:, age + 1 :]
            self.density[:, age] = (hits / (held[:, age + 1 :] - held[:, age : age + 1])).max(axis=1)

    def _compact(self, count: int) -> None:
        """Drop what every sweep has passed; make room for `count` more."""
        done = min(self._swept)
        size = self._size - done
        room = max(4096, 2 * (size + count))
        for name in ("_block", "_class", "_time"):
            old = getattr(self, name)
            new = np.zeros(room, dtype=old.dtype)
            new[:size] = old[done : self._size]
            setattr(self, name, new)
        self._swept = [swept - done for swept in self._swept]
        self._size, self._first = size, self._first + done
