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
from xxhash import xxh3_128_hexdigest

from zerolayer.core import BlockTable, FloatArray, Grade, IntArray, Plan, Tier, TurnMetrics
from zerolayer.decision import planner
from zerolayer.decision.policy import Policy
from zerolayer.errors import BlockCorruptError, BlockMissingError, BudgetError, QuestionTooLongError
from zerolayer.execution import compiler
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import Outcome, Program
from zerolayer.execution.tiers import TierHierarchy
from zerolayer.learning.traces import demand_set
from zerolayer.perception.key_bounds import KeyBounds
from zerolayer.perception.recall import Signals, fuse

if TYPE_CHECKING:
    import torch

    from zerolayer.engines.hf.engine import HFEngine

REPAIR_CONTEXT_BLOCKS = 8
"""Blocks before a damaged one in whose sight it is computed again, beside the sinks."""


RECENT_SHARE = 8
"""One slot in this many is kept for the latest blocks of a conversation."""


def chained_id(parent: str, token_ids: Sequence[int]) -> str:
    """Id of a block: a hash of its parent's id and its tokens, so that equal ids mean equal streams up to here."""
    return xxh3_128_hexdigest(f"{parent}:{','.join(map(str, token_ids))}".encode())


def knit_id(block_id: str) -> str:
    """Id of a block's knit form: how a block was computed is part of its id."""
    return xxh3_128_hexdigest(f"{block_id}:knit".encode())


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Sizes of one session. Blocks and slots are of `block_tokens` tokens."""

    slots: int
    block_tokens: int
    chunk_tokens: int
    codec: str
    knit_share: float
    attend_blocks: int
    max_new_tokens: int
    sink_blocks: int = 1


@dataclass(slots=True)
class Attended:
    """What an answer attended to, for citations and for the demand record."""

    blocks: list[int]  # in sight, by slot
    mass: FloatArray  # [layers, heads, blocks, block_tokens]: weights of the answer's tokens, summed
    question_mass: FloatArray  # the same of the question's tokens


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
    """Schedules the blocks of one stream of tokens over an engine's arena and the tiers behind it."""

    def __init__(
        self,
        engine: HFEngine,
        tiers: TierHierarchy,
        policy: Policy,
        token_ids: Sequence[int],
        block_ids: list[str],
        settings: SchedulerSettings,
    ) -> None:
        self.engine, self.policy, self.settings = engine, policy, settings
        self.tokens: IntArray = np.asarray(token_ids, dtype=np.int64)
        n = len(block_ids)
        self.table = BlockTable.create([settings.block_tokens] * n, settings.slots, settings.block_tokens)
        self.table.pinned[: settings.sink_blocks] = True
        geometry = engine.geometry
        self.bounds = KeyBounds(geometry.layers, geometry.kv_heads, geometry.head_dim, n)
        self.arena = engine.make_arena(settings.slots, settings.block_tokens)
        self.executor = Executor(self.arena, tiers, block_ids, settings.codec, self)
        self.log: list[Outcome] = []
        self.knit_blocks: set[int] = set()
        self.done = 0  # leading blocks that have been computed
        self.document_blocks = n
        self._next_position = 0
        self._pending: list[int] = []

    def sibling(self, policy: Policy, settings: SchedulerSettings) -> Scheduler:
        """Another scheduler over the same blocks and tiers, with an arena of its own that the engine now uses."""
        ids = self.executor.ids[: self.document_blocks]
        return Scheduler(self.engine, self.executor.tiers, policy, self.tokens.tolist(), list(ids), settings)

    # Computer: what the executor asks the engine for

    def tokens_of(self, block: int) -> IntArray:
        """Token ids of a block."""
        width = self.settings.block_tokens
        return self.tokens[block * width : (block + 1) * width]

    def recompute(self, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute a damaged block again, in sight of the sinks and the blocks before it."""
        sinks = range(min(self.settings.sink_blocks, block))
        before = range(max(len(sinks), block - REPAIR_CONTEXT_BLOCKS), block)
        context = [self.tokens_of(b) for b in (*sinks, *before)]
        return self.engine.compute_block(
            np.concatenate(context).tolist() if context else [], self.tokens_of(block).tolist()
        )

    def knit(self, slots: Sequence[int]) -> None:
        """Recompute the blocks in `slots` in sight of all blocks in sight."""
        token_ids = np.concatenate([self.tokens_of(int(self.arena.occupant[slot])) for slot in slots])
        rows = self.arena.tokens_of(slots)
        self.engine.knit(token_ids, rows, self.arena.row_positions(self._next_position))

    def summarise(self, block: int, keys: np.ndarray) -> bytes:
        """Key bounds of a block, kept here and stored beside it."""
        return self.bounds.observe(block, keys)

    # Reading

    def restore(self) -> int:
        """Take over what the tiers already hold; returns the number of leading blocks that need no prefill.

        Single blocks that are missing or damaged are computed again; so reading goes on where it was interrupted.
        """
        tiers, ids = self.executor.tiers, self.executor.ids
        for block, block_id in enumerate(ids):
            if knit_id(block_id) in tiers:
                ids[block] = knit_id(block_id)
                self.knit_blocks.add(block)
        held = np.flatnonzero([block_id in tiers for block_id in ids])
        done = int(held[-1]) + 1 if len(held) else 0
        if len(held) < 0.9 * done:  # more holes than repairs are worth: read again from the first one
            done = int(np.flatnonzero(~np.isin(np.arange(done), held))[0])
        for block in range(done):
            try:
                if self.bounds.restore(block, tiers.get_summary(ids[block])):
                    continue
            except (BlockMissingError, BlockCorruptError):
                pass
            self.executor.repair(block)
        self.done = done
        resident = [b for b in range(self.settings.sink_blocks) if b < done]
        room = self.settings.slots - len(resident) - self.chunk_blocks
        if done < len(self.table):  # the next chunk needs its window
            resident += range(max(len(resident), done - room), done)
        elif done:
            resident += self.policy.warm(self.table, room)
        self._load(Plan(load=tuple(sorted(set(resident))), reason="start from storage"), resident, reserve=0)
        return done

    @property
    def chunk_blocks(self) -> int:
        """Blocks prefilled at a time: at most half of what is left beside the sinks."""
        wanted = max(1, self.settings.chunk_tokens // self.settings.block_tokens)
        return max(1, min(wanted, (self.settings.slots - self.settings.sink_blocks) // 2))

    def read_chunk(self) -> int:
        """Prefill the next chunk over sinks and window, write it behind; returns its tokens (0 when done)."""
        count = min(self.chunk_blocks, len(self.table) - self.done)
        if count <= 0:
            return 0
        plan = planner.plan_room(self.policy, self.table, count)
        leaving = set(plan.evict)
        stay = [block for block in self.arena.blocks() if block not in leaving]
        width = self.settings.block_tokens
        fits = self._next_position + count * width <= self.engine.window
        self._load(plan, stay, reserve=count, keep_positions=fits)
        blocks = list(range(self.done, self.done + count))
        first_slot, position = self.arena.in_sight, self._next_position
        self.engine.append(np.concatenate([self.tokens_of(b) for b in blocks]), position)
        for offset, block in enumerate(blocks):
            self.arena.claim(block, position + offset * width)
        self._next_position = position + count * width
        self._run(
            compiler.compile_compress(
                range(first_slot, first_slot + count), self.executor.space, self.settings.codec
            )
        )
        self.table.resident[blocks] = True
        self.table.touch(blocks)
        self.done += count
        return count * width

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

        With `keep` the question and its answer become blocks of the stream. With `forced` the answer is given
        and only observed. Raises QuestionTooLongError or BudgetError before anything moved.
        """
        started = time.perf_counter()
        self.log = []
        limit = max_new_tokens or self.settings.max_new_tokens
        metrics = TurnMetrics(
            policy=self.policy.name, turn=self.table.turn, question_tokens=len(question_ids)
        )
        before = (self.executor.corrupt_blocks, self.executor.recomputed_tokens)
        tail_ids = [*self._pending, *question_ids]  # what of the last turn filled no block is computed again
        plan = self._recall(tail_ids, signals, limit)
        metrics.recalled_blocks, metrics.evicted_blocks = len(plan.load), len(plan.evict)
        metrics.recall_s = time.perf_counter() - started
        metrics.knit_tokens = self._knit(plan)
        metrics.knit_s = time.perf_counter() - started - metrics.recall_s
        match = self.table.match.copy()
        token_ids, attended = self._answer(tail_ids, limit, started, metrics, on_token, forced)
        if keep:
            self._keep([*tail_ids, *token_ids])
        self.arena.drop_tail()
        mass = np.zeros(len(self.table), dtype=np.float32)
        mass[attended.blocks] = attended.mass.mean(axis=(0, 1)).sum(axis=-1)
        mass[: self.settings.sink_blocks] = 0.0
        mass /= max(float(mass.sum()), 1e-9)
        used = demand_set(mass)
        self.table.touch(used)
        planner.end_turn(self.policy, self.table, used, mass)
        metrics.corrupt_blocks = self.executor.corrupt_blocks - before[0]
        metrics.recomputed_tokens = (
            self.executor.recomputed_tokens - before[1] + len(tail_ids) - len(question_ids)
        )
        self._report(metrics)
        return TurnResult(token_ids, attended, match, mass, used, metrics, self.log)

    def _recall(self, question_ids: Sequence[int], signals: Signals, max_new_tokens: int) -> Plan:
        """Observe the question, decide, execute: afterwards what the answer is to see is in sight."""
        table, settings = self.table, self.settings
        reserve = -(-(len(question_ids) + max_new_tokens) // settings.block_tokens)
        if reserve > settings.slots - settings.sink_blocks - 1:
            room = (settings.slots - settings.sink_blocks - 1) * settings.block_tokens
            raise QuestionTooLongError(
                f"the question has {len(question_ids)} tokens and its answer may have {max_new_tokens}; together they "
                f"may have {room} beside the sinks and one block; ask shorter, lower --max-new-tokens or raise "
                f"--device-budget (the model's window has {self.engine.window} tokens)"
            )
        queries = self.engine.question_queries(self.tokens_of(0).tolist(), question_ids)
        table.match[:] = fuse(signals.padded(len(table)), self.bounds.score(queries))
        table.match[: settings.sink_blocks] = 0.0
        plan = planner.plan_turn(self.policy, table, reserve, self._knit_budget)
        resident = table.resident.copy()
        resident[list(plan.evict)], resident[list(plan.load)] = False, True
        after, table.resident = table.resident, resident
        in_sight = [
            *np.flatnonzero(table.pinned).tolist(),
            *self.policy.attend(table, settings.attend_blocks),
        ]
        table.resident = after
        self._load(plan, in_sight, reserve)
        return plan

    @property
    def _knit_budget(self) -> int:
        return int(self.settings.knit_share * self.settings.attend_blocks * self.settings.block_tokens)

    def _knit(self, plan: Plan) -> int:
        """Knit what was recalled and has not been knit before; its result is kept. Returns tokens recomputed."""
        seen = set(self.arena.occupant[: self.arena.in_sight].tolist())
        blocks = [block for block in plan.knit if block in seen and block not in self.knit_blocks]
        if not blocks:
            return 0
        slots = [self.arena.slot_of(block) for block in blocks]
        self._run(compiler.compile_knit(slots, self.executor.space))
        for block in blocks:
            self.executor.ids[block] = knit_id(self.executor.ids[block])
        self.knit_blocks.update(blocks)
        self._run(compiler.compile_compress(slots, self.executor.space, self.settings.codec))
        return len(blocks) * self.settings.block_tokens

    def _answer(
        self,
        question_ids: Sequence[int],
        max_new_tokens: int,
        started: float,
        metrics: TurnMetrics,
        on_token: Callable[[int], None] | None,
        forced: Sequence[int] | None,
    ) -> tuple[list[int], Attended]:
        engine, arena = self.engine, self.arena
        engine.mass.zero_()
        position = self._next_position
        logits, _ = engine.append(question_ids, position, observe=True, logits=True)
        assert logits is not None
        question_mass = self._mass()
        engine.mass.zero_()
        answer: list[int] = list(forced or ())
        if answer:
            engine.append(answer, position + len(question_ids), observe=True)
            max_new_tokens = 0
        for token in engine.generate(logits, position + len(question_ids), max_new_tokens):
            if not answer:
                metrics.ttft_s = time.perf_counter() - started
            answer.append(token)
            if on_token is not None:
                on_token(token)
        total = time.perf_counter() - started
        metrics.answer_tokens = len(answer)
        metrics.decode_s_per_token = (total - metrics.ttft_s) / max(1, len(answer) - 1)
        blocks = arena.occupant[: arena.in_sight].tolist()
        return answer, Attended(blocks, self._mass(), question_mass)

    def _keep(self, token_ids: Sequence[int]) -> None:
        """The whole blocks of the tail become blocks of the stream; the rest waits for the next turn."""
        table, width, arena = self.table, self.settings.block_tokens, self.arena
        count = (arena.rows - arena.in_sight * width) // width
        first, first_slot = len(table), arena.in_sight
        self.tokens = np.concatenate([self.tokens, np.asarray(token_ids[: count * width], dtype=np.int64)])
        self._pending = list(token_ids[count * width :])
        table.grow(count)
        self.bounds.resize(len(table))
        for block in range(first, first + count):
            self.executor.ids.append(chained_id(self.executor.ids[-1], self.tokens_of(block).tolist()))
            arena.claim(block, self._next_position)
            self._next_position += width
        new = list(range(first, first + count))
        self._run(
            compiler.compile_compress(
                range(first_slot, first_slot + count), self.executor.space, self.settings.codec
            )
        )
        table.resident[new], table.pinned[new] = True, True
        # The conversation's latest blocks stay in sight; older ones compete with the document's.
        recent = max(1, self.settings.slots // RECENT_SHARE)
        table.pinned[self.document_blocks : max(self.document_blocks, len(table) - recent)] = False
        table.touch(new)
        self.done += count

    def forget_conversation(self) -> None:
        """Drop the kept turns from the tiers: what persists is the document."""
        for block_id in self.executor.ids[self.document_blocks :]:
            if block_id in self.executor.tiers:
                self.executor.tiers.delete(block_id)

    def _mass(self) -> FloatArray:
        """[layers, heads, blocks in sight, block_tokens] of the attention observed since it was last zeroed."""
        arena, mass = self.arena, self.engine.mass
        rows = arena.in_sight * arena.block_tokens
        seen = mass[:, :, :rows].reshape(*mass.shape[:2], arena.in_sight, arena.block_tokens)
        result: FloatArray = seen.cpu().numpy().copy()
        return result

    # Execution

    def _load(self, plan: Plan, in_sight: Sequence[int], reserve: int, keep_positions: bool = False) -> None:
        """Carry out evictions and loads, bring `in_sight` to the front, in document order of positions."""
        table, width = self.table, self.settings.block_tokens
        if table.resident_count - len(plan.evict) + len(plan.load) > self.settings.slots:
            raise BudgetError(
                f"{plan.reason}: {len(plan.load)} blocks do not fit into {self.settings.slots} slots"
            )
        program = compiler.compile_moves(
            plan, self.arena.occupant, in_sight, reserve, self.executor.space, self.executor.on_host
        )
        positions = {block: i * width for i, block in enumerate(sorted(in_sight))}
        self._run(program, positions)
        self.arena.in_sight = len(in_sight)
        self.arena.drop_tail()
        table.resident[list(plan.evict)] = False
        table.resident[list(plan.load)] = True
        table.touch(plan.load)
        if not keep_positions:
            self.executor.settle(positions)
            self._next_position = len(in_sight) * width

    def _run(self, program: Program, positions: dict[int, int] | None = None) -> None:
        self.log += self.executor.run(program, self.table, positions)

    def _lost_blocks(self) -> int:
        """Computed blocks that no tier can give back and whose tokens are not at hand to compute them again."""
        width, held = self.settings.block_tokens, self.executor.tiers
        return sum(
            self.executor.ids[block] not in held
            and not self.table.resident[block]
            and len(self.tokens_of(block)) != width
            for block in range(self.done)
        )

    def _report(self, metrics: TurnMetrics) -> None:
        table, tiers = self.table, self.executor.tiers
        metrics.device_bytes = self.arena.nbytes
        metrics.discarded_tokens = self._lost_blocks() * self.settings.block_tokens
        counts = np.bincount(table.grade, minlength=len(Grade))
        metrics.grade_counts = {grade.name: int(counts[grade]) for grade in Grade}
        width = self.settings.block_tokens
        metrics.tier_tokens = {
            Tier.DEVICE.value: table.resident_count * width,
            Tier.HOST.value: sum(i in tiers.host for i in self.executor.ids) * width,
            Tier.DISK.value: sum(i in tiers.disk for i in self.executor.ids) * width,
        }
