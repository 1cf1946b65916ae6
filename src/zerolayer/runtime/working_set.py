"""The blocks of one stream and where they are: read, restored, brought in sight, knit, kept. It decides nothing.

A working set ties an engine's arena to the tiers behind it. Whatever moves goes through a program of the executor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128_hexdigest

from zerolayer.core import KEY_FEATURES, BlockTable, IntArray, Plan
from zerolayer.errors import BlockCorruptError, BlockMissingError, BudgetError
from zerolayer.execution import compiler
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import Outcome, Program
from zerolayer.execution.layout import FREE
from zerolayer.execution.tiers import TierHierarchy
from zerolayer.perception.dispersion import KeyDispersion
from zerolayer.perception.key_bounds import KeyBounds
from zerolayer.perception.retrieval_heads import retrieval_heads
from zerolayer.runtime.books import BlockHistories, LoadBook

if TYPE_CHECKING:
    import torch

    from zerolayer.engines.hf.engine import HFEngine

REPAIR_CONTEXT_BLOCKS = 8
"""Blocks before a damaged one in whose sight it is computed again, beside the sinks."""

MOST_HOLES = 0.1
"""Stored streams with more missing blocks than this share are read again from the first hole on."""


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
    knit_match: float = 0.8
    sink_blocks: int = 1
    heatmap_side: int = 256
    pin_blocks: int = 2


def knit_id(block_id: str) -> str:
    """Id of a block's knit form: how a block was computed is part of its id."""
    return xxh3_128_hexdigest(f"{block_id}:knit".encode())


class WorkingSet:
    """Blocks of one stream of tokens over an engine's arena and the tiers behind it."""

    def __init__(
        self,
        engine: HFEngine,
        tiers: TierHierarchy,
        token_ids: Sequence[int],
        block_ids: Sequence[str],
        settings: SchedulerSettings,
    ) -> None:
        self.engine, self.settings = engine, settings
        self.tokens: IntArray = np.asarray(token_ids, dtype=np.int64)
        self.document_ids = list(block_ids)  # as prefilled; the executor's ids also tell what has been knit
        self.document_blocks = len(block_ids)
        self.table = BlockTable.create(
            [settings.block_tokens] * len(block_ids), settings.slots, settings.block_tokens
        )
        self.table.pinned[: settings.sink_blocks] = True
        geometry = engine.geometry
        shape = (geometry.layers, geometry.kv_heads, geometry.head_dim, len(block_ids))
        self.bounds = KeyBounds(*shape)
        heads = retrieval_heads(engine.fingerprint, geometry.layers, engine.heads)
        self.dispersion = KeyDispersion(*shape, heads)
        self.arena = engine.make_arena(settings.slots, settings.block_tokens)
        self.executor = Executor(self.arena, tiers, list(block_ids), settings.codec, self)
        self.log: list[Outcome] = []
        self.done = 0  # leading blocks that have been computed
        self.next_position = 0  # rotary position of the first token behind the blocks in sight
        self.pending: list[int] = []  # tokens of kept turns that do not fill a block
        self.pending_kv: torch.Tensor | None = None
        """Keys without rotation, and values, of the first of them, in host memory; None: all are computed again."""
        self.loads = LoadBook()
        self.history = BlockHistories()
        self.hinted: set[int] = set()
        """Blocks that hints pin; `table.pinned` holds the sinks and a conversation's latest blocks as well."""
        self._knit_blocks: set[int] = set()
        self._near: set[int] = set()  # slots kept in the fastest cache

    def release(self) -> None:
        """Give the device memory back. Every block stays in the tiers, where it was written when it was computed."""
        self.keep_near(())
        self.loads.note(np.flatnonzero(self.table.resident).tolist(), ())
        self.table.resident[:] = False
        self.arena.release()
        self._near.clear()

    def renew(self) -> None:
        """Take device memory again after `release`, and bring in what is pinned. Nothing to do where it was kept."""
        if self.arena.nbytes:
            return
        self.arena.renew()
        pinned = np.flatnonzero(self.table.pinned[: self.done]).tolist()
        self.bring(Plan(load=tuple(pinned), reason="back on the device"), pinned, reserve=0)

    # What the executor asks of the engine

    def tokens_of(self, block: int) -> IntArray:
        """Token ids of a block."""
        width = self.settings.block_tokens
        return self.tokens[block * width : (block + 1) * width]

    def recompute(self, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute a damaged block again, in sight of the sinks and the blocks before it."""
        sinks = range(min(self.settings.sink_blocks, block))
        before = range(max(len(sinks), block - REPAIR_CONTEXT_BLOCKS), block)
        context = [int(token) for b in (*sinks, *before) for token in self.tokens_of(b)]
        return self.engine.compute_block(context, self.tokens_of(block).tolist())

    def knit(self, slots: Sequence[int]) -> None:
        """Recompute the blocks in `slots` in sight of all blocks in sight."""
        token_ids = np.concatenate([self.tokens_of(int(self.arena.occupant[slot])) for slot in slots])
        rows = self.arena.tokens_of(slots)
        self.engine.knit(token_ids, rows, self.arena.row_positions(self.next_position))

    def summarise(self, block: int, keys: np.ndarray) -> bytes:
        """Key bounds and dispersion of a block, kept here and stored beside it."""
        bounds = self.bounds.observe(block, keys)
        dispersion = self.dispersion.observe(block, keys, self.bounds.centre(block))
        self.table.features[block, : len(KEY_FEATURES)] = self.dispersion.features[block]
        return bounds + dispersion

    # Reading

    @property
    def chunk_blocks(self) -> int:
        """Blocks prefilled at a time: at most half of what is left beside the sinks."""
        wanted = max(1, self.settings.chunk_tokens // self.settings.block_tokens)
        return max(1, min(wanted, (self.settings.slots - self.settings.sink_blocks) // 2))

    def restore(self) -> int:
        """Take over what the tiers hold; returns the number of leading blocks that need no prefill.

        Single blocks that are missing or damaged are computed again; so reading goes on where it was interrupted.
        """
        tiers, ids = self.executor.tiers, self.executor.ids
        for block, block_id in enumerate(ids):
            if knit_id(block_id) in tiers:
                ids[block] = knit_id(block_id)
                self._knit_blocks.add(block)
        held = np.asarray([block_id in tiers for block_id in ids])
        done = int(np.flatnonzero(held)[-1]) + 1 if held.any() else 0
        if held[:done].sum() < (1 - MOST_HOLES) * done:
            done = int(np.flatnonzero(~held)[0])
        for block in range(done):
            if not self.restore_bounds(block):
                self.executor.repair(block)
        self.done = done
        return done

    def restore_bounds(self, block: int) -> bool:
        try:
            summary = self.executor.tiers.get_summary(self.executor.ids[block])
        except (BlockMissingError, BlockCorruptError):
            return False
        bounds, dispersion = summary[: self.bounds.nbytes], summary[self.bounds.nbytes :]
        if not self.bounds.restore(block, bounds):
            return False
        # Stores from before dispersion was kept stay readable: its features are then unknown.
        if self.dispersion.restore(block, dispersion, self.bounds.centre(block)):
            self.table.features[block, : len(KEY_FEATURES)] = self.dispersion.features[block]
        return True

    def read(self, plan: Plan, count: int) -> int:
        """Prefill the next `count` blocks over what is resident after `plan`, write them behind; their tokens."""
        width, leaving = self.settings.block_tokens, set(plan.evict)
        stay = [block for block in self.arena.blocks() if block not in leaving]
        # A block that was out of sight has a position from an earlier turn, which may be another block's now.
        seen = set(self.arena.occupant[: self.arena.in_sight].tolist())
        fits = self.next_position + count * width <= self.engine.window and seen.issuperset(stay)
        self.bring(plan, stay, reserve=count, keep_positions=fits)
        blocks = list(range(self.done, self.done + count))
        self.engine.append(np.concatenate([self.tokens_of(block) for block in blocks]), self.next_position)
        self.claim(blocks)
        return count * width

    def claim(self, blocks: Sequence[int]) -> None:
        """The tail's first rows are these blocks: they are in sight from now on, and written behind."""
        first_slot = self.arena.in_sight
        for block in blocks:
            self.arena.claim(block, self.next_position)
            self.next_position += self.settings.block_tokens
        self._compress(range(first_slot, first_slot + len(blocks)))
        self.table.resident[list(blocks)] = True
        self.table.touch(blocks)
        self.done += len(blocks)

    # What fills no block

    @property
    def held_tokens(self) -> int:
        """Pending tokens whose keys and values are at hand."""
        return 0 if self.pending_kv is None else self.pending_kv.shape[-2]

    def hold_tail(self) -> None:
        """What the tail holds behind the kept blocks are the pending tokens: the next turn need not compute them."""
        self.pending_kv = self.arena.read_tail(self.next_position).cpu()

    def put_tail(self) -> None:
        """Open the tail with the pending tokens that are at hand."""
        if self.pending_kv is not None:
            self.arena.write_tail(self.pending_kv, self.next_position)

    # Moving

    def bring(self, plan: Plan, in_sight: Sequence[int], reserve: int, keep_positions: bool = False) -> None:
        """Carry out evictions and loads, then have exactly `in_sight` in sight, at positions in document order.

        `reserve` slots behind them are free for the tail. Raises BudgetError or VerificationError with nothing moved.
        """
        table, width = self.table, self.settings.block_tokens
        if table.resident_count - len(plan.evict) + len(plan.load) > self.settings.slots:
            raise BudgetError(
                f"{plan.reason}: {len(plan.load)} blocks do not fit into {self.settings.slots} slots"
            )
        self._before_loading(plan.load)
        program = compiler.compile_moves(
            plan, self.arena.occupant, in_sight, reserve, self.executor.space, self.executor.on_host
        )
        positions = {block: i * width for i, block in enumerate(sorted(in_sight))}
        self._run(program, positions)
        self.arena.in_sight = len(in_sight)
        self.arena.drop_tail()
        self._account(plan)
        if not keep_positions:
            self.executor.settle(positions)
            self.next_position = len(in_sight) * width

    def extend_tail(self, plan: Plan, reserve: int) -> None:
        """Carry out evictions and have `reserve` slots behind what is in sight, the open tail in the first of them."""
        rows, in_sight = self.arena.rows, self.arena.occupant[: self.arena.in_sight].tolist()
        self.bring(plan, in_sight, reserve, keep_positions=True)
        self.arena.rows = rows

    def prefetch(self, blocks: Sequence[int]) -> None:
        """Copy blocks from disk to host memory; `log` says what became of it."""
        self._run(compiler.compile_prefetch(blocks, self.executor.space))

    def keep_near(self, slots: Collection[int]) -> None:
        """Keep these slots, and no others, in the fastest cache: pins are of addresses here, as heat is.

        A slot that has been emptied since keeps its pin, and its share of the budget, until a block is in it again.
        """
        emptied = {slot for slot in self._near if self.arena.occupant[slot] == FREE}
        budget = min(self.settings.pin_blocks, self.settings.slots // 2) - len(emptied)
        wanted = set(sorted(slots)[: max(0, budget)])
        leaving = self._near - emptied - wanted
        self._run(compiler.compile_pins(leaving, wanted - self._near, self.executor.space))
        self._near = emptied | wanted

    def insert(self, block: int) -> None:
        """Bring one more block in sight while an answer runs: the tail makes room, in memory and in position."""
        slot, position = self.arena.in_sight, self.next_position
        self._push_tail()
        away = not self.table.resident[block]
        self._before_loading((block,) if away else ())
        program = compiler.compile_insert(
            block, slot, self.arena.occupant, self.executor.space, self.executor.on_host
        )
        self._run(program, {block: position})
        self.arena.in_sight += 1
        self.arena.relocate(slot, position)
        self._account(Plan(load=(block,) if away else ()))
        self.next_position += self.settings.block_tokens

    def _push_tail(self) -> None:
        """The tail and what has been observed of it move one slot up."""
        width, rows = self.settings.block_tokens, self.arena.rows
        first, mass = self.arena.in_sight * width, self.engine.mass
        mass[:, :, first + width : rows + width] = mass[:, :, first:rows].clone()
        mass[:, :, first : first + width] = 0.0
        self.arena.push_tail()

    def knit_in_sight(self, blocks: Sequence[int]) -> int:
        """Knit those of `blocks` that are in sight and have not been knit; returns tokens recomputed.

        The result is kept: on the device, and in the tiers under an id of its own.
        """
        seen = set(self.arena.occupant[: self.arena.in_sight].tolist())
        wanted = [block for block in blocks if block in seen and block not in self._knit_blocks]
        if not wanted:
            return 0
        slots = [self.arena.slot_of(block) for block in wanted]
        self._run(compiler.compile_knit(slots, self.executor.space))
        for block in wanted:
            self.executor.ids[block] = knit_id(self.executor.ids[block])
        self._knit_blocks.update(wanted)
        self._compress(slots)
        return len(wanted) * self.settings.block_tokens

    def _before_loading(self, blocks: Sequence[int]) -> None:
        """A block that another session of the same stream has knit since is loaded so; a lost one is computed first.

        Storage that was full when a block was last computed has lost it. Raises StoreFullError where it still is.
        """
        for block in blocks:
            if self.executor.ids[block] not in self.executor.tiers:
                self.executor.repair(block)
            form = knit_id(self.executor.ids[block])
            if block not in self._knit_blocks and form in self.executor.tiers:
                self.executor.ids[block] = form
                self._knit_blocks.add(block)

    def _account(self, plan: Plan) -> None:
        self.loads.note(plan.evict, plan.load)
        self.table.resident[list(plan.evict)] = False
        self.table.resident[list(plan.load)] = True
        self.table.touch(plan.load)

    def _compress(self, slots: Sequence[int]) -> None:
        self._run(compiler.compile_compress(slots, self.executor.space, self.settings.codec))

    def _run(self, program: Program, positions: dict[int, int] | None = None) -> None:
        before = self.arena.occupant.copy()
        outcomes = self.executor.run(program, self.table, positions)
        self.history.note(outcomes, before, self.executor.space, self.table.turn)
        self.log += outcomes

    def forget_knits(self) -> None:
        """Drop knit blocks from the tiers and go back to the blocks as they were prefilled."""
        for block in self._knit_blocks:
            if self.executor.ids[block] in self.executor.tiers:
                self.executor.tiers.delete(self.executor.ids[block])
            self.executor.ids[block] = self.document_ids[block]
        self._knit_blocks.clear()

    def lost_tokens(self) -> int:
        """Tokens computed once that no tier can give back and that are not at hand to be computed again: 0."""
        width, tiers = self.settings.block_tokens, self.executor.tiers
        lost = [
            block
            for block in range(self.done)
            if self.executor.ids[block] not in tiers
            and not self.table.resident[block]
            and len(self.tokens_of(block)) != width
        ]
        return len(lost) * width
