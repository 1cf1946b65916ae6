"""Random programs are judged as a plain simulation judges them, one that copies and recounts everything."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.execution.addresses import AddressSpace
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
from zerolayer.execution.verifier import MachineState, check, verify

S = 4096
SPACE = AddressSpace(slot_bytes=S, slots=10, blocks=40)
dev, host, disk = SPACE.device, SPACE.host, SPACE.disk
K8V4 = S // 2


class UnlawfulError(Exception):
    """The plain machine met an instruction that it may not obey."""


def need(condition: bool) -> None:
    if not condition:
        raise UnlawfulError


@dataclass
class PlainMachine:
    """The laws of docs/isa.md written down once more, without regard to cost."""

    capacity: int
    slots: dict[int, int]
    p0: set[int]
    pinned: set[int]
    in_flight: set[int]
    host: dict[int, int]
    disk: dict[int, int]
    host_budget: int
    disk_budget: int
    pin_budget: int
    recomputable: bool
    computed: set[int] = field(default_factory=set)

    def state(self) -> MachineState:
        return MachineState(
            capacity=self.capacity,
            slots=dict(self.slots),
            grades=dict.fromkeys(self.p0, 0),
            pinned=set(self.pinned),
            in_flight=set(self.in_flight),
            on_host=set(self.host),
            on_disk=set(self.disk),
            host_free=self.host_budget - sum(self.host.values()),
            disk_free=self.disk_budget - sum(self.disk.values()),
            pin_used=S * len(self.pinned),
            pin_free=self.pin_budget - S * len(self.pinned),
            codecs={"K8V4"},
            recomputable=self.recomputable,
            stored_bytes={**self.host, **self.disk},
            codec_bytes={"K8V4": K8V4},
        )

    def filled(self, address: int, size: int) -> list[int]:
        slots = [(address + offset) // S for offset in range(0, size, S)]
        need(all(slot in self.slots and slot not in self.in_flight for slot in slots))
        return slots

    def obey(self, instruction: Instruction) -> None:
        match instruction:
            case MoveP0(src, dst, size):
                self.move(src, dst, size)
            case CompressP2(addr, size, codec):
                need(codec == "K8V4")
                blocks = [self.slots[slot] for slot in self.filled(addr, size)]
                need(K8V4 * len(blocks) <= self.host_budget - sum(self.host.values()))
                self.host |= dict.fromkeys(blocks, K8V4)
            case EvictP3(addr, size):
                for slot in self.filled(addr, size):
                    block = self.slots.pop(slot)
                    need(block not in self.p0 and block not in self.pinned)
                    need(self.recomputable or block in self.host or block in self.disk)
            case PinL2(addr, size):
                self.pinned |= {self.slots[slot] for slot in self.filled(addr, size)}
                need(S * len(self.pinned) <= self.pin_budget)
            case Unpin(addr, size):
                self.pinned -= {self.slots[slot] for slot in self.filled(addr, size)}
            case Prefetch(src, size):
                for block in range(SPACE.decode(src).index, SPACE.decode(src).index + size // S):
                    need(block in self.disk)
                    self.host.setdefault(block, self.disk[block])
                need(sum(self.host.values()) <= self.host_budget)
            case Spill(addr, size):
                for block in range(SPACE.decode(addr).index, SPACE.decode(addr).index + size // S):
                    need(block in self.host)
                    self.disk.setdefault(block, self.host.pop(block, 0))
                    self.host.pop(block, None)
                need(sum(self.disk.values()) <= self.disk_budget)
            case Knit(addr, size):
                self.filled(addr, size)

    def move(self, src: int, dst: int, size: int) -> None:
        place = SPACE.decode(src)
        targets = range(dst // S, (dst + size) // S)
        need(
            all(
                slot < self.capacity and slot not in self.slots and slot not in self.in_flight
                for slot in targets
            )
        )
        if place.tier.value == "device":
            sources = self.filled(src, size)
            blocks = [self.slots.pop(slot) for slot in sources]
        else:
            blocks = list(range(place.index, place.index + size // S))
            held = self.host if place.tier.value == "host" else self.disk
            need(all(block in held and block not in self.slots.values() for block in blocks))
        self.slots |= dict(zip(targets, blocks, strict=True))

    def keeps_the_laws(self, p0_resident: set[int]) -> None:
        assert len(set(self.slots.values())) == len(self.slots) <= self.capacity
        assert p0_resident <= set(self.slots.values())
        assert self.pinned <= set(self.slots.values())
        if not self.recomputable:
            assert self.computed <= set(self.slots.values()) | set(self.host) | set(self.disk)
        assert sum(self.host.values()) <= self.host_budget
        assert sum(self.disk.values()) <= self.disk_budget
        assert S * len(self.pinned) <= self.pin_budget


@st.composite
def machines(draw: st.DrawFn) -> PlainMachine:
    blocks = draw(
        st.lists(
            st.sampled_from([None, *range(8)]),
            min_size=4,
            max_size=6,
            unique_by=lambda b: b if b is not None else object(),
        )
    )
    slots = {slot: block for slot, block in enumerate(blocks) if block is not None}
    resident = sorted(slots.values())
    some = st.sets(st.sampled_from(resident)) if resident else st.just(set())
    away = st.dictionaries(st.integers(0, 9), st.just(K8V4), max_size=6)
    pinned = draw(some) if draw(st.booleans()) else set()
    on_host, on_disk = draw(away), draw(away)
    spare = st.integers(0, 3)
    machine = PlainMachine(
        capacity=7,
        slots=slots,
        p0=draw(st.sets(st.integers(0, 9), max_size=2)),
        pinned=pinned,
        in_flight=draw(st.sets(st.integers(0, 7), max_size=1)),
        host=on_host,
        disk=on_disk,
        host_budget=K8V4 * (len(on_host) + draw(spare)),
        disk_budget=K8V4 * (len(on_disk) + draw(spare)),
        pin_budget=S * (len(pinned) + draw(spare)),
        recomputable=draw(st.booleans()),
    )
    machine.computed = set(resident) | set(machine.host) | set(machine.disk)
    return machine


SIZES = st.sampled_from([S, S, S, 2 * S])
SLOTS = st.integers(0, 7).map(dev)
HOSTS, DISKS = st.integers(0, 9).map(host), st.integers(0, 9).map(disk)
INSTRUCTIONS = st.one_of(
    st.builds(MoveP0, st.one_of(SLOTS, HOSTS, DISKS), SLOTS, SIZES),
    st.builds(EvictP3, SLOTS, SIZES),
    st.builds(CompressP2, SLOTS, SIZES, st.just("K8V4")),
    st.builds(PinL2, SLOTS, SIZES),
    st.builds(Unpin, SLOTS, SIZES),
    st.builds(Prefetch, DISKS, SIZES),
    st.builds(Spill, HOSTS, SIZES),
    st.builds(Knit, SLOTS, SIZES),
)


@settings(max_examples=300, deadline=None)
@given(machines(), st.lists(INSTRUCTIONS, max_size=40))
def test_random_programs_are_judged_as_a_plain_simulation_judges_them(
    machine: PlainMachine, instructions: list[Instruction]
) -> None:
    start = machine.state()
    p0_resident = machine.p0 & set(machine.slots.values())
    refused, lawful = [], []
    for position, instruction in enumerate(instructions):
        attempt = copy.deepcopy(machine)
        try:
            attempt.obey(instruction)
        except UnlawfulError:
            refused.append(position)
        else:
            machine = attempt
            lawful.append(instruction)
            p0_resident |= machine.p0 & set(machine.slots.values())
        machine.keeps_the_laws(p0_resident)
    refusals = check(Program(tuple(instructions)), start, SPACE)
    assert sorted({refusal.position for refusal in refusals}) == refused
    verify(Program(tuple(lawful)), start, SPACE)


MACHINE = MachineState(capacity=8, slots={0: 0, 1: 1}, on_host={1, 2}, on_disk={3})


@given(
    st.lists(
        st.one_of(
            st.builds(EvictP3, st.integers(), st.integers()),
            st.builds(MoveP0, st.integers(), st.integers(), st.integers()),
        )
    )
)
def test_any_numbers_are_judged_without_another_error(instructions: list[Instruction]) -> None:
    check(Program(tuple(instructions)), MACHINE, SPACE)
