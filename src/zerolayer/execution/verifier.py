"""Refuse a program that would break a law, before anything of it runs.

The program is simulated on an overlay of the machine's state (machine_state.py). An instruction that breaks a
law is taken as skipped; those after it are judged without it. Each function here simulates one instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerolayer.core import Grade, Tier
from zerolayer.errors import VerificationError
from zerolayer.execution.addresses import DISK_BASE, HOST_BASE, AddressSpace
from zerolayer.execution.isa import (
    CompressP2,
    EvictP3,
    Instruction,
    Knit,
    MoveP0,
    PinL2,
    Prefetch,
    Program,
    Spill,
    Unpin,
)
from zerolayer.execution.machine_state import Law, MachineOverlay, MachineState, Refusal, raw_bound

__all__ = ["Law", "MachineState", "Refusal", "check", "raw_bound", "verify"]

# Reading an enum's member costs more than most of the checks it would stand in.
_DEVICE, _HOST, _DISK, _P0 = Tier.DEVICE, Tier.HOST, Tier.DISK, int(Grade.P0)


def verify(program: Program, state: MachineState, space: AddressSpace) -> None:
    """Return when `program` keeps every law. Raises VerificationError listing every refusal in order."""
    refusals = check(program, state, space)
    if refusals:
        raise VerificationError(str(refusal) for refusal in refusals)


def check(program: Program, state: MachineState, space: AddressSpace) -> list[Refusal]:
    """Every law that `program` would break, in program order; empty for a lawful one."""
    machine = MachineOverlay(state, space)
    for position, instruction in enumerate(program.instructions):
        machine.position, machine.instruction = position, instruction
        _RULES[type(instruction)](machine, instruction)
    return machine.refusals


def _move(machine: MachineOverlay, move: MoveP0) -> None:
    refused = len(machine.refusals)
    targets = machine.span(_DEVICE, move.dst, move.size)
    blocks: Sequence[int] | None
    if move.src < HOST_BASE:
        if abs(move.src - move.dst) < move.size:
            machine.refuse(
                Law.OVERLAP,
                f"source {hex(move.src)} and destination {hex(move.dst)} overlap over {move.size} bytes; "
                "they must be apart; move one slot at a time",
            )
        blocks = machine.occupants(move.src, move.size)
    else:
        blocks = _loadable(machine, move)
    for slot in targets or ():
        _check_target(machine, slot)
    if targets is None or blocks is None or len(machine.refusals) > refused:
        return
    if move.src < HOST_BASE:
        first = move.src // machine.space.slot_bytes
        for slot in range(first, first + len(blocks)):
            machine.slots[slot] = None
            machine.filled_by.pop(slot, None)
    for slot, block in zip(targets, blocks, strict=True):
        machine.slots[slot] = block
        machine.filled_by[slot] = machine.position
        machine.residence[block] = True


def _loadable(machine: MachineOverlay, move: MoveP0) -> range | None:
    """Blocks that a load names: readable there, and not on the device already."""
    tier = _HOST if move.src < DISK_BASE else _DISK
    blocks = machine.span(tier, move.src, move.size)
    if blocks is None:
        return None
    readable = machine.on_host if tier is _HOST else machine.on_disk
    for block in blocks:
        if not readable(block):
            _refuse_missing(machine, block, tier)
        if machine.is_resident(block):
            machine.refuse(
                Law.DUPLICATE,
                f"block {block} is on the device already; a block has one slot; drop the load",
            )
    return blocks


def _check_target(machine: MachineOverlay, slot: int) -> None:
    """A destination must be at rest, within the budget and free."""
    machine.touch(slot)
    capacity = machine.state.capacity
    if slot >= capacity:
        machine.refuse(
            Law.DEVICE_BUDGET,
            f"slot {slot} is beyond the device budget of {capacity} slots; use a slot below {capacity}",
        )
    block = machine.block_in(slot)
    if block is None:
        return
    if slot in machine.filled_by:
        machine.refuse(
            Law.OVERLAP,
            f"slot {slot} is already the destination of instruction {machine.filled_by[slot]}; "
            "destinations must be apart; use another slot",
        )
    else:
        machine.refuse(
            Law.OCCUPIED,
            f"slot {slot} holds block {block}; a slot holds one block; put EVICT_P3 before this line",
        )


def _refuse_missing(machine: MachineOverlay, block: int, tier: Tier) -> None:
    places = [
        name for name, held in ((_HOST, machine.on_host(block)), (_DISK, machine.on_disk(block))) if held
    ]
    fix = f"read it from {places[0]}" if places else "recompute it from its tokens"
    machine.refuse(
        Law.MISSING, f"block {block} is not readable on {tier}; a source must hold its block; {fix}"
    )


def _compress(machine: MachineOverlay, compress: CompressP2) -> None:
    state, codec = machine.state, compress.codec
    if codec not in state.codecs:
        known = ", ".join(sorted(state.codecs)) or "none"
        machine.refuse(Law.CODEC, f"unknown codec {codec!r}; known: {known}; use one of them")
        return
    blocks = machine.occupants(compress.addr, compress.size)
    if blocks is None:
        return
    worst = state.codec_bytes.get(codec) or raw_bound(machine.space.slot_bytes)
    if not machine.afford(
        Law.HOST_BUDGET, worst * len(blocks), machine.host_free, "SPILL colder blocks first"
    ):
        return
    for block in blocks:
        # Encoding again replaces the copy that is there, once the new one stands.
        machine.host_free -= worst - (machine.stored_bytes(block, 0) if machine.on_host(block) else 0)
        machine.stored[block] = worst
        machine.host[block] = True


def _evict(machine: MachineOverlay, evict: EvictP3) -> None:
    blocks = machine.occupants(evict.addr, evict.size)
    if blocks is None:
        return
    refused = len(machine.refusals)
    for block in blocks:
        if machine.grade(block) == _P0:
            machine.refuse(
                Law.GRADE, f"block {block} has grade P0; only P1 to P3 may be evicted; choose another"
            )
        if machine.is_pinned(block):
            machine.refuse(
                Law.PINNED, f"block {block} is pinned; only unpinned blocks may be evicted; UNPIN it first"
            )
        if not (machine.state.recomputable or machine.on_host(block) or machine.on_disk(block)):
            machine.refuse(
                Law.LAST_COPY,
                f"block {block} is readable nowhere else and cannot be recomputed; "
                "a copy must remain; put COMPRESS_P2 before this line",
            )
    if len(machine.refusals) > refused:
        return
    first = evict.addr // machine.space.slot_bytes
    for slot, block in enumerate(blocks, start=first):
        machine.slots[slot] = None
        machine.filled_by.pop(slot, None)
        machine.residence[block] = False


def _pin(machine: MachineOverlay, pin: PinL2) -> None:
    blocks = machine.occupants(pin.addr, pin.size)
    if blocks is None:
        return
    new = [block for block in blocks if not machine.is_pinned(block)]
    need = len(new) * machine.space.slot_bytes
    if not machine.afford(
        Law.PIN_BUDGET, need, machine.pin_free, f"UNPIN some of the {machine.pin_used} pinned"
    ):
        return
    machine.pin_free -= need
    machine.pin_used += need
    for block in new:
        machine.pins[block] = True


def _unpin(machine: MachineOverlay, unpin: Unpin) -> None:
    for block in machine.occupants(unpin.addr, unpin.size) or ():
        if machine.is_pinned(block):
            # A block may be held without having cost pin budget, so no more comes back than was used.
            back = min(machine.space.slot_bytes, machine.pin_used)
            machine.pin_free += back
            machine.pin_used -= back
            machine.pins[block] = False


def _prefetch(machine: MachineOverlay, prefetch: Prefetch) -> None:
    blocks = _stored(machine, _DISK, prefetch.src, prefetch.size)
    unknown = raw_bound(machine.space.slot_bytes)
    sizes = {block: machine.stored_bytes(block, unknown) for block in blocks if not machine.on_host(block)}
    need = sum(sizes.values())
    if machine.afford(Law.HOST_BUDGET, need, machine.host_free, "SPILL colder blocks first"):
        machine.host_free -= need
        machine.stored.update(sizes)
        machine.host.update(dict.fromkeys(sizes, True))


def _spill(machine: MachineOverlay, spill: Spill) -> None:
    blocks = _stored(machine, _HOST, spill.addr, spill.size)
    unknown = raw_bound(machine.space.slot_bytes)
    need = sum(machine.stored_bytes(block, unknown) for block in blocks if not machine.on_disk(block))
    if machine.afford(
        Law.DISK_BUDGET, need, machine.disk_free, "raise the disk budget or drop an old session"
    ):
        machine.disk_free -= need
        machine.host_free += sum(machine.stored_bytes(block, 0) for block in blocks)
        machine.host.update(dict.fromkeys(blocks, False))
        machine.disk.update(dict.fromkeys(blocks, True))


def _stored(machine: MachineOverlay, tier: Tier, address: int, size: int) -> Sequence[int]:
    """Blocks of a host or disk range, all readable there; none once refused."""
    blocks = machine.span(tier, address, size) or range(0)
    readable = machine.on_host if tier is _HOST else machine.on_disk
    missing = [block for block in blocks if not readable(block)]
    for block in missing:
        _refuse_missing(machine, block, tier)
    return range(0) if missing else blocks


def _knit(machine: MachineOverlay, knit: Knit) -> None:
    machine.occupants(knit.addr, knit.size)


_RULES: dict[type[Instruction], Callable[[MachineOverlay, Any], None]] = {
    MoveP0: _move,
    CompressP2: _compress,
    EvictP3: _evict,
    PinL2: _pin,
    Unpin: _unpin,
    Prefetch: _prefetch,
    Spill: _spill,
    Knit: _knit,
}
