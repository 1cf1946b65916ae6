"""What a learned policy observes: a fixed vector of named numbers, the same in simulation and in a live session.

All of it is known before the answer starts, from the block table and from what the policy itself has noted of
earlier turns. Nothing depends on the size of a document or a device, so one policy serves all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import BlockTable, FloatArray, Grade
from zerolayer.decision.policy import evictable

FIELDS = (
    "heat_concentration",  # share of the decayed attention on its hottest tenth of blocks
    "heat_resident",  # share of the decayed attention that lies on the device
    "pressure_device",  # resident blocks / capacity
    "pressure_locked",  # pinned and P0 blocks / capacity
    "pressure_host",  # stored bytes / host budget, at most 2, as the session reports it
    "pressure_disk",  # spilled bytes / disk budget, at most 2
    "device_share",  # capacity / blocks of the document, at most 1
    "intent_entropy",  # entropy of the question's match over blocks / log(blocks)
    "match_resident",  # share of the question's match that lies on the device
    "grade_p0",  # share of blocks
    "grade_p1",
    "grade_p2",
    "grade_p3",
    "calibration_drift",  # predicted minus observed use, times 10
    "recall_cut",  # log10 of the probability of use at which recall stops, halved: -1 at 0.01, 0 at 1
    "turn_phase",  # turn / (turn + 10): 0 at the start of a session, towards 1 in a long one
    "last_coverage",  # of the last turn's used blocks, those on the device when its answer began
    "last_recall",  # blocks recalled in the last turn / capacity
    "last_used",  # blocks used in the last turn / capacity, at most 1
    "loads_per_use",  # blocks loaded / blocks used, exponentially averaged, over 10, at most 1
)
"""Order and meaning of the vector's elements; every element lies within `LOW` to `HIGH`."""

LOW, HIGH = -2.0, 2.0
SIZE = len(FIELDS)

_KEEP = 0.8
_TINY = np.float32(1e-12)


@dataclass(slots=True)
class History:
    """What a session remembers from turn to turn. The values of the fields that a table does not hold."""

    heat: float | None = None  # sum of the decayed attention; None: not summed yet
    heat_concentration: float = 0.0
    locked: int | None = None  # blocks that never leave before the next grading; None: not counted yet
    grades: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 0.0)
    pressure_host: float = 0.0
    pressure_disk: float = 0.0
    drift: float = 0.0
    cut: float = 0.04
    last_coverage: float = 1.0
    last_recall: float = 0.0
    last_used: float = 0.0
    loads_per_use: float = 1.0

    def end_turn(
        self, table: BlockTable, used: Sequence[int], covered: int, recalled: int, loads: int
    ) -> None:
        """Note a finished turn, outside the time of any decision."""
        n, heat = len(table), table.attention
        tenth = max(1, n // 10)
        self.heat = float(heat.sum())
        hottest = float(np.partition(heat, n - tenth)[n - tenth :].sum())
        self.heat_concentration = hottest / max(self.heat, 1e-9)
        self.locked = table.resident_count - int(evictable(table).sum())
        counts = np.bincount(table.grade, minlength=len(Grade)) / n
        self.grades = (float(counts[0]), float(counts[1]), float(counts[2]), float(counts[3]))
        self.last_coverage = covered / len(used) if used else 1.0
        self.last_recall = recalled / max(table.capacity, 1)
        self.last_used = min(1.0, len(used) / max(table.capacity, 1))
        if used:
            self.loads_per_use = _KEEP * self.loads_per_use + (1 - _KEEP) * loads / len(used)


def observe(table: BlockTable, history: History) -> FloatArray:
    """The observation, float32 `[SIZE]`; not a number, or an infinity, anywhere in the table is passed on."""
    n, capacity = len(table), max(table.capacity, 1)
    on_device = table.resident.astype(np.float32)
    resident = int(np.count_nonzero(table.resident))
    locked = history.locked
    if locked is None:
        locked = history.locked = int(resident - np.count_nonzero(evictable(table)))
    heat = history.heat
    if heat is None:
        heat = history.heat = float(table.attention.sum())
    match = float(table.match.sum())
    entropy = 0.0
    if match > 0.0:  # -sum(p log p) with p = match / sum(match)
        raw = float(table.match.dot(np.log(table.match + _TINY)))
        entropy = (math.log(match) - raw / match) / math.log(max(n, 2))
    values = (
        history.heat_concentration,
        float(table.attention.dot(on_device)) / max(heat, 1e-9),
        resident / capacity,
        locked / capacity,
        min(history.pressure_host, 2.0),
        min(history.pressure_disk, 2.0),
        min(1.0, capacity / n),
        entropy,
        float(table.match.dot(on_device)) / max(match, 1e-9),
        *history.grades,
        10.0 * history.drift,
        0.5 * math.log10(max(history.cut, 1e-4)),
        table.turn / (table.turn + 10.0),
        history.last_coverage,
        history.last_recall,
        history.last_used,
        min(1.0, history.loads_per_use / 10.0),
    )
    return np.array(values, dtype=np.float32)
