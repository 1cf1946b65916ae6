"""The loop of one session: observe → grade → decide → execute.

Perception says what a question points at, the policy decides, programs carry it out. The scheduler owns the order
of these steps and nothing else: it knows no policy by name and moves no byte by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from zerolayer.core import BlockTable, FloatArray, Grade, Plan, Tier, TurnMetrics
from zerolayer.decision import planner
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.execution.arena import Arena
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import Outcome
from zerolayer.execution.tiers import TierHierarchy
from zerolayer.learning.traces import demand_set
from zerolayer.perception.heatmap import HeatMap
from zerolayer.perception.recall import Signals
from zerolayer.runtime.answering import Answering, Attended, Decoding
from zerolayer.runtime.books import LoadCounts, p0_access_ns
from zerolayer.runtime.keeping import keep_tail
from zerolayer.runtime.prefetching import Prefetcher
from zerolayer.runtime.recalling import Recaller
from zerolayer.runtime.steering import after_turn
from zerolayer.runtime.working_set import SchedulerSettings, WorkingSet

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine


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
    loads: LoadCounts = field(default_factory=LoadCounts)  # since the turn before
    p0_access_ns: list[int] = field(default_factory=list)  # of each block that was P0 when the turn began


TurnSteps = Generator[int | None, None, TurnResult]
"""A turn in steps: yields tokens, and None where others may take their turn; returns the turn's result."""


Result = TypeVar("Result")


def finish(
    steps: Generator[int | None, None, Result], on_token: Callable[[int], None] | None = None
) -> Result:
    """Run steps to their end; `on_token` hears the tokens."""
    while True:
        try:
            token = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if token is not None and on_token is not None:
            on_token(token)


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
        self.recaller = Recaller(self)

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

    def attach(self) -> None:
        """Have the engine work on this arena, which takes its memory again if it had given it back."""
        self.engine.attach(self.arena)
        self.working_set.renew()

    # Reading

    def restore(self) -> int:
        """Start from storage; returns the number of leading blocks that need no prefill."""
        self.attach()
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
        self.attach()
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
        decoding = Decoding(max_new_tokens or self.settings.max_new_tokens, forced=forced, keep=keep)
        return finish(self.turn_steps(question_ids, signals, decoding), on_token)

    def turn_steps(
        self, question_ids: Sequence[int], signals: Signals, decoding: Decoding, keeping: bool = True
    ) -> TurnSteps:
        """As `turn`, in steps between which the engine may serve others: yields the answer's tokens.

        None is a pause before the first of them. A turn that is given up half-way (`close`) leaves the session as
        after its last turn, with other blocks on the device.
        """
        ws, started = self.working_set, time.perf_counter()
        self.attach()
        ws.log = []
        metrics = TurnMetrics(
            policy=self.policy.name, turn=self.table.turn, question_tokens=len(question_ids)
        )
        repaired = (self.executor.corrupt_blocks, self.executor.recomputed_tokens)
        graded, there = self.table.grade.copy(), self.table.resident.copy()
        tail_ids = [*ws.pending, *question_ids]
        again = 0 if ws.pending_kv is not None else len(ws.pending)
        try:
            plan = self.recaller.recall(question_ids, len(ws.pending), signals, decoding, metrics)
            yield None
            self.engine.attach(self.arena)
            metrics.recall_s = time.perf_counter() - started
            p0_access = p0_access_ns(graded, there, self.arena, ws.log, self.executor.space)
            metrics.knit_tokens = ws.knit_in_sight(plan.knit)
            metrics.knit_s = time.perf_counter() - started - metrics.recall_s
            match, there = self.table.match.copy(), self.table.resident.copy()
            metrics.effective_context_utilization = self.recaller.share_of_attention(there)
            yield None
            self.engine.attach(self.arena)
            answer = Answering(self, tail_ids, started, metrics)
            yield from answer.steps(decoding)
            if decoding.keep and keeping:
                self._keep(tail_ids, answer.token_ids, decoding)
        finally:
            self.arena.drop_tail()
        mass, used = self._learn(answer.attended)
        loads = ws.loads.end_turn(used, np.pad(there, (0, len(self.table) - len(there))))
        self.heat.end_turn()
        ws.keep_near(self.heat.hottest_slots(self.arena.occupant, self.settings.pin_blocks))
        self.prefetcher.settle(used, metrics)
        metrics.corrupt_blocks = self.executor.corrupt_blocks - repaired[0]
        metrics.recomputed_tokens = self.executor.recomputed_tokens - repaired[1]
        metrics.recomputed_tokens += again
        after_turn(self, metrics)
        self._report(metrics)
        attended, log = answer.attended, ws.log
        return TurnResult(answer.token_ids, attended, match, mass, used, metrics, log, loads, p0_access)

    def replay_steps(self, token_ids: Sequence[int]) -> Generator[None, None, None]:
        """Keep a turn of the past, question and answer in one, as blocks of the stream; in steps that fit the arena."""
        sizes, nothing = self.settings, Signals(np.zeros(self.working_set.document_blocks, dtype=np.float32))
        room = (sizes.slots - sizes.sink_blocks - 3) * sizes.block_tokens // 2
        step = max(sizes.block_tokens, min(sizes.chunk_tokens, room))
        for first in range(0, len(token_ids), step):
            decoding = Decoding(1, forced=[], keep=True)
            for _ in self.turn_steps(token_ids[first : first + step], nothing, decoding):
                yield None

    def _keep(self, question_ids: Sequence[int], answer_ids: Sequence[int], decoding: Decoding) -> None:
        """Keep the turn, and of its answer what is to be kept."""
        ws = self.working_set
        if decoding.kept_ids is not None:
            unkept = len(answer_ids) - decoding.kept_rows
            answer_ids = decoding.kept_ids
            self.arena.rows = max(self.arena.in_sight * self.settings.block_tokens, self.arena.rows - unkept)
        keep_tail(ws, [*question_ids, *answer_ids])

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
