"""What a tier holds and promises. A record is a block's encoded payload and what is read without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from zerolayer.core import Tier
from zerolayer.errors import BlockMissingError, StoreError, StoreFullError
from zerolayer.execution.tiers import blockfile

_KEY = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One stored block: what the codec wrote, opaque bounds of its keys, and metadata that JSON can hold."""

    payload: bytes
    summary: bytes = b""
    codec: str = ""  # at most 16 ASCII characters
    meta: dict[str, str | int | float] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes charged to a tier's budget: the size of the block's file, in every tier."""
        return (
            blockfile.HEADER_BYTES
            + len(blockfile.encode_meta(self.meta))
            + len(self.summary)
            + len(self.payload)
        )


class TierStore(Protocol):
    """A bounded map from block id to record. `used_bytes + free_bytes == capacity_bytes` at all times."""

    @property
    def tier(self) -> Tier:
        """Which tier this is."""

    @property
    def capacity_bytes(self) -> int:
        """The budget; never exceeded."""

    @property
    def used_bytes(self) -> int:
        """Sum of `nbytes` of the records held."""

    @property
    def free_bytes(self) -> int:
        """What still fits."""

    def put(self, key: str, record: BlockRecord) -> None:
        """Stores or replaces a record. Raises StoreFullError and changes nothing when it does not fit."""

    def get(self, key: str) -> BlockRecord:
        """The record, checksums verified. Raises BlockMissingError or BlockCorruptError."""

    def get_summary(self, key: str) -> bytes:
        """The record's summary without reading its payload. Raises as `get`."""

    def size_of(self, key: str) -> int:
        """`nbytes` of a held record. Raises BlockMissingError."""

    def delete(self, key: str) -> None:
        """Forgets a record. Raises BlockMissingError."""

    def keys(self) -> Iterator[str]:
        """Ids of the records held, as they were when asked."""

    def __contains__(self, key: object) -> bool: ...


def check_key(key: str) -> str:
    """`key` itself. Raises StoreError unless it is a lower-case hexadecimal block id."""
    if _KEY.fullmatch(key) is None:
        raise StoreError(f"block id {key!r} is not 4 to 64 lower-case hexadecimal digits")
    return key


def missing(tier: Tier, key: str) -> BlockMissingError:
    """The error for a block that `tier` does not hold."""
    return BlockMissingError(
        f"block {key} is not in the {tier} tier; read it from another tier or recompute it"
    )


def full(tier: Tier, key: str, needed: int, free: int, capacity: int) -> StoreFullError:
    """The error for a record that does not fit into `tier`."""
    return StoreFullError(
        f"block {key} needs {needed} bytes, the {tier} tier has {free} of {capacity} free; "
        f"raise --{tier}-budget or delete sessions that are no longer needed"
    )
