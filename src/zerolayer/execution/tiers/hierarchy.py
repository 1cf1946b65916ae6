"""Host and disk as one store: written behind, spilled, promoted, read back from whichever copy is sound.

Law: a block that was written is readable from some tier until it is deleted. So a host copy is dropped only
when disk holds the block, and a block that neither tier can take is refused with nothing lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from zerolayer.core import Tier
from zerolayer.errors import BlockCorruptError, BlockMissingError, StoreFullError
from zerolayer.execution.tiers.base import BlockRecord, TierStore

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TierCounters:
    """What passed through one tier since the hierarchy was made."""

    written_bytes: int = 0
    read_bytes: int = 0
    dropped_bytes: int = 0  # copies dropped; the block itself stays readable elsewhere
    corrupt_blocks: int = 0
    refused_writes: int = 0  # the tier was full


class TierHierarchy:
    """A host tier in front of a disk tier, safe for several threads.

    `reserve(n)` asks the session store to make `n` bytes free on disk; it may evict other sessions and raises
    StoreFullError when that cannot help.
    """

    def __init__(self, host: TierStore, disk: TierStore, reserve: Callable[[int], object]) -> None:
        self.host = host
        self.disk = disk
        self.protected: AbstractSet[str] = frozenset()
        """Ids whose host copies are dropped last."""
        self.make_room: Callable[[int, str], bool] | None = None
        """Drops host copies of at least so many bytes for the id, or none: where several sessions share a host tier."""
        self.counters = {Tier.HOST: TierCounters(), Tier.DISK: TierCounters()}
        self.reserve = reserve
        self._lock = threading.RLock()

    def write_behind(self, key: str, record: BlockRecord) -> frozenset[Tier]:
        """Stores a block in both tiers as far as they go; returns the tiers that hold it now.

        A block that was there is replaced. Raises StoreFullError, having lost nothing, when neither has room.
        """
        with self._lock:
            before = self.where(key)
            in_host = self._put_host(key, record)
            failure = self._put_disk(key, record)
            if failure is None and not in_host:
                self._discard(self.host, key)  # an older copy that the new one did not replace
            if failure is not None and not in_host:
                raise failure
            if failure is not None and Tier.DISK in before:
                self._discard(self.disk, key)  # likewise: host holds the new one
            if failure is not None:
                _log.warning("block %s is kept in host memory only: %s", key, failure)
            return self.where(key)

    def read(self, key: str) -> BlockRecord:
        """The block from host, else from disk (then kept in host too when it fits without dropping others).

        A damaged copy is dropped and counted. Raises BlockCorruptError when no sound copy is left,
        BlockMissingError when no tier holds the block.
        """
        return self._read(key, keep=True)

    def get_summary(self, key: str) -> bytes:
        """The block's summary from host, else from disk, without its payload. Raises as `read`."""
        damaged: BlockCorruptError | None = None
        for store in (self.host, self.disk):
            try:
                return store.get_summary(key)
            except BlockMissingError:
                continue
            except BlockCorruptError as error:
                damaged = error
        raise damaged or self._missing(key)

    def where(self, key: str) -> frozenset[Tier]:
        """The tiers that hold a copy."""
        return frozenset(store.tier for store in (self.host, self.disk) if key in store)

    def spill(self, key: str) -> int:
        """Host → disk: drops the host copy once disk holds the block; returns the host bytes freed.

        Raises BlockMissingError, and StoreFullError when disk cannot take it.
        """
        with self._lock:
            if key not in self.host:
                if key in self.disk:
                    return 0
                raise self._missing(key)
            if key not in self.disk:
                record = self._read(key, keep=False)
                failure = self._put_disk(key, record)
                if failure is not None:
                    raise failure
            return self._drop_from_host(key)

    def promote(self, key: str) -> bool:
        """Disk → host, dropping older copies that disk holds; whether host holds it now. Raises as `read`."""
        with self._lock:
            record = self._read(key, keep=False)
            return key in self.host or self._put_host(key, record)

    def delete(self, key: str) -> None:
        """Forgets a block in every tier. Raises BlockMissingError when no tier holds it."""
        with self._lock:
            if not self.where(key):
                raise self._missing(key)
            self._discard(self.host, key)
            self._discard(self.disk, key)

    def keys(self) -> Iterator[str]:
        """Ids of all blocks held, each once."""
        return iter(dict.fromkeys((*self.disk.keys(), *self.host.keys())))

    def __contains__(self, key: object) -> bool:
        return key in self.host or key in self.disk

    def _read(self, key: str, keep: bool) -> BlockRecord:
        damaged: BlockCorruptError | None = None
        for store in (self.host, self.disk):
            try:
                record = store.get(key)
            except BlockMissingError:
                continue
            except BlockCorruptError as error:
                damaged = error
                self.counters[store.tier].corrupt_blocks += 1
                _log.warning("%s", error)
                self._discard(store, key)
                continue
            self.counters[store.tier].read_bytes += record.nbytes
            if keep and store is self.disk:
                self._keep_in_host(key, record)
            return record
        raise damaged or self._missing(key)

    def _keep_in_host(self, key: str, record: BlockRecord) -> None:
        with self._lock:
            # deleted by another thread since it was read: bringing it back would resurrect it
            if key in self.disk and record.nbytes <= self.host.free_bytes:
                self.host.put(key, record)
                self.counters[Tier.HOST].written_bytes += record.nbytes

    def _put_host(self, key: str, record: BlockRecord) -> bool:
        needed = record.nbytes - (self.host.size_of(key) if key in self.host else 0)
        if not self._make_room(needed - self.host.free_bytes, key):
            self.counters[Tier.HOST].refused_writes += 1
            return False
        self.host.put(key, record)
        self.counters[Tier.HOST].written_bytes += record.nbytes
        return True

    def _make_room(self, shortage: int, incoming: str) -> bool:
        """Drops host copies of at least `shortage` bytes, or none: least recently used first."""
        if shortage <= 0:
            return True
        if self.make_room is not None:
            return self.make_room(shortage, incoming)
        victims: list[str] = []
        in_order = list(self.host.keys())
        for protected in (False, True):  # protected copies go last
            for key in in_order:
                if (key in self.protected) is protected and key != incoming and key in self.disk:
                    victims.append(key)
                    shortage -= self.host.size_of(key)
                    if shortage <= 0:
                        for victim in victims:
                            self._drop_from_host(victim)
                        return True
        return False

    def _put_disk(self, key: str, record: BlockRecord) -> StoreFullError | None:
        """None when disk holds the record, else why not."""
        try:
            try:
                self.disk.put(key, record)
            except StoreFullError:
                self.reserve(record.nbytes)
                self.disk.put(key, record)
        except StoreFullError as error:
            self.counters[Tier.DISK].refused_writes += 1
            return error
        self.counters[Tier.DISK].written_bytes += record.nbytes
        return None

    def _drop_from_host(self, key: str) -> int:
        size = self.host.size_of(key)
        self.host.delete(key)
        self.counters[Tier.HOST].dropped_bytes += size
        return size

    @staticmethod
    def _discard(store: TierStore, key: str) -> None:
        with suppress(BlockMissingError):
            store.delete(key)

    @staticmethod
    def _missing(key: str) -> BlockMissingError:
        return BlockMissingError(f"block {key} is in no tier; recompute it from its tokens")
