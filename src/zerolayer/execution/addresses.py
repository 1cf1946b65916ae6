"""One 64-bit address space for the three tiers a program can name.

    device   DEVICE_BASE + slot  × slot_bytes    a slot of the arena
    host     HOST_BASE   + block × slot_bytes    a block's place in the host tier
    disk     DISK_BASE   + block × slot_bytes    a block's place in the disk tier

Host and disk addresses are names, not memory: a stored block is encoded and takes fewer bytes than the
`slot_bytes` that it spans here. With one stride a range of k blocks is `k × slot_bytes` long in every tier.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerolayer.core import Tier
from zerolayer.errors import AddressError, SettingError

DEVICE_BASE = 0x0
HOST_BASE = 0x1000_0000_0000
DISK_BASE = 0x2000_0000_0000
WINDOW_BYTES = 0x1000_0000_0000
"""Bytes between two bases: 16 TiB a tier."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place: a slot number on the device, a block index on host and disk."""

    tier: Tier
    index: int


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """The map between places and addresses.

    `slot_bytes`: bytes of one block in the arena, all layers, keys and values. `slots`: slots of the arena.
    `blocks`: blocks of the session. Raises SettingError when a tier does not fit its 16 TiB window.
    """

    slot_bytes: int
    slots: int
    blocks: int

    def __post_init__(self) -> None:
        if self.slot_bytes <= 0:
            raise SettingError(
                f"slot_bytes is {self.slot_bytes}; it must be at least 1, the bytes of a block"
            )
        most = WINDOW_BYTES // self.slot_bytes
        for name, count in (("slots", self.slots), ("blocks", self.blocks)):
            if not 0 <= count <= most:
                raise SettingError(
                    f"{name} is {count}; with slots of {self.slot_bytes} bytes it must lie between 0 and "
                    f"{most}; use smaller blocks, or fewer {name}"
                )

    def device(self, slot: int) -> int:
        """Address of an arena slot. Raises AddressError out of range."""
        return self._address(Tier.DEVICE, DEVICE_BASE, slot, self.slots)

    def host(self, block: int) -> int:
        """Address of a block in the host tier. Raises AddressError out of range."""
        return self._address(Tier.HOST, HOST_BASE, block, self.blocks)

    def disk(self, block: int) -> int:
        """Address of a block in the disk tier. Raises AddressError out of range."""
        return self._address(Tier.DISK, DISK_BASE, block, self.blocks)

    def decode(self, address: int) -> Location:
        """The place that `address` names. Raises AddressError when it is misaligned or out of range."""
        if DEVICE_BASE <= address < HOST_BASE:
            tier, base, count = Tier.DEVICE, DEVICE_BASE, self.slots
        elif HOST_BASE <= address < DISK_BASE:
            tier, base, count = Tier.HOST, HOST_BASE, self.blocks
        elif DISK_BASE <= address < DISK_BASE + WINDOW_BYTES:
            tier, base, count = Tier.DISK, DISK_BASE, self.blocks
        else:
            raise AddressError(
                f"address {hex(address)} lies in no tier; device starts at {hex(DEVICE_BASE)}, host at "
                f"{hex(HOST_BASE)}, disk at {hex(DISK_BASE)}, each of {hex(WINDOW_BYTES)} bytes; "
                "take addresses from AddressSpace.device, host or disk"
            )
        index, rest = divmod(address - base, self.slot_bytes)
        if rest:
            raise AddressError(
                f"address {hex(address)} is misaligned by {rest} bytes; {tier} addresses are {hex(base)} "
                f"plus a multiple of {self.slot_bytes}; the one below is {hex(address - rest)}"
            )
        if index >= count:
            raise AddressError(f"address {hex(address)} is {_out_of_range(tier, index, count)}")
        return Location(tier, index)

    def _address(self, tier: Tier, base: int, index: int, count: int) -> int:
        if not 0 <= index < count:
            raise AddressError(_out_of_range(tier, index, count))
        return base + index * self.slot_bytes


def _out_of_range(tier: Tier, index: int, count: int) -> str:
    unit = "slot" if tier is Tier.DEVICE else "block"
    allowed = f"{unit}s 0 to {count - 1} exist" if count else f"no {unit} exists"
    return f"{tier} {unit} {index}, out of range; {allowed}; use one of them, or a space with more {unit}s"
