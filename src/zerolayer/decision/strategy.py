"""The window strategy: what a preset fixes and a learned policy chooses, and the actions that name its values.

A strategy moves nothing. It sets how full the device may stay between turns, where grades are cut, how deep recall
and prefetch go, and how blocks are stored; the planner and the verifier hold their laws under any strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

import numpy as np

from zerolayer.core import BlockTable, BoolArray, Plan
from zerolayer.decision import planner
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import Policy, evictable
from zerolayer.errors import SettingError


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Above `high`, a share of the device's blocks, a turn's end evicts down to `low`. Raises SettingError."""

    low: float = 1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.low <= self.high <= 1.0:
            raise SettingError(
                f"watermarks low={self.low} high={self.high} must satisfy 0 < low <= high <= 1, such as 0.6, 0.8"
            )


@dataclass(frozen=True, slots=True)
class WindowStrategy:
    """How a session uses its device memory. The default is the graded policy as it is. Raises SettingError."""

    watermarks: Watermarks = field(default_factory=Watermarks)
    thresholds: Thresholds = field(default_factory=Thresholds)
    recall_factor: float = 1.0  # times the probability of use at which recall stops: below 1 recalls more
    prefetch_blocks: int = 0  # at most so many blocks of a forecast are loaded between turns
    codec: str = "K8V4"  # of blocks that are written from now on

    def __post_init__(self) -> None:
        if not self.recall_factor > 0.0:
            raise SettingError(f"recall_factor is {self.recall_factor}; it must be above 0, 1 for no change")
        if self.prefetch_blocks < 0:
            raise SettingError(f"prefetch_blocks is {self.prefetch_blocks}; it must be 0 or more")


WATERMARKS = (
    Watermarks(),
    Watermarks(0.8, 0.9),
    Watermarks(0.6, 0.75),
    Watermarks(0.4, 0.5),
    Watermarks(0.2, 0.3),
)
THRESHOLDS = (
    Thresholds(),
    Thresholds(0.08, 0.05, 0.02),
    Thresholds(0.35, 0.20, 0.10),
    Thresholds(0.70, 0.40, 0.20),
)
RECALL_FACTORS = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0)
PREFETCH_BLOCKS = (0, 2, 4, 8, 16)
CODECS = ("K8V4", "INT8", "BF16Z")

ACTION_FIELDS = ("watermarks", "thresholds", "recall_factor", "prefetch_blocks", "codec")
ACTION_SIZES = (len(WATERMARKS), len(THRESHOLDS), len(RECALL_FACTORS), len(PREFETCH_BLOCKS), len(CODECS))
"""An action is one index a field; zeros are the default strategy."""

NO_CHANGE = (0, 0, 0, 0, 0)


def strategy_of(action: Sequence[int]) -> WindowStrategy:
    """The strategy that an action names. Raises SettingError for an index out of range."""
    return _strategy(tuple(action))


@lru_cache(maxsize=1024)  # a learned policy names few of them, many times
def _strategy(action: tuple[int, ...]) -> WindowStrategy:
    if len(action) != len(ACTION_SIZES) or any(
        not 0 <= index < size for index, size in zip(action, ACTION_SIZES, strict=True)
    ):
        raise SettingError(f"action {list(action)} is out of range; indices lie below {list(ACTION_SIZES)}")
    watermarks, thresholds, recall, prefetch, codec = action
    return WindowStrategy(
        WATERMARKS[watermarks],
        THRESHOLDS[thresholds],
        RECALL_FACTORS[recall],
        PREFETCH_BLOCKS[prefetch],
        CODECS[codec],
    )


def action_mask(table: BlockTable, codec: str | None, locked: int | None = None) -> BoolArray:
    """[sum(ACTION_SIZES)] which indices are valid now, field after field; not to be written to.

    `locked` are the resident blocks that are pinned or P0, counted here where it is None.


    A watermark below what is pinned or P0 cannot be reached: those never leave. Prefetch takes free slots only, so a
    depth beyond what watermarks could free is invalid. Blocks are written while a document is read, so that once
    there is a `codec` (None: nothing is written yet) only that one is valid.
    """
    if locked is None:
        locked = table.resident_count - int(evictable(table).sum())
    return _mask(table.capacity, locked, codec)


@lru_cache(maxsize=1024)
def _mask(capacity: int, locked: int, codec: str | None) -> BoolArray:
    watermarks = [mark.low * capacity >= locked for mark in WATERMARKS]
    watermarks[0] = True
    thresholds = [True] * len(THRESHOLDS)
    recall = [True] * len(RECALL_FACTORS)
    prefetch = [depth == 0 or depth <= capacity - locked for depth in PREFETCH_BLOCKS]
    codecs = [codec is None or name == codec for name in CODECS]
    if codec is not None and codec not in CODECS:
        codecs[0] = True  # stored by a codec that is no action: the field says nothing
    mask = np.array([*watermarks, *thresholds, *recall, *prefetch, *codecs], dtype=np.bool_)
    mask.flags.writeable = False
    return mask


def valid_action(action: Sequence[int], mask: BoolArray) -> tuple[int, ...]:
    """The action with each masked index replaced by the nearest valid one of its field, the lower of two."""
    chosen, start = [], 0
    for index, size in zip(action, ACTION_SIZES, strict=True):
        allowed = np.flatnonzero(mask[start : start + size])
        chosen.append(int(allowed[np.argmin(np.abs(allowed - int(index)))]))
        start += size
    return tuple(chosen)


def plan_watermark(policy: Policy, table: BlockTable, marks: Watermarks) -> Plan:
    """Evictions at a turn's end: none below the high mark, else down to the low one as far as blocks may leave."""
    resident = table.resident_count
    if resident <= marks.high * table.capacity:
        return Plan(reason=f"{resident} of {table.capacity} blocks: below the high watermark {marks.high}")
    surplus = resident - ceil(marks.low * table.capacity)
    count = max(0, min(surplus, int(evictable(table).sum())))
    return planner.plan_room(policy, table, table.free + count)
