"""Runs programs: everything that moves goes through here, as ask → prepare → complete.

Ask: the verifier sees the whole program and refuses it whole if it would break a law. Prepare: what an
instruction needs is read and checked before the arena is touched. Complete: the arena and the tiers change.
The executor never chooses: what to move was decided before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from zerolayer.core import BlockTable, Tier
from zerolayer.errors import BlockCorruptError, BlockMissingError, StoreFullError
from zerolayer.execution.addresses import HOST_BASE, AddressSpace
from zerolayer.execution.arena import Arena
from zerolayer.execution.codecs import CODECS, BlockKV, codec_of, get_codec
from zerolayer.execution.isa import (
    CompressP2,
    EvictP3,
    Instruction,
    Knit,
    MoveP0,
    Outcome,
    OutcomeStatus,
    PinL2,
    Prefetch,
    Program,
    Spill,
    Unpin,
)
from zerolayer.execution.pinning import pin_range, unpin_range
from zerolayer.execution.tiers import BlockRecord, TierHierarchy
from zerolayer.execution.verifier import MachineState, verify

if TYPE_CHECKING:
    import torch

Effect = tuple[OutcomeStatus, str, int]
"""Status, reason and bytes of one instruction."""


class Computer(Protocol):
    """What only the engine can do: compute keys and values."""

    def recompute(self, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (without rotation) and values of a block from its tokens, `[layers, kv_heads, tokens, head_dim]`."""
        ...

    def knit(self, slots: Sequence[int]) -> None:
        """Recompute the blocks in these slots in sight of all that are in sight, in place."""
        ...

    def summarise(self, block: int, keys: np.ndarray) -> bytes:
        """Bounds of a block's keys, to be stored beside it."""
        ...


class Executor:
    """The executor of one session: an arena in front of a tier hierarchy."""

    def __init__(
        self, arena: Arena, tiers: TierHierarchy, ids: list[str], codec: str, computer: Computer
    ) -> None:
        self.arena, self.tiers, self.ids, self.computer = arena, tiers, ids, computer
        self.codec = get_codec(codec)
        self.positions: Mapping[int, int] = {}
        """Block → rotary position, for the moves of the running program."""
        geometry = arena.geometry
        shape = (2, geometry.layers, geometry.kv_heads, arena.block_tokens, geometry.head_dim)
        self._decoded = np.empty(shape, dtype=np.float32)  # keys and values of the block that is being loaded
        self._effects: dict[type[Instruction], Callable[..., Effect]] = {
            MoveP0: self._move,
            CompressP2: self._compress,
            PinL2: self._pin,
            Unpin: self._pin,
            Prefetch: self._prefetch,
            Spill: self._spill,
        }
        self.corrupt_blocks = 0
        self.recomputed_tokens = 0

    @property
    def space(self) -> AddressSpace:
        """Addresses of this session; it grows with the conversation."""
        return AddressSpace(self.arena.slot_bytes, self.arena.slots, len(self.ids))

    def state(self, table: BlockTable) -> MachineState:
        """What the verifier has to know, read in place."""
        tiers = self.tiers
        return MachineState(
            capacity=self.arena.slots,
            slots=self.arena.occupant,
            grades=table.grade,
            pinned=set(np.flatnonzero(table.pinned).tolist()),
            on_host=_Held(self.ids, tiers.host.__contains__),
            on_disk=_Held(self.ids, tiers.disk.__contains__),
            # Older copies that disk holds make room, so the whole tier counts.
            host_free=tiers.host.capacity_bytes + tiers.disk.free_bytes,
            disk_free=tiers.disk.capacity_bytes,
            pin_free=self.arena.nbytes // 2,
            codecs=tuple(CODECS),
        )

    def run(
        self, program: Program, table: BlockTable, positions: Mapping[int, int] | None = None
    ) -> list[Outcome]:
        """Verify, then carry out. Raises VerificationError with nothing changed; tiers may raise StoreFullError.

        `positions` gives the rotary position of each block that a move brings in sight.
        """
        verify(program, self.state(table), self.space)
        self.positions = positions or {}
        outcomes: list[Outcome] = []
        knits: list[Any] = []
        for kind, instructions in groupby(program, type):
            if kind is EvictP3:
                outcomes += self._evict(list(instructions))
            elif kind is Knit:
                knits += instructions
            else:
                outcomes += map(self._carry_out, instructions)
        return outcomes + self._knit(knits)

    def _carry_out(self, instruction: Instruction) -> Outcome:
        started = time.perf_counter_ns()
        status, reason, moved = self._effects[type(instruction)](instruction)
        return Outcome(instruction, status, reason, moved, time.perf_counter_ns() - started)

    def settle(self, positions: Mapping[int, int]) -> None:
        """Rotate blocks in sight whose position has changed; the others are not touched."""
        for slot in range(self.arena.in_sight):
            self.arena.relocate(slot, positions[int(self.arena.occupant[slot])])

    def on_host(self, block: int) -> bool:
        """Whether the host tier holds the block, so that a load need not touch the disk."""
        return self.ids[block] in self.tiers.host

    def repair(self, block: int) -> None:
        """Compute a missing or damaged block again and write it behind, without loading it."""
        self.corrupt_blocks += 1
        self.recomputed_tokens += self.arena.block_tokens
        keys, values = self.computer.recompute(block)
        self._write_behind(block, _to_numpy(keys, values), self.codec.name)

    def _slots(self, address: int, size: int) -> range:
        width = self.arena.slot_bytes
        return range(address // width, (address + size) // width)

    def _move(self, move: MoveP0) -> Effect:
        targets = self._slots(move.dst, move.size)
        reasons = []
        for offset, target in enumerate(targets):
            if move.src < HOST_BASE:
                self.arena.move(move.src // self.arena.slot_bytes + offset, target)
            else:
                block = self.space.decode(move.src).index + offset
                reasons.append(self._load(block, target))
        return OutcomeStatus.DONE, "; ".join(filter(None, reasons)), move.size

    def _load(self, block: int, slot: int) -> str:
        import torch

        position = self.positions.get(block, 0)
        try:
            record = self.tiers.read(self.ids[block])
            codec = get_codec(codec_of(record.payload))
            codec.decode(record.payload, BlockKV(self._decoded[0], self._decoded[1]))
        except (BlockCorruptError, BlockMissingError) as error:
            return self._recompute(block, slot, position, str(error))
        self.arena.place(slot, block, position, torch.from_numpy(self._decoded))
        return ""

    def _recompute(self, block: int, slot: int, position: int, why: str) -> str:
        """Never guess: compute the block again from its tokens, and write it behind again."""
        self.corrupt_blocks += 1
        self.recomputed_tokens += self.arena.block_tokens
        keys, values = self.computer.recompute(block)
        self.arena.load(slot, block, position, keys, values)
        try:
            self._write_behind(block, _to_numpy(keys, values), self.codec.name)
        except StoreFullError as error:  # the block is on the device; later it is computed again
            return f"recomputed: {why}; not stored: {error}"
        return f"recomputed: {why}"

    def _compress(self, instruction: CompressP2) -> Effect:
        written, placed = 0, set()
        for slot in self._slots(instruction.addr, instruction.size):
            block = int(self.arena.occupant[slot])
            size, tiers = self._write_behind(block, _to_numpy(*self.arena.read(slot)), instruction.codec)
            written += size
            placed |= tiers
        reason = "" if placed == {Tier.HOST, Tier.DISK} else f"held by {', '.join(sorted(placed))} only"
        return OutcomeStatus.DONE, reason, written

    def _write_behind(self, block: int, kv: BlockKV, codec: str) -> tuple[int, set[Tier]]:
        payload = get_codec(codec).encode(kv)
        summary = self.computer.summarise(block, kv.keys)
        record = BlockRecord(payload, summary, codec)
        return len(payload), set(self.tiers.write_behind(self.ids[block], record))

    def _evict(self, instructions: list[Any]) -> list[Outcome]:
        """Neighbouring evictions mark their slots in one assignment: no copy, no synchronisation."""
        started = time.perf_counter_ns()
        width = self.arena.slot_bytes
        slots = [evict.addr // width for evict in instructions if evict.size == width]
        if len(slots) < len(instructions):
            slots = [slot for evict in instructions for slot in self._slots(evict.addr, evict.size)]
        self.arena.free(slots)
        share = (time.perf_counter_ns() - started) // len(instructions)
        done = OutcomeStatus.DONE
        return [Outcome(evict, done, "", evict.size, share) for evict in instructions]

    def _pin(self, instruction: PinL2 | Unpin) -> Effect:
        if self.arena.device_type != "cpu":
            return OutcomeStatus.DEFERRED, "access-policy windows are not set from Python yet", 0
        act = pin_range if isinstance(instruction, PinL2) else unpin_range
        status, reason, locked = OutcomeStatus.DONE, "", 0
        for slot in self._slots(instruction.addr, instruction.size):
            for address, size in self.arena.memory_ranges(slot):
                outcome = act(address, size)
                locked += outcome.locked_bytes
                if outcome.status is not OutcomeStatus.DONE:
                    status, reason = outcome.status, outcome.reason
        return status, reason, locked

    def _prefetch(self, instruction: Prefetch) -> Effect:
        first = self.space.decode(instruction.src).index
        count = instruction.size // self.arena.slot_bytes
        kept = [self._sound(self.tiers.promote, block) for block in range(first, first + count)]
        if all(kept):
            return OutcomeStatus.DONE, "", instruction.size
        return (
            OutcomeStatus.DEFERRED,
            "the host tier has no room that may be taken",
            sum(kept) * self.arena.slot_bytes,
        )

    def _spill(self, instruction: Spill) -> Effect:
        first = self.space.decode(instruction.addr).index
        count = instruction.size // self.arena.slot_bytes
        freed = sum(self._sound(self.tiers.spill, block) for block in range(first, first + count))
        return OutcomeStatus.DONE, "", freed

    def _sound(self, act: Callable[[str], int], block: int) -> int:
        """`act` on a block's id; a block whose copies are all damaged is computed again first."""
        try:
            return act(self.ids[block])
        except (BlockCorruptError, BlockMissingError):
            self.repair(block)
            return act(self.ids[block])

    def _knit(self, instructions: list[Any]) -> list[Outcome]:
        """One pass for all knits of a program, after its moves: they are to be in each other's sight."""
        if not instructions:
            return []
        started = time.perf_counter_ns()
        self.computer.knit([slot for i in instructions for slot in self._slots(i.addr, i.size)])
        share = (time.perf_counter_ns() - started) // len(instructions)
        return [Outcome(i, OutcomeStatus.DONE, "", i.size, share) for i in instructions]


def _to_numpy(keys: torch.Tensor, values: torch.Tensor) -> BlockKV:
    return BlockKV(keys.float().cpu().numpy(), values.float().cpu().numpy())


class _Held:
    """Block indices that a tier holds, answered by block id."""

    def __init__(self, ids: Sequence[str], holds: Callable[[object], bool]) -> None:
        self._ids, self._holds = ids, holds

    def __contains__(self, block: object) -> bool:
        return isinstance(block, (int, np.integer)) and self._holds(self._ids[int(block)])
