"""What an answer is to see: recalled before it starts, asked for while it runs, and room for its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.core import BoolArray, FloatArray, Grade, Plan, TurnMetrics
from zerolayer.decision import planner
from zerolayer.errors import BudgetError, QuestionTooLongError
from zerolayer.perception.recall import Signals, fuse
from zerolayer.runtime.answering import FAULT_ROOM, Decoding

if TYPE_CHECKING:
    import torch

    from zerolayer.scheduler import Scheduler

FAULT_FACTOR = 2.0
"""A block out of sight is wanted when its bound is this many times the best one in sight."""

NEEDED_MATCH = 0.8
NEEDED_BLOCKS = 4
"""What a question needs at least: at most this many blocks whose match is this share of the best one's."""


LAST_BLOCKS = 2
"""What stands right before the question is in sight: so many blocks, at most a quarter of what the question leaves
and of what an answer may see.

Models lean on it, whatever is asked: without it answers stray further from those of the full cache (docs/signals.md).
"""

ANSWER_TOKENS = 256
"""An answer that may be so long finds room: what is in sight is fewer blocks then, if need be."""


class Recaller:
    """Brings blocks in sight for one scheduler's answers, as its policy decides."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._fault_room = 0  # slots reserved for blocks that the running answer asks for
        self._most_in_sight = 0  # slots, so that the answer finds room
        self._before_question = 0  # blocks in sight because they stand right before it
        self._attention: FloatArray = np.zeros(
            0, dtype=np.float32
        )  # [blocks] that the question may pay to each block

    def recall(
        self,
        question_ids: Sequence[int],
        pending: int,
        signals: Signals,
        decoding: Decoding,
        metrics: TurnMetrics,
    ) -> Plan:
        """Observe the question, decide, execute: afterwards what the answer is to see is in sight.

        `pending` tokens of the turn before stand in front of the question and need room as well.
        """
        ws, table, settings = self._scheduler.working_set, self._scheduler.table, self._scheduler.settings
        max_new_tokens = decoding.reserved
        tail = pending + len(question_ids)
        reserve = -(-(tail + max_new_tokens) // settings.block_tokens)
        room = settings.slots - settings.sink_blocks - 1
        if reserve > room:
            raise QuestionTooLongError(
                f"the question has {tail} tokens and its answer may have {max_new_tokens}; together "
                f"they may have {room * settings.block_tokens} beside the sinks and one block; ask shorter, lower "
                f"--max-new-tokens or raise --device-budget (the window has {self._scheduler.engine.window} tokens)"
            )
        self._fault_room = min(FAULT_ROOM, room - reserve)
        reserve += self._fault_room
        likely = -(-(tail + min(decoding.limit, ANSWER_TOKENS)) // settings.block_tokens)
        self._most_in_sight = settings.slots - max(reserve, likely + self._fault_room)
        queries = self._scheduler.engine.question_queries(ws.tokens_of(0).tolist(), question_ids)
        self._attention = ws.bounds.score(queries)
        table.match[:] = fuse(signals.padded(len(table)), self._attention)
        table.match[: settings.sink_blocks] = 0.0
        knit_tokens = int(settings.knit_share * settings.attend_blocks * settings.block_tokens)
        last = self._hold_last(reserve)
        self._before_question = len(last)
        try:
            return self._bring(reserve, knit_tokens, metrics)
        finally:
            table.pinned[last] = False

    def _bring(self, reserve: int, knit_tokens: int, metrics: TurnMetrics) -> Plan:
        """Plan with the match that the table holds, and bring in sight what is pinned, needed and chosen."""
        ws, table = self._scheduler.working_set, self._scheduler.table
        self._bring_pinned(reserve, metrics)
        needed = self._needed()
        plan = planner.plan_turn(self._scheduler.policy, table, reserve, knit_tokens, self._knittable())
        ws.bring(plan, self._in_sight(plan, needed), reserve)
        metrics.recalled_blocks += len(plan.load)
        metrics.evicted_blocks += len(plan.evict)
        for block in needed:
            if table.resident[block]:
                continue
            try:
                fault = planner.plan_fault(self._scheduler.policy, table, block, reserve)
            except BudgetError:
                break  # what is resident is pinned or P0: the answer does without
            ws.bring(fault, self._in_sight(fault, needed), reserve)
            metrics.fault_blocks += len(fault.load)
            metrics.evicted_blocks += len(fault.evict)
        return plan

    def _bring_pinned(self, reserve: int, metrics: TurnMetrics) -> None:
        """What is pinned and away comes to the device, whatever the policy thinks of it."""
        scheduler = self._scheduler
        table = scheduler.table
        away = np.flatnonzero(table.pinned & ~table.resident).tolist()
        try:
            plan = planner.plan_pinned(scheduler.policy, table, away, reserve)
        except BudgetError:  # what somebody pins outranks what persistence alone made P0
            table.grade[(table.grade == int(Grade.P0)) & ~table.pinned] = int(Grade.P1)
            plan = planner.plan_pinned(scheduler.policy, table, away, reserve)
        if plan.load:
            seen = set(scheduler.arena.occupant[: scheduler.arena.in_sight].tolist()) - set(plan.evict)
            scheduler.working_set.bring(plan, sorted({*seen, *plan.load}), reserve)
            metrics.recalled_blocks += len(plan.load)
            metrics.evicted_blocks += len(plan.evict)

    def share_of_attention(self, resident: BoolArray) -> float:
        """Share of the question's attention on the document that may fall on `resident` [blocks], sinks left out.

        By the bounds of the blocks' keys: an estimate while it runs, where there is no reference run to compare with.
        """
        attention = self._attention.copy()
        attention[: self._scheduler.settings.sink_blocks] = 0.0
        total = float(attention.sum())
        return float(attention[resident].sum()) / total if total > 0 else 1.0

    def room_for_token(self, metrics: TurnMetrics) -> bool:
        """Whether the tail has room for one more token, which blocks out of sight make if need be.

        What is in sight stays. A block that the answer may ask for keeps its slot as long as there is room for both.
        """
        ws, arena, table = self._scheduler.working_set, self._scheduler.arena, self._scheduler.table
        last = arena.rows // arena.block_tokens  # the slot of the next token
        if arena.rows % arena.block_tokens and last < arena.slots:
            return True
        for spare in dict.fromkeys((self._fault_room, 0)):
            reserve = last + 1 + spare - arena.in_sight
            count = max(0, reserve - (arena.slots - arena.used_slots))
            seen = np.zeros(len(table), dtype=np.bool_)
            seen[arena.occupant[: arena.in_sight]] = True
            victims = self._scheduler.policy.victims(table, count, seen) if count else []
            if last + spare < arena.slots and len(victims) == count:
                ws.extend_tail(Plan(evict=tuple(victims), reason="room for the answer"), reserve)
                metrics.evicted_blocks += count
                self._fault_room = spare
                return True
        return False

    def _in_sight(self, plan: Plan, needed: Sequence[int]) -> list[int]:
        """What the answer is to see once `plan` is carried out: what is pinned, `needed`, then the policy's choice."""
        table = self._scheduler.table
        before = table.resident
        table.resident = before.copy()
        table.resident[list(plan.evict)], table.resident[list(plan.load)] = False, True
        pinned = np.flatnonzero(table.pinned & table.resident).tolist()
        most = self._scheduler.settings.attend_blocks - self._before_question
        limit = max(1, min(most, self._most_in_sight - len(pinned)))
        first = [block for block in needed if table.resident[block] and not table.pinned[block]]
        chosen = dict.fromkeys([*first, *self._scheduler.policy.attend(table, limit)])
        attended = list(chosen)[: max(limit, len(first))]
        table.resident = before
        return [*pinned, *attended]

    def _hold_last(self, reserve: int) -> list[int]:
        """Pin the last blocks of the stream that are not pinned anyway; fewer where there is no room for them."""
        ws, table, sizes = self._scheduler.working_set, self._scheduler.table, self._scheduler.settings
        quarter = min(sizes.slots - reserve, sizes.attend_blocks) // 4
        for count in range(min(LAST_BLOCKS, quarter), 0, -1):
            last = [b for b in range(max(sizes.sink_blocks, ws.done - count), ws.done) if not table.pinned[b]]
            table.pinned[last] = True
            if planner.room_beside(table, reserve) >= int((table.pinned & ~table.resident).sum()):
                return last
            table.pinned[last] = False
        return []

    def _knittable(self) -> list[int]:
        """Blocks that match well enough to be knit, wherever they are now."""
        match = self._scheduler.table.match
        return np.flatnonzero(match >= max(self._scheduler.settings.knit_match, 1e-6)).tolist()

    def _needed(self) -> list[int]:
        """Blocks that the question cannot do without, whatever the policy thinks of them, best first."""
        match = self._scheduler.table.match
        best = np.argsort(-match, kind="stable")[:NEEDED_BLOCKS]
        return [int(b) for b in best if match[b] >= NEEDED_MATCH]

    def serve_fault(self, queries: list[torch.Tensor], position: int) -> int:
        """Bring a block in sight that the running answer wants; returns how far the tail's positions moved.

        Its slot was reserved with the tail's, so nothing has to leave.
        """
        ws = self._scheduler.working_set
        if not self._fault_room:
            return 0
        score = ws.bounds.score(self._scheduler.engine.unrotated(queries, position))
        visible = np.zeros(len(self._scheduler.table), dtype=np.bool_)
        visible[self._scheduler.arena.occupant[: self._scheduler.arena.in_sight]] = True
        away = np.where(visible, 0.0, score)
        visible[: self._scheduler.settings.sink_blocks] = False
        block = int(away.argmax())
        if away[block] < FAULT_FACTOR * float(score[visible].max(initial=1e-9)):
            return 0
        ws.insert(block)
        self._fault_room -= 1
        return self._scheduler.settings.block_tokens
