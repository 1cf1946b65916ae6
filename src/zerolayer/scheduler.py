"""The loop of one session: observe → grade → decide → execute.

Perception says what a question points at, the policy decides, programs carry it out. The scheduler owns the order
of these steps and nothing else: it knows no policy by name and moves no byte by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.answering import FAULT_ROOM, Answering, Attended
from zerolayer.core import BlockTable, FloatArray, Grade, Plan, Tier, TurnMetrics
from zerolayer.decision import planner
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.errors import BudgetError, QuestionTooLongError
from zerolayer.execution.arena import Arena
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import Outcome
from zerolayer.execution.tiers import TierHierarchy
from zerolayer.learning.traces import demand_set
from zerolayer.perception.heatmap import HeatMap
from zerolayer.perception.recall import Signals, fuse
from zerolayer.prefetching import Prefetcher
from zerolayer.working_set import SchedulerSettings, WorkingSet

if TYPE_CHECKING:
    import torch

    from zerolayer.engines.hf.engine import HFEngine

FAULT_FACTOR = 2.0
"""A block out of sight is wanted when its bound is this many times the best one in sight."""

NEEDED_MATCH = 0.8
NEEDED_BLOCKS = 4
"""What a question needs at least: at most this many blocks whose match is this share of the best one's."""


@dataclass(slots=True)
class TurnResult:
    """One finished turn."""

    token_ids: list[int]
    attended: Attended
    match: FloatArray  # [blocks], as it was when the answer began
    block_mass: FloatArray  # [blocks] share of the answer's attention on the document, sinks left out
    used: list[int]
    metrics: TurnMetrics
    log: list[Outcome] = field(default_factory=list)


class Scheduler:
    """Schedules the blocks of one stream of tokens by one policy."""

    def __init__(
        self,
        engine: HFEngine,
        tiers: TierHierarchy,
        policy: Policy,
        token_ids: Sequence[int],
        block_ids: Sequence[str],
        settings: SchedulerSettings,
    ) -> None:
        self.engine, self.policy, self.settings = engine, policy, settings
        self.working_set = WorkingSet(engine, tiers, token_ids, block_ids, settings)
        self.prefetcher = Prefetcher(self.working_set)
        arena = self.working_set.arena
        self.heat = HeatMap(arena.slots, arena.block_tokens, arena.slot_bytes, settings.heatmap_side)
        self._fault_room = 0  # slots reserved for blocks that the running answer asks for

    @property
    def table(self) -> BlockTable:
        """What is known of each block."""
        return self.working_set.table

    @property
    def arena(self) -> Arena:
        """The device memory."""
        return self.working_set.arena

    @property
    def executor(self) -> Executor:
        """Through which everything moves."""
        return self.working_set.executor

    def sibling(self, policy: Policy, settings: SchedulerSettings, blocks: int | None = None) -> Scheduler:
        """Another scheduler over the first `blocks` document blocks (all by default) and the same tiers.

        It has an arena of its own, which the engine uses from now on.
        """
        ws, count = self.working_set, blocks or self.working_set.document_blocks
        tokens = ws.tokens[: count * settings.block_tokens].tolist()
        return Scheduler(self.engine, ws.executor.tiers, policy, tokens, ws.document_ids[:count], settings)

    # Reading

    def restore(self) -> int:
        """Start from storage; returns the number of leading blocks that need no prefill."""
        ws, settings = self.working_set, self.settings
        done = ws.restore()
        resident = [block for block in range(settings.sink_blocks) if block < done]
        room = settings.slots - len(resident) - ws.chunk_blocks
        if done < len(ws.table):  # the next chunk needs its window
            resident += range(max(len(resident), done - room), done)
        elif done:
            resident += self.policy.warm(ws.table, room)
        resident = sorted(set(resident))
        ws.bring(Plan(load=tuple(resident), reason="start from storage"), resident, reserve=0)
        return done

    def read_chunk(self) -> int:
        """Prefill the next chunk over sinks and window, write it behind; returns its tokens (0 when done)."""
        ws = self.working_set
        count = min(ws.chunk_blocks, len(ws.table) - ws.done)
        if count <= 0:
            return 0
        return ws.read(planner.plan_room(self.policy, ws.table, count), count)

    # Turns

    def turn(
        self,
        question_ids: Sequence[int],
        signals: Signals,
        on_token: Callable[[int], None] | None = None,
        max_new_tokens: int | None = None,
        keep: bool = False,
        forced: Sequence[int] | None = None,
    ) -> TurnResult:
        """One question: recall, knit, answer, learn. `signals` are of the question's text.

        With `keep` the question and its answer become blocks of the stream. With `forced` the answer is given and
        only observed. Raises QuestionTooLongError or BudgetError before anything moved.
        """
        ws, started = self.working_set, time.perf_counter()
        ws.log = []
        metrics = TurnMetrics(
            policy=self.policy.name, turn=self.table.turn, question_tokens=len(question_ids)
        )
        repaired = (self.executor.corrupt_blocks, self.executor.recomputed_tokens)
        tail_ids = [*ws.pending, *question_ids]  # what of the last turn filled no block is computed again
        plan = self._recall(tail_ids, signals, max_new_tokens or self.settings.max_new_tokens, metrics)
        metrics.recall_s = time.perf_counter() - started
        metrics.knit_tokens = ws.knit_in_sight(plan.knit)
        metrics.knit_s = time.perf_counter() - started - metrics.recall_s
        match = self.table.match.copy()
        answer = Answering(self, tail_ids, started, metrics)
        answer.run(on_token, max_new_tokens or self.settings.max_new_tokens, forced)
        if keep:
            ws.keep_tail([*tail_ids, *answer.token_ids])
        self.arena.drop_tail()
        mass, used = self._learn(answer.attended)
        self.heat.end_turn()
        ws.keep_near(self.heat.hottest_slots(self.arena.occupant, self.settings.pin_blocks))
        self.prefetcher.settle(used, metrics)
        metrics.corrupt_blocks = self.executor.corrupt_blocks - repaired[0]
        metrics.recomputed_tokens = self.executor.recomputed_tokens - repaired[1]
        metrics.recomputed_tokens += len(tail_ids) - len(question_ids)
        self._report(metrics)
        return TurnResult(answer.token_ids, answer.attended, match, mass, used, metrics, ws.log)

    def _recall(
        self, question_ids: Sequence[int], signals: Signals, max_new_tokens: int, metrics: TurnMetrics
    ) -> Plan:
        """Observe the question, decide, execute: afterwards what the answer is to see is in sight."""
        ws, table, settings = self.working_set, self.table, self.settings
        reserve = -(-(len(question_ids) + max_new_tokens) // settings.block_tokens)
        room = settings.slots - settings.sink_blocks - 1
        if reserve > room:
            raise QuestionTooLongError(
                f"the question has {len(question_ids)} tokens and its answer may have {max_new_tokens}; together "
                f"they may have {room * settings.block_tokens} beside the sinks and one block; ask shorter, lower "
                f"--max-new-tokens or raise --device-budget (the window has {self.engine.window} tokens)"
            )
        self._fault_room = min(FAULT_ROOM, room - reserve)
        reserve += self._fault_room
        queries = self.engine.question_queries(ws.tokens_of(0).tolist(), question_ids)
        table.match[:] = fuse(signals.padded(len(table)), ws.bounds.score(queries))
        table.match[: settings.sink_blocks] = 0.0
        knit_tokens = int(settings.knit_share * settings.attend_blocks * settings.block_tokens)
        plan = planner.plan_turn(self.policy, table, reserve, knit_tokens)
        needed = self._needed()
        ws.bring(plan, self._in_sight(plan, needed), reserve)
        metrics.recalled_blocks, metrics.evicted_blocks = len(plan.load), len(plan.evict)
        for block in needed:
            if table.resident[block]:
                continue
            try:
                fault = planner.plan_fault(self.policy, table, block, reserve)
            except BudgetError:
                break  # what is resident is pinned or P0: the answer does without
            ws.bring(fault, self._in_sight(fault, needed), reserve)
            metrics.fault_blocks += len(fault.load)
            metrics.evicted_blocks += len(fault.evict)
        return plan

    def _in_sight(self, plan: Plan, needed: Sequence[int]) -> list[int]:
        """What the answer is to see once `plan` is carried out: what is pinned, `needed`, then the policy's choice."""
        table = self.table
        before = table.resident
        table.resident = before.copy()
        table.resident[list(plan.evict)], table.resident[list(plan.load)] = False, True
        limit = self.settings.attend_blocks
        first = [block for block in needed if table.resident[block] and not table.pinned[block]]
        attended = list(dict.fromkeys([*first, *self.policy.attend(table, limit)]))[: max(limit, len(first))]
        pinned = np.flatnonzero(table.pinned & table.resident).tolist()
        table.resident = before
        return [*pinned, *attended]

    def _needed(self) -> list[int]:
        """Blocks that the question cannot do without, whatever the policy thinks of them, best first."""
        match = self.table.match
        best = np.argsort(-match, kind="stable")[:NEEDED_BLOCKS]
        return [int(b) for b in best if match[b] >= NEEDED_MATCH]

    def serve_fault(self, queries: list[torch.Tensor], position: int) -> int:
        """Bring a block in sight that the running answer wants; returns how far the tail's positions moved.

        Its slot was reserved with the tail's, so nothing has to leave.
        """
        ws = self.working_set
        if not self._fault_room:
            return 0
        score = ws.bounds.score(self.engine.unrotated(queries, position))
        visible = np.zeros(len(self.table), dtype=np.bool_)
        visible[self.arena.occupant[: self.arena.in_sight]] = True
        away = np.where(visible, 0.0, score)
        visible[: self.settings.sink_blocks] = False
        block = int(away.argmax())
        if away[block] < FAULT_FACTOR * float(score[visible].max(initial=1e-9)):
            return 0
        ws.insert(block)
        return self.settings.block_tokens

    def _learn(self, attended: Attended) -> tuple[FloatArray, list[int]]:
        """Close the turn: which blocks carried the answer, told to table and policy."""
        mass = np.zeros(len(self.table), dtype=np.float32)
        mass[attended.blocks] = attended.mass.mean(axis=(0, 1)).sum(axis=-1)
        mass[: self.settings.sink_blocks] = 0.0
        mass /= max(float(mass.sum()), 1e-9)
        used = demand_set(mass)
        self.table.touch(used)
        planner.end_turn(self.policy, self.table, used, mass)
        return mass, used

    def _report(self, metrics: TurnMetrics) -> None:
        table, tiers, width = self.table, self.executor.tiers, self.settings.block_tokens
        metrics.device_bytes = self.arena.nbytes
        if isinstance(self.policy, GradingPolicy):
            metrics.calibration_drift = self.policy.drift
        metrics.discarded_tokens = self.working_set.lost_tokens()
        counts = np.bincount(table.grade, minlength=len(Grade))
        metrics.grade_counts = {grade.name: int(counts[grade]) for grade in Grade}
        metrics.tier_tokens = {
            Tier.DEVICE.value: table.resident_count * width,
            Tier.HOST.value: sum(block_id in tiers.host for block_id in self.executor.ids) * width,
            Tier.DISK.value: sum(block_id in tiers.disk for block_id in self.executor.ids) * width,
        }
