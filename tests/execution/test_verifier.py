"""Every law refuses a program, and lawful programs pass."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import pytest

from zerolayer.core import Grade
from zerolayer.errors import VerificationError
from zerolayer.execution.addresses import AddressSpace
from zerolayer.execution.assembler import assemble
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
from zerolayer.execution.verifier import Law, MachineState, check, raw_bound, verify

S = 4096
SPACE = AddressSpace(slot_bytes=S, slots=10, blocks=40)
dev, host, disk = SPACE.device, SPACE.host, SPACE.disk
K8V4 = S // 2


def state(**changes: Any) -> MachineState:
    """Slots 0 to 4 of 8 hold blocks 0 to 4: 0 is P0, 1 pinned, slot 3 in flight. Host: 1, 2, 20; disk: 21."""
    values: dict[str, Any] = {
        "capacity": 8,
        "slots": {0: 0, 1: 1, 2: 2, 3: 3, 4: 4},
        "grades": {0: Grade.P0, 2: Grade.P1},
        "pinned": {1},
        "in_flight": {3},
        "on_host": {1, 2, 20},
        "on_disk": {21},
        "host_free": 2 * S,
        "disk_free": S,
        "pin_used": S,
        "pin_free": S,
        "codecs": {"K8V4", "LZ4"},
        "codec_bytes": {"K8V4": K8V4},
        "stored_bytes": {1: 100, 2: 100, 20: 100, 21: 100},
    }
    return MachineState(**{**values, **changes})


REFUSED: list[tuple[str, list[Instruction], dict[str, Any], list[tuple[int, Law]], str]] = [
    ("zero size", [EvictP3(dev(2), 0)], {}, [(0, Law.SIZE)], "size 0"),
    ("negative size", [Spill(host(2), -S)], {}, [(0, Law.SIZE)], "size -4096"),
    ("odd size", [MoveP0(host(20), dev(5), S + 1)], {}, [(0, Law.SIZE)], "write 4096"),
    ("misaligned", [PinL2(dev(2) + 8, S)], {}, [(0, Law.ADDRESS)], "misaligned by 8"),
    ("both ends", [MoveP0(host(20) + 1, dev(2) + 1, S)], {}, [(0, Law.ADDRESS)] * 2, "misaligned by 1"),
    ("misaligned source", [MoveP0(host(20) + 1, dev(5), S)], {}, [(0, Law.ADDRESS)], "misaligned by 1"),
    ("beyond the arena", [EvictP3(10 * S, S)], {}, [(0, Law.ADDRESS)], "slots 0 to 9 exist"),
    ("range beyond the arena", [EvictP3(dev(9), 2 * S)], {}, [(0, Law.ADDRESS)], "shorten it to 4096 bytes"),
    ("beyond the blocks", [MoveP0(host(39) + S, dev(5), S)], {}, [(0, Law.ADDRESS)], "blocks 0 to 39 exist"),
    ("negative address", [Knit(-S, S)], {}, [(0, Law.ADDRESS)], "no tier"),
    ("evicting a host address", [EvictP3(host(2), S)], {}, [(0, Law.TIER)], "takes a device address"),
    ("moving to the host", [MoveP0(dev(2), host(2), S)], {}, [(0, Law.TIER)], "takes a device address"),
    ("prefetch from the host", [Prefetch(host(2), S)], {}, [(0, Law.TIER)], "takes a disk address"),
    ("spill from the disk", [Spill(disk(21), S)], {}, [(0, Law.TIER)], "takes a host address"),
    (
        "two moves into one slot",
        [MoveP0(host(20), dev(5), S), MoveP0(disk(21), dev(5), S)],
        {},
        [(1, Law.OVERLAP)],
        "slot 5 is already the destination of instruction 0",
    ),
    (
        "a range onto itself",
        [MoveP0(dev(1), dev(2), 2 * S)],
        {"in_flight": ()},
        [(0, Law.OVERLAP)] + [(0, Law.OCCUPIED)] * 2,
        "apart",
    ),
    ("onto itself", [MoveP0(dev(2), dev(2), S)], {}, [(0, Law.OVERLAP), (0, Law.OCCUPIED)], "overlap"),
    ("an occupied slot", [MoveP0(host(20), dev(2), S)], {}, [(0, Law.OCCUPIED)], "holds block 2"),
    (
        "freed too late",
        [MoveP0(host(20), dev(2), S), EvictP3(dev(2), S)],
        {},
        [(0, Law.OCCUPIED)],
        "EVICT_P3 before",
    ),
    ("a block twice", [MoveP0(host(2), dev(5), S)], {}, [(0, Law.DUPLICATE)], "block 2 is on the device"),
    (
        "one block loaded twice",
        [MoveP0(host(20), dev(5), S), MoveP0(host(20), dev(6), S)],
        {},
        [(1, Law.DUPLICATE)],
        "block 20",
    ),
    ("evicting an empty slot", [EvictP3(dev(5), S)], {}, [(0, Law.EMPTY)], "slot 5 holds no block"),
    ("evicting twice", [EvictP3(dev(2), S), EvictP3(dev(2), S)], {}, [(1, Law.EMPTY)], "slot 2"),
    ("pinning an empty slot", [PinL2(dev(5), S)], {}, [(0, Law.EMPTY)], "slot 5"),
    ("unpinning an empty slot", [Unpin(dev(5), S)], {}, [(0, Law.EMPTY)], "slot 5"),
    ("knitting an empty slot", [Knit(dev(4), 2 * S)], {}, [(0, Law.EMPTY)], "slot 5"),
    ("compressing an empty slot", [CompressP2(dev(5), S, "K8V4")], {}, [(0, Law.EMPTY)], "slot 5"),
    ("moving an empty slot", [MoveP0(dev(5), dev(6), S)], {}, [(0, Law.EMPTY)], "slot 5"),
    (
        "moving from where it was",
        [MoveP0(dev(2), dev(5), S), Knit(dev(2), S)],
        {},
        [(1, Law.EMPTY)],
        "slot 2",
    ),
    ("not on host", [MoveP0(host(21), dev(5), S)], {}, [(0, Law.MISSING)], "read it from disk"),
    ("not on disk", [MoveP0(disk(20), dev(5), S)], {}, [(0, Law.MISSING)], "read it from host"),
    ("nowhere", [MoveP0(host(30), dev(5), S)], {}, [(0, Law.MISSING)], "recompute it"),
    ("half there", [MoveP0(host(20), dev(5), 2 * S)], {}, [(0, Law.MISSING)], "block 21"),
    ("prefetch of nothing", [Prefetch(disk(20), S)], {}, [(0, Law.MISSING)], "block 20"),
    ("spill of nothing", [Spill(host(21), S)], {}, [(0, Law.MISSING)], "block 21"),
    (
        "spilled before the load",
        [Spill(host(20), S), MoveP0(host(20), dev(5), S)],
        {},
        [(1, Law.MISSING)],
        "from disk",
    ),
    ("evict in flight", [EvictP3(dev(3), S)], {}, [(0, Law.IN_FLIGHT)], "slot 3 has a transfer in flight"),
    ("pin in flight", [PinL2(dev(3), S)], {}, [(0, Law.IN_FLIGHT)], "slot 3"),
    ("compress in flight", [CompressP2(dev(2), 2 * S, "K8V4")], {}, [(0, Law.IN_FLIGHT)], "slot 3"),
    ("move out of flight", [MoveP0(dev(3), dev(5), S)], {}, [(0, Law.IN_FLIGHT)], "slot 3"),
    ("move into flight", [MoveP0(host(20), dev(6), S)], {"in_flight": {6}}, [(0, Law.IN_FLIGHT)], "slot 6"),
    ("a P0 block", [EvictP3(dev(0), S)], {}, [(0, Law.GRADE)], "block 0 has grade P0"),
    (
        "P0 inside a range",
        [EvictP3(dev(0), 3 * S)],
        {},
        [(0, Law.GRADE), (0, Law.PINNED)],
        "block 1 is pinned",
    ),
    (
        "a P0 block that moved",
        [MoveP0(dev(0), dev(5), S), EvictP3(dev(5), S)],
        {},
        [(1, Law.GRADE)],
        "block 0",
    ),
    ("a pinned block", [EvictP3(dev(1), S)], {}, [(0, Law.PINNED)], "UNPIN it first"),
    ("pinned before", [PinL2(dev(2), S), EvictP3(dev(2), S)], {}, [(1, Law.PINNED)], "block 2"),
    (
        "the last copy",
        [EvictP3(dev(4), S)],
        {"recomputable": False},
        [(0, Law.LAST_COPY)],
        "COMPRESS_P2 before",
    ),
    ("beyond the budget", [MoveP0(host(20), dev(8), S)], {}, [(0, Law.DEVICE_BUDGET)], "budget of 8 slots"),
    ("closing a hole upwards", [MoveP0(dev(2), dev(8), S)], {}, [(0, Law.DEVICE_BUDGET)], "slot 8"),
    (
        "host full",
        [CompressP2(dev(4), S, "K8V4")],
        {"host_free": K8V4 - 1},
        [(0, Law.HOST_BUDGET)],
        "2047 are free",
    ),
    (
        "host full, raw bound",
        [CompressP2(dev(4), S, "LZ4")],
        {"host_free": S},
        [(0, Law.HOST_BUDGET)],
        str(raw_bound(S)),
    ),
    (
        "host full at the third",
        [CompressP2(dev(4), S, "K8V4"), CompressP2(dev(0), S, "K8V4"), Prefetch(disk(21), S)],
        {"host_free": 2 * K8V4 + 99},
        [(2, Law.HOST_BUDGET)],
        "needs 100 bytes",
    ),
    ("disk full", [Spill(host(20), S)], {"disk_free": 99}, [(0, Law.DISK_BUDGET)], "needs 100 bytes"),
    (
        "disk full at the second",
        [Spill(host(20), S), Spill(host(2), S)],
        {"disk_free": 199},
        [(1, Law.DISK_BUDGET)],
        "needs 100 bytes at worst, 99 are free",
    ),
    (
        "host full at the second",
        [Prefetch(disk(21), S), Prefetch(disk(22), S)],
        {"on_disk": {21, 22}, "host_free": 100 + raw_bound(S) - 1},
        [(1, Law.HOST_BUDGET)],
        "are free",
    ),
    ("pins full", [PinL2(dev(2), S), PinL2(dev(4), S)], {}, [(1, Law.PIN_BUDGET)], "UNPIN some of the 8192"),
    ("unknown codec", [CompressP2(dev(2), S, "GZIP")], {}, [(0, Law.CODEC)], "known: K8V4, LZ4"),
    (
        "every reason is listed",
        [EvictP3(dev(0), S), Knit(dev(7), S), CompressP2(dev(2), S, "GZIP")],
        {},
        [(0, Law.GRADE), (1, Law.EMPTY), (2, Law.CODEC)],
        "instruction 1 (KNIT 0x7000 4096): empty",
    ),
]


@pytest.mark.parametrize(
    ("instructions", "changes", "laws", "words"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_a_program_that_breaks_a_law_is_refused(
    instructions: list[Instruction], changes: dict[str, Any], laws: list[tuple[int, Law]], words: str
) -> None:
    program, before = Program(tuple(instructions)), state(**changes)
    untouched = copy.deepcopy(before)
    with pytest.raises(VerificationError) as error:
        verify(program, before, SPACE)
    assert [(refusal.position, refusal.law) for refusal in check(program, before, SPACE)] == laws
    assert words in str(error.value)
    assert len(error.value.reasons) == len(laws)
    assert before == untouched


def test_every_law_has_a_program_that_it_refuses() -> None:
    assert {law for case in REFUSED for _, law in case[3]} == set(Law)


LAWFUL: list[tuple[str, list[Instruction], dict[str, Any]]] = [
    ("nothing", [], {}),
    ("evict, then load into the slot", [EvictP3(dev(2), S), MoveP0(host(20), dev(2), S)], {}),
    ("evict and load the same block", [EvictP3(dev(2), S), MoveP0(host(2), dev(5), S)], {}),
    ("load from disk", [MoveP0(disk(21), dev(5), S)], {}),
    ("prefetch, then load from host", [Prefetch(disk(21), S), MoveP0(host(21), dev(5), S)], {}),
    ("spill, then load from disk", [Spill(host(20), S), MoveP0(disk(20), dev(5), S)], {}),
    ("close a hole", [EvictP3(dev(2), S), MoveP0(dev(4), dev(2), S), MoveP0(host(20), dev(4), S)], {}),
    (
        "a pinned block moves, its pin with it",
        [MoveP0(dev(1), dev(5), S), Unpin(dev(5), S), EvictP3(dev(5), S)],
        {},
    ),
    (
        "write behind, then evict",
        [CompressP2(dev(4), S, "K8V4"), EvictP3(dev(4), S)],
        {"recomputable": False},
    ),
    ("evict what the host can give back", [EvictP3(dev(2), S)], {"recomputable": False}),
    ("evict what can be recomputed", [EvictP3(dev(4), S)], {}),
    ("unpin, then evict", [Unpin(dev(1), S), EvictP3(dev(1), 2 * S)], {}),
    ("unpin gives budget back", [Unpin(dev(1), S), PinL2(dev(2), S), PinL2(dev(4), S)], {}),
    ("pinning again costs nothing", [PinL2(dev(0), 2 * S), PinL2(dev(0), 2 * S), Knit(dev(0), 3 * S)], {}),
    ("spill makes room", [Spill(host(2), S), CompressP2(dev(4), S, "K8V4")], {"host_free": K8V4 - 100}),
    (
        "encoding again gives the old copy back",
        [CompressP2(dev(2), S, "K8V4")] * 2,
        {"host_free": 2 * K8V4 - 100},
    ),
    (
        "a fresh copy spills at its size",
        [CompressP2(dev(4), S, "K8V4"), Spill(host(4), S)],
        {"disk_free": K8V4},
    ),
    ("ranges", [Unpin(dev(1), S), CompressP2(dev(0), 3 * S, "K8V4"), EvictP3(dev(1), 2 * S)], {}),
    ("a range into a range", [MoveP0(dev(0), dev(5), 3 * S), PinL2(dev(7), S)], {}),
]


@pytest.mark.parametrize(
    ("instructions", "changes"), [case[1:] for case in LAWFUL], ids=[case[0] for case in LAWFUL]
)
def test_a_lawful_program_passes(instructions: list[Instruction], changes: dict[str, Any]) -> None:
    before = state(**changes)
    untouched = copy.deepcopy(before)
    verify(Program(tuple(instructions)), before, SPACE)
    assert before == untouched


@pytest.mark.parametrize(
    "slots", [{0: 7, 2: 8}, [7, None, 8], [7, None, 8, None, None], np.array([7, -1, 8, -1])]
)
def test_slots_come_as_a_mapping_a_list_or_an_array(slots: Any) -> None:
    machine = MachineState(capacity=4, slots=slots, grades=np.full(40, 2), on_host={8, 9})
    verify(
        Program((MoveP0(host(9), dev(1), S), MoveP0(dev(2), dev(3), S), EvictP3(dev(0), 2 * S))),
        machine,
        SPACE,
    )
    program = Program((EvictP3(dev(1), S), MoveP0(host(9), dev(2), S), MoveP0(host(8), dev(3), S)))
    laws = [refusal.law for refusal in check(program, machine, SPACE)]
    assert laws == [Law.EMPTY, Law.OCCUPIED, Law.DUPLICATE]


def test_assembled_text_is_verified_alike() -> None:
    program = assemble("EVICT_P3 0x2000 4096\nMOVE_P0 0x100000014000 0x2000 4096  # block 20")
    verify(program, state(), SPACE)


def test_cost_grows_with_the_program_and_not_with_the_machine() -> None:
    def seconds(slots: int) -> float:
        space = AddressSpace(S, slots, 2 * slots)
        table = list(range(slots))
        machine = MachineState(capacity=slots, slots=table, resident=range(slots), on_host=range(2 * slots))
        program = Program(
            tuple(
                instruction
                for slot in range(100)
                for instruction in (
                    EvictP3(space.device(slot), S),
                    MoveP0(space.host(slots + slot), space.device(slot), S),
                )
            )
        )
        best = float("inf")
        for _ in range(10):
            start = time.perf_counter()
            verify(program, machine, space)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(1_000_000) < 5 * seconds(1_000)
