"""The shadow of a static policy: what it would have done, on ghost entries that hold no KV and move no byte.

Both the real session and its shadow are judged by the same books, from what a live session can see: an eviction
was wrong if the block had to be loaded again within 10 turns. The units are those of decision.reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision import planner
from zerolayer.decision.grading import HORIZON_TURNS
from zerolayer.decision.policy import Policy, evictable
from zerolayer.decision.reward import RewardWeights, TurnOutcome, reward
from zerolayer.errors import BudgetError

_LOAD_MS = 2.0
_RESIDENT_MS = 0.001


class Books:
    """Judges turns by which blocks came, went and were used."""

    def __init__(self, weights: RewardWeights, block_mb: float) -> None:
        self._weights, self._block_mb = weights, block_mb
        self._resident = np.zeros(0, dtype=np.bool_)
        self._idle = np.zeros(0, dtype=np.bool_)  # loaded, not used since
        self._left = np.zeros(0, dtype=np.int64)  # turn of the last eviction

    def close_turn(self, table: BlockTable, there: BoolArray, used: Sequence[int], mass: FloatArray) -> float:
        """The reward of a turn: `there` [n] was resident when the answer began, `mass` [n] is what it attended to."""
        n, turn, now = len(table), table.turn, table.resident
        if len(self._resident) != n:
            self._resident, self._idle = now.copy(), np.zeros(n, dtype=np.bool_)
            self._left = np.full(n, -HORIZON_TURNS - 1, dtype=np.int64)
        index = np.asarray(used, dtype=np.int64)
        touched = np.zeros(n, dtype=np.bool_)
        touched[index] = True
        came, went = now & ~self._resident, self._resident & ~now
        again = came & (turn - self._left <= HORIZON_TURNS)
        wasted = went & self._idle & ~touched
        self._left[went] = turn
        self._idle = (self._idle | came) & now & ~touched
        self._resident = now.copy()
        total = float(mass.sum())
        covered = float(there[index].mean()) if len(index) else 1.0
        outcome = TurnOutcome(
            device_mb=self._block_mb * table.resident_count,
            answer_bleu4=float(mass[there].sum()) / total if total > 0.0 else 1.0,
            p0_latency_ms=covered * _RESIDENT_MS + (1.0 - covered) * _LOAD_MS,
            wrong_eviction_tokens=int(table.tokens[again].sum()),
            over_prefetched_tokens=int(table.tokens[wasted].sum()),
        )
        return reward(outcome, self._weights).total


class Shadow:
    """A static policy beside the one that decides, on a ghost of its table."""

    def __init__(self, policy: Policy, weights: RewardWeights, block_mb: float) -> None:
        self.policy = policy
        self._books = Books(weights, block_mb)
        self._ghost: BlockTable | None = None
        self._there = np.zeros(0, dtype=np.bool_)
        self._reserve = 0

    @property
    def ghost(self) -> BlockTable | None:
        """What the static policy would hold; None before the first turn."""
        return self._ghost

    def recall(self, table: BlockTable, limit: int) -> None:
        """A turn begins with `table`, of which at most `limit` blocks can be loaded."""
        ghost = self._follow(table)
        self._reserve = max(0, table.free + int(evictable(table).sum()) - limit)
        try:
            plan = planner.plan_turn(self.policy, ghost, self._reserve)
        except BudgetError:
            plan = None  # the ghost's own P0 leave no room: it recalls nothing
        if plan is not None:
            _carry_out(ghost, plan.evict, plan.load)
        self._there = ghost.resident.copy()

    def end_turn(self, used: Sequence[int], mass: FloatArray) -> float | None:
        """The turn used the blocks `used`; returns its reward under the static policy, None before any recall."""
        ghost = self._ghost
        if ghost is None or len(self._there) != len(mass):
            return None
        for block in used:
            if not ghost.resident[block]:
                try:
                    plan = planner.plan_fault(self.policy, ghost, block, self._reserve)
                except BudgetError:
                    continue
                _carry_out(ghost, plan.evict, plan.load)
        ghost.touch(used)
        value = self._books.close_turn(ghost, self._there, used, mass)
        planner.end_turn(self.policy, ghost, used, mass)
        return value

    def _follow(self, table: BlockTable) -> BlockTable:
        """The ghost, brought to the question and the length of the real table."""
        ghost = self._ghost
        if ghost is None or len(ghost) > len(table) or ghost.capacity != table.capacity:
            ghost = BlockTable.create(table.tokens.tolist(), table.capacity, table.block_tokens)
            ghost.resident[:], ghost.last_touch[:], ghost.now = table.resident, table.last_touch, table.now
            ghost.last_used_turn[:], ghost.use_count[:] = table.last_used_turn, table.use_count
            ghost.attention[:], ghost.grade[:] = table.attention, table.grade
        elif len(ghost) < len(table):
            ghost.grow(len(table) - len(ghost))
        ghost.features, ghost.turn = table.features, table.turn
        ghost.match[:], ghost.pinned[:] = table.match, table.pinned
        self._ghost = ghost
        return ghost


def _carry_out(table: BlockTable, evict: Sequence[int], load: Sequence[int]) -> None:
    table.resident[list(evict)] = False
    table.resident[list(load)] = True
    table.touch(load)
