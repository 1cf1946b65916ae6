"""The state that a program meets, the laws it must keep, and the overlay on which it is simulated.

Only what a program touches is copied: the cost of a simulation grows with the program, not with the machine,
and the state that was passed in is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from zerolayer.core import Grade, IntArray, Tier
from zerolayer.errors import AddressError
from zerolayer.execution.addresses import DEVICE_BASE, DISK_BASE, HOST_BASE, AddressSpace
from zerolayer.execution.isa import Instruction, instruction_text

# Reading an enum's member costs more than the rest of a range check.
_DEVICE, _HOST, _P2 = Tier.DEVICE, Tier.HOST, int(Grade.P2)


class Law(StrEnum):
    """The laws, by the word that starts a refusal. docs/isa.md says what each forbids."""

    SIZE = "size"
    ADDRESS = "address"
    TIER = "tier"
    OVERLAP = "overlap"
    OCCUPIED = "occupied"
    DUPLICATE = "duplicate"
    EMPTY = "empty"
    MISSING = "missing"
    IN_FLIGHT = "in-flight"
    GRADE = "grade"
    PINNED = "pinned"
    LAST_COPY = "last-copy"
    DEVICE_BUDGET = "device-budget"
    HOST_BUDGET = "host-budget"
    DISK_BUDGET = "disk-budget"
    PIN_BUDGET = "pin-budget"
    CODEC = "codec"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One law that one instruction breaks. `position` counts from 0."""

    position: int
    instruction: Instruction
    law: Law
    problem: str

    def __str__(self) -> str:
        return (
            f"instruction {self.position} ({instruction_text(self.instruction)}): {self.law}: {self.problem}"
        )


class BlockGrades(Protocol):
    """Block index → grade: a list, a dictionary or a numpy array. A block that it lacks counts as P2."""

    def __getitem__(self, block: int, /) -> int: ...


@dataclass(slots=True)
class MachineState:
    """What a program meets when it starts. Containers are read in place, never copied and never written.

    Blocks are block indices, slots are slot numbers, all amounts are bytes.
    """

    capacity: int  # blocks may be put into slots 0 to capacity - 1
    slots: Mapping[int, int] | Sequence[int | None] | IntArray  # slot → block; None, -1 or absent: free
    resident: Container[int] | None = None  # blocks in slots (or block → slot); None: derived from `slots`
    grades: BlockGrades = field(default_factory=dict[int, int])
    pinned: Container[int] = ()  # blocks
    in_flight: Container[int] = ()  # slots that an unfinished transfer reads or writes
    on_host: Container[int] = ()  # blocks readable from the host tier
    on_disk: Container[int] = ()  # blocks readable from the disk tier
    host_free: int = 0
    disk_free: int = 0
    pin_used: int = 0
    pin_free: int = 0
    codecs: Collection[str] = ()  # names
    recomputable: bool = True  # the session keeps the tokens of its blocks
    stored_bytes: Mapping[int, int] = field(default_factory=dict)  # block → encoded bytes; absent: worst case
    codec_bytes: Mapping[str, int] = field(
        default_factory=dict
    )  # codec → most bytes a slot; absent: raw_bound


def raw_bound(slot_bytes: int) -> int:
    """Most bytes that a codec may make of a slot that it cannot compress, container included.

    It holds for codecs that keep no wider elements than the arena's; give the others in `codec_bytes`.
    LZ4's bound, n + n/255 + 16 (`LZ4_COMPRESSBOUND`, lz4.h), and 128 for the container. zstd's bound
    (`ZSTD_COMPRESSBOUND`, zstd.h) is n + n/256 and at most 64 more.
    """
    return slot_bytes + slot_bytes // 255 + 16 + 128


class MachineOverlay:
    """The machine after the instructions so far: what they changed, over the state that was passed in."""

    instruction: Instruction
    position: int

    def __init__(self, state: MachineState, space: AddressSpace) -> None:
        self.state, self.space = state, space
        self.refusals: list[Refusal] = []
        self.slots: dict[int, int | None] = {}
        self.filled_by: dict[int, int] = {}  # slot → position of the MOVE that filled it
        self.residence: dict[int, bool] = {}
        self.pins: dict[int, bool] = {}
        self.host: dict[int, bool] = {}
        self.disk: dict[int, bool] = {}
        self.stored: dict[int, int] = {}
        self.host_free, self.disk_free = state.host_free, state.disk_free
        self.pin_free, self.pin_used = state.pin_free, state.pin_used
        self._resident = state.resident
        slots = state.slots
        self._first: Callable[[int], int | None] = (
            slots.get if isinstance(slots, Mapping) else slots.__getitem__
        )

    def refuse(self, law: Law, problem: str) -> None:
        refusal = Refusal(self.position, self.instruction, law, problem)
        if not self.refusals or self.refusals[-1] != refusal:  # a wrong size is wrong for both ends of a move
            self.refusals.append(refusal)

    def block_in(self, slot: int) -> int | None:
        if slot in self.slots:
            return self.slots[slot]
        try:
            block = self._first(slot)
        except IndexError:
            return None
        return None if block is None or block < 0 else int(block)

    def is_resident(self, block: int) -> bool:
        if block in self.residence:
            return self.residence[block]
        if self._resident is None:
            slots = self.state.slots
            blocks = slots.values() if isinstance(slots, Mapping) else slots
            self._resident = {block for block in blocks if block is not None}
        return block in self._resident

    def is_pinned(self, block: int) -> bool:
        return self.pins.get(block, block in self.state.pinned)

    def on_host(self, block: int) -> bool:
        return self.host.get(block, block in self.state.on_host)

    def on_disk(self, block: int) -> bool:
        return self.disk.get(block, block in self.state.on_disk)

    def grade(self, block: int) -> int:
        try:
            return self.state.grades[block]
        except (KeyError, IndexError):
            return _P2

    def stored_bytes(self, block: int, unknown: int) -> int:
        """Encoded bytes of a block, or `unknown` where nobody said."""
        known = self.stored.get(block)
        return self.state.stored_bytes.get(block, unknown) if known is None else known

    def span(self, tier: Tier, address: int, size: int) -> range | None:
        """Indices of the slots or blocks that `address` and `size` name in `tier`; None once refused."""
        space = self.space
        slot_bytes = space.slot_bytes
        if tier is _DEVICE:
            base, limit = DEVICE_BASE, space.slots
        else:
            base, limit = HOST_BASE if tier is _HOST else DISK_BASE, space.blocks
        count, odd = divmod(size, slot_bytes)
        first, rest = divmod(address - base, slot_bytes)
        end = first + count
        if odd or rest or count <= 0 or first < 0 or end > limit:
            self._refuse_span(tier, address, size, limit)
            return None
        return range(first, end)

    def _refuse_span(self, tier: Tier, address: int, size: int, limit: int) -> None:
        slot_bytes = self.space.slot_bytes
        if size <= 0 or size % slot_bytes:
            fix = max(slot_bytes, size - size % slot_bytes)
            allowed = f"a size is a positive multiple of the slot's {slot_bytes} bytes"
            self.refuse(Law.SIZE, f"size {size}; {allowed}; write {fix} or another multiple")
            return
        try:
            place = self.space.decode(address)
        except AddressError as error:
            self.refuse(Law.ADDRESS, str(error))
            return
        if place.tier is not tier:
            allowed = f"this operand takes a {tier} address"
            self.refuse(
                Law.TIER, f"{hex(address)} is a {place.tier} address; {allowed}; use AddressSpace.{tier}"
            )
            return
        end = place.index + size // slot_bytes
        self.refuse(
            Law.ADDRESS,
            f"range {hex(address)} + {size} ends at {tier} index {end}; the tier ends at {limit}; "
            f"shorten it to {(limit - place.index) * slot_bytes} bytes",
        )

    def touch(self, slot: int) -> None:
        """Refuse a slot that an unfinished transfer still reads or writes."""
        if slot in self.state.in_flight:
            self.refuse(
                Law.IN_FLIGHT,
                f"slot {slot} has a transfer in flight; it must be at rest; complete the transfer first",
            )

    def occupants(self, address: int, size: int) -> list[int] | None:
        """Blocks in a range of device slots, which must all be filled and at rest; None once refused."""
        span = self.span(_DEVICE, address, size)
        if span is None:
            return None
        refused = len(self.refusals)
        in_flight = self.state.in_flight
        blocks = []
        for slot in span:
            if slot in in_flight:
                self.touch(slot)
            block = self.block_in(slot)
            if block is None:
                self.refuse(
                    Law.EMPTY, f"slot {slot} holds no block; name a slot that holds one, or move one in first"
                )
            else:
                blocks.append(block)
        return blocks if len(self.refusals) == refused else None

    def afford(self, law: Law, need: int, free: int, fix: str) -> bool:
        """True when `need` bytes fit into `free`; otherwise refuse."""
        if need <= free:
            return True
        self.refuse(law, f"needs {need} bytes at worst, {free} are free; {fix}")
        return False
