"""The contract of a policy, and the two selections that every policy shares.

A policy sees a `core.BlockTable` and nothing else, so the same object serves the live scheduler, the
replay simulator and a serving engine. It proposes; `decision.planner` checks and combines; nobody here
moves a byte. One policy object belongs to one session: it may learn between turns. It never draws a
random number, so two runs of the same session are identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from zerolayer.core import BlockTable, BoolArray, FloatArray, Grade, IntArray, Plan
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.persistence import PersistenceModel


@runtime_checkable
class Policy(Protocol):
    """Who decides which blocks are on the device. Block indices are rows of the table."""

    name: str

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """Exactly `count` evictable blocks outside `keep` [n], worst first; `[]` if there are fewer."""
        ...

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """At most `limit` absent blocks to load before the answer starts, best first."""
        ...

    def attend(self, table: BlockTable, limit: int) -> list[int]:
        """At most `limit` resident blocks that the answer is to see beside the pinned ones, best first.

        What is resident and not in sight costs device memory and no attention.
        """
        ...

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """At most `limit` absent blocks to load between turns, best first.

        Asked when a session starts from storage, before any question, and when the next question was forecast:
        then `table.forecast` is not all zeros, and only blocks of the forecast are loaded.
        """
        ...

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """What one fault loads: absent blocks, `fault` first."""
        ...

    def knit(self, table: BlockTable, candidates: Sequence[int], limit: int) -> list[int]:
        """At most `limit` of the `candidates` to recompute in each other's sight, best first."""
        ...

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learn from a finished turn; may set `table.grade`.

        `used` are the blocks that carried the answer, `mass` [n] the attention mass of every block. The
        table's counters already include this turn (`planner.end_turn` sees to that); `table.match` is still
        the question's.
        """
        ...


@runtime_checkable
class GradingPolicy(Policy, Protocol):
    """A policy that grades by persistence."""

    @property
    def drift(self) -> float:
        """Predicted minus observed use, exponentially averaged over turns."""
        ...

    def set_thresholds(self, table: BlockTable, thresholds: Thresholds) -> None:
        """Cut grades at these persistences from now on; what has been graded is graded again."""
        ...

    def use_persistence(self, model: PersistenceModel | None) -> None:
        """Take persistence from a calibrated model, or (None) from the hand-set noisy-or."""
        ...


@runtime_checkable
class ReleasingPolicy(Policy, Protocol):
    """A policy that empties part of the device between turns."""

    def release(self, table: BlockTable) -> Plan:
        """Evictions at the end of a turn, after it was learned from; no loads."""
        ...


@runtime_checkable
class SteeringPolicy(Policy, Protocol):
    """A policy that decides again while a turn runs, and says when it has fallen back to a static one."""

    @property
    def fallback(self) -> str:
        """Why a static strategy decides now; empty where the policy's own does."""
        ...

    def prepare(self, table: BlockTable, event: str) -> None:
        """A plan is about to be made, for a `question` or a `fault`: the last moment to grade again."""
        ...

    def tick(self, table: BlockTable) -> bool:
        """Decide again if the last decision has grown old; whether it did. Called between two tokens."""
        ...

    def note_pressure(self, host: float, disk: float) -> None:
        """Stored bytes over the budget of either tier."""
        ...

    def why(self) -> str:
        """Why it decides as it does now, in one line."""
        ...


def resident_blocks(table: BlockTable, limit: int) -> list[int]:
    """At most `limit` resident unpinned blocks, the last ones of the document first: the windows' `attend`."""
    return [int(block) for block in np.flatnonzero(table.resident & ~table.pinned)[::-1][:limit]]


def last_blocks(table: BlockTable, limit: int) -> list[int]:
    """At most `limit` absent blocks from the end of the document: the windows' `warm`, after reading."""
    return [int(block) for block in np.flatnonzero(~table.resident)[::-1][:limit]]


def evictable(table: BlockTable) -> BoolArray:
    """[n] blocks that may leave the device: resident, neither pinned nor P0."""
    free_to_go: BoolArray = table.resident & ~table.pinned & (table.grade != int(Grade.P0))
    return free_to_go


def lowest(candidates: IntArray, count: int, *keys: npt.NDArray[np.generic]) -> list[int]:
    """`count` of the `candidates` with the smallest keys, smallest first; `[]` if there are fewer.

    `keys` are arrays over the candidates, the most important first; ties go to the lowest index.
    """
    if count <= 0 or len(candidates) < count:
        return []
    order = np.lexsort((candidates, *reversed(keys)))
    return [int(index) for index in candidates[order[:count]]]
