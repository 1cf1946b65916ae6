"""The host tier: encoded blocks in memory, bounded, in order of use."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zerolayer.core import Tier
from zerolayer.errors import BlockCorruptError
from zerolayer.execution.tiers.base import BlockRecord, check_key, full, missing
from zerolayer.execution.tiers.blockfile import checksum


def available_memory() -> int | None:
    """Bytes of host memory that may be taken without swapping; None where the system does not tell."""
    try:
        psutil: Any = importlib.import_module("psutil")  # comes with the hf extra
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)


@dataclass(frozen=True, slots=True)
class _Entry:
    record: BlockRecord
    nbytes: int
    check: int  # of the payload; memory errors are real on long-lived servers
    summary_check: int


class HostTier:
    """Records in a dict. `keys()` is ordered from the least to the most recently put or got."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._used = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def tier(self) -> Tier:
        """Tier.HOST."""
        return Tier.HOST

    @property
    def capacity_bytes(self) -> int:
        """The budget."""
        return self._capacity

    @property
    def used_bytes(self) -> int:
        """Sum of `nbytes` of the records held."""
        return self._used

    @property
    def free_bytes(self) -> int:
        """What still fits."""
        return self._capacity - self._used

    def put(self, key: str, record: BlockRecord) -> None:
        """See TierStore.put."""
        check_key(key)
        entry = _Entry(record, record.nbytes, checksum(record.payload), checksum(record.summary))
        with self._lock:
            old = self._entries.get(key)
            free = self.free_bytes + (old.nbytes if old is not None else 0)
            if entry.nbytes > free:
                raise full(self.tier, key, entry.nbytes, free, self._capacity)
            self._entries[key] = entry
            self._entries.move_to_end(key)
            self._used = self._capacity - free + entry.nbytes

    def get(self, key: str) -> BlockRecord:
        """See TierStore.get. Makes `key` the most recently used."""
        with self._lock:
            entry = self._entry(key)
            self._entries.move_to_end(key)
        if checksum(entry.record.payload) != entry.check:
            raise BlockCorruptError(f"block {key} changed in host memory; read it from disk or recompute it")
        return entry.record

    def get_summary(self, key: str) -> bytes:
        """See TierStore.get_summary. Does not count as a use."""
        with self._lock:
            entry = self._entry(key)
        if checksum(entry.record.summary) != entry.summary_check:
            raise BlockCorruptError(f"summary of block {key} changed in host memory; read it from disk")
        return entry.record.summary

    def size_of(self, key: str) -> int:
        """See TierStore.size_of."""
        with self._lock:
            return self._entry(key).nbytes

    def delete(self, key: str) -> None:
        """See TierStore.delete."""
        with self._lock:
            self._used -= self._entry(key).nbytes
            del self._entries[key]

    def keys(self) -> Iterator[str]:
        """Ids held, least recently used first."""
        with self._lock:
            return iter(list(self._entries))

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def _entry(self, key: str) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise missing(self.tier, key)
        return entry
