"""The instruction set: what an instruction, a program and an outcome are. Plain data, no behaviour.

Addresses are those of `addresses.AddressSpace`; sizes are bytes and whole multiples of a slot. A range of
k × slot_bytes names k neighbouring slots (device) or blocks (host, disk). docs/isa.md has the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class MoveP0:
    """Put a block into a device slot and rotate its keys to the slot's position.

    From host or disk it is a load; from the device it closes a hole, and the source slot is free afterwards.
    """

    src: int
    dst: int
    size: int


@dataclass(frozen=True, slots=True)
class CompressP2:
    """Encode device slots into the host tier. The device copy stays (write-behind)."""

    addr: int
    size: int
    codec: str


@dataclass(frozen=True, slots=True)
class EvictP3:
    """Mark device slots free. Copies nothing and waits for nothing."""

    addr: int
    size: int


@dataclass(frozen=True, slots=True)
class PinL2:
    """Keep device slots in the fastest cache. The pin belongs to the block and moves with it."""

    addr: int
    size: int


@dataclass(frozen=True, slots=True)
class Unpin:
    """Take back `PinL2`."""

    addr: int
    size: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Copy blocks from disk to host as they are stored. The disk copy stays."""

    src: int
    size: int


@dataclass(frozen=True, slots=True)
class Spill:
    """Move blocks from host to disk as they are stored, and free their host bytes."""

    addr: int
    size: int


@dataclass(frozen=True, slots=True)
class Knit:
    """Recompute the blocks in device slots in sight of all resident ones; the slots keep the result."""

    addr: int
    size: int


Instruction = MoveP0 | CompressP2 | EvictP3 | PinL2 | Unpin | Prefetch | Spill | Knit


class Operand(Enum):
    """How an operand is written in a program's text."""

    ADDRESS = "a hexadecimal address of up to 16 digits, such as 0x40000"
    SIZE = "a decimal number of bytes of up to 19 digits, such as 65536"
    CODEC = "a codec's name in capitals, such as K8V4"


_ADDR = (("addr", Operand.ADDRESS), ("size", Operand.SIZE))
_SRC = (("src", Operand.ADDRESS), ("size", Operand.SIZE))

FORMS: dict[str, tuple[type[Instruction], tuple[tuple[str, Operand], ...]]] = {
    "MOVE_P0": (MoveP0, (("src", Operand.ADDRESS), ("dst", Operand.ADDRESS), ("size", Operand.SIZE))),
    "COMPRESS_P2": (CompressP2, (*_ADDR, ("codec", Operand.CODEC))),
    "EVICT_P3": (EvictP3, _ADDR),
    "PIN_L2": (PinL2, _ADDR),
    "UNPIN": (Unpin, _ADDR),
    "PREFETCH": (Prefetch, _SRC),
    "SPILL": (Spill, _ADDR),
    "KNIT": (Knit, _ADDR),
}
"""Mnemonic → class and operands in text order (which is field order). An instruction is one entry here."""

MNEMONICS: dict[type[Instruction], str] = {form[0]: mnemonic for mnemonic, form in FORMS.items()}
"""Class → mnemonic."""


def instruction_text(instruction: Instruction) -> str:
    """One line of text, such as `EVICT_P3 0x40000 65536`."""
    mnemonic = MNEMONICS[type(instruction)]
    words = [mnemonic]
    for name, operand in FORMS[mnemonic][1]:
        value = getattr(instruction, name)
        words.append(hex(value) if operand is Operand.ADDRESS else str(value))
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions in the order in which they take effect. Any iterable of them builds one."""

    instructions: tuple[Instruction, ...] = ()

    def __post_init__(self) -> None:
        if type(self.instructions) is not tuple:
            object.__setattr__(self, "instructions", tuple(self.instructions))

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, index: int) -> Instruction:
        return self.instructions[index]

    def text(self) -> str:
        """The text form, one instruction a line, each line ended; `assemble` reads it back."""
        return "".join(instruction_text(instruction) + "\n" for instruction in self.instructions)


class OutcomeStatus(StrEnum):
    """What became of an instruction."""

    DONE = "done"
    DEFERRED = "deferred"  # not now, or only in part; nothing is lost
    REFUSED = "refused"


class Outcome(NamedTuple):
    """What became of one instruction: why, the bytes it moved or freed, the nanoseconds it took."""

    instruction: Instruction
    status: OutcomeStatus
    reason: str = ""
    bytes: int = 0
    nanoseconds: int = 0
