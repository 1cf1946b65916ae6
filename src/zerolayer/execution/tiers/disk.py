"""The disk tier: one file per block under `root/xx/`, xx being the first two digits of the block's id.

A file appears by rename, so a killed process leaves whole blocks and temporary files, never half a block;
those are swept when the directory is opened. Blocks are not synced one by one: after a power failure a
checksum finds what was lost, and it is recomputed.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from zerolayer.core import Tier
from zerolayer.errors import (
    BlockCorruptError,
    BlockMissingError,
    StoreError,
    StoreVersionError,
)
from zerolayer.execution.tiers import blockfile
from zerolayer.execution.tiers.base import BlockRecord, check_key, full, missing
from zerolayer.execution.tiers.files import TEMPORARY, storage_error, sweep, sync_directory, write_atomic

_SUFFIX = ".kv"


class DiskTier:
    """Records as files. `extend(n)`, when given, is asked for `n` more bytes of budget before a put fails;
    it answers with the bytes granted, which may be fewer or more.

    Raises StoreError when `root` cannot be created or read. Another process may use the same directory: each
    counts what it found when it opened and what it wrote.
    """

    def __init__(self, root: Path, capacity_bytes: int, extend: Callable[[int], int] | None = None) -> None:
        self.root = root
        self._capacity = capacity_bytes
        self._extend = extend
        self._closed = False
        self._lock = threading.RLock()
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._sizes = scan(root)
        except OSError as error:
            raise storage_error(error, root) from error
        self._used = sum(self._sizes.values())
        # A smaller budget loses nothing that is there: it only accepts nothing more.
        self._capacity = max(capacity_bytes, self._used)

    @property
    def tier(self) -> Tier:
        """Tier.DISK."""
        return Tier.DISK

    @property
    def capacity_bytes(self) -> int:
        """The budget; at least what was found when the directory was opened."""
        return self._capacity

    @property
    def used_bytes(self) -> int:
        """Sum of the sizes of the files held."""
        return self._used

    @property
    def free_bytes(self) -> int:
        """What still fits without extending the budget."""
        return self._capacity - self._used

    def path_of(self, key: str) -> Path:
        """Where block `key` lies, whether it is there or not."""
        return self.place(self.root, key)

    @staticmethod
    def place(root: Path, key: str) -> Path:
        """Where block `key` lies in a tier at `root`."""
        return root / key[:2] / f"{key}{_SUFFIX}"

    def put(self, key: str, record: BlockRecord) -> None:
        """See TierStore.put. Also raises StoreFullError when the device itself is full, and StoreError."""
        path = self.path_of(check_key(key))
        meta = blockfile.encode_meta(record.meta)
        header = blockfile.pack(key, record.codec, meta, record.summary, record.payload)
        parts = (header, meta, record.summary, record.payload)
        size = sum(map(len, parts))
        with self._lock:
            if self._closed:
                raise StoreError(
                    f"block {key} was not written: {self.root} is closed; open its session again"
                )
            old = self._sizes.get(key, 0)
            short = size - old - self.free_bytes
            if short > 0 and self._extend is not None:
                self._capacity += self._extend(short)
            if size - old > self.free_bytes:
                raise full(self.tier, key, size, self.free_bytes + old, self._capacity)
            try:
                path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise storage_error(error, path) from error
            write_atomic(path, parts)
            self._sizes[key] = size
            self._used += size - old

    def get(self, key: str) -> BlockRecord:
        """See TierStore.get. Also raises StoreVersionError."""
        with self._open(key) as (file, path, header):
            meta = blockfile.read_part(file, header.meta_bytes, header.meta_check, "metadata", key, path)
            summary = blockfile.read_part(
                file, header.summary_bytes, header.summary_check, "summary", key, path
            )
            payload = blockfile.read_part(
                file, header.payload_bytes, header.payload_check, "payload", key, path
            )
        return BlockRecord(payload, summary, header.codec, blockfile.decode_meta(meta))

    def get_summary(self, key: str) -> bytes:
        """See TierStore.get_summary."""
        with self._open(key) as (file, path, header):
            file.seek(header.meta_bytes, os.SEEK_CUR)
            return blockfile.read_part(file, header.summary_bytes, header.summary_check, "summary", key, path)

    def size_of(self, key: str) -> int:
        """See TierStore.size_of."""
        try:
            return self._sizes[key]
        except KeyError:
            raise missing(self.tier, key) from None

    def delete(self, key: str) -> None:
        """See TierStore.delete."""
        with self._lock:
            size = self.size_of(key)
            try:
                self.path_of(key).unlink(missing_ok=True)
            except OSError as error:
                raise storage_error(error, self.path_of(key)) from error
            del self._sizes[key]
            self._used -= size

    def keys(self) -> Iterator[str]:
        """Ids held, in no particular order."""
        with self._lock:
            return iter(list(self._sizes))

    def __contains__(self, key: object) -> bool:
        return key in self._sizes

    def stored_prefix(self, block_ids: Sequence[str]) -> int:
        """Number of leading blocks that are here with an intact header and their full length.

        Payloads are not read; a damaged one is found when it is.
        """
        for count, key in enumerate(block_ids):
            try:
                with self._open(key):
                    pass
            except (BlockMissingError, BlockCorruptError, StoreVersionError):
                return count
        return len(block_ids)

    def close(self) -> None:
        """Refuses writes from now on: the directory may be evicted at any time."""
        with self._lock:
            self._closed = True

    def sync(self) -> None:
        """Makes the names of all blocks durable. Raises StoreError."""
        try:
            for directory in (*(path for path in self.root.iterdir() if path.is_dir()), self.root):
                sync_directory(directory)
        except OSError as error:
            raise storage_error(error, self.root) from error

    @contextmanager
    def _open(self, key: str) -> Iterator[tuple[BinaryIO, Path, blockfile.BlockHeader]]:
        """The block's file after its header. Raises as `get`, and StoreError for failures of the system."""
        if key not in self._sizes:
            raise missing(self.tier, key)
        path = self.path_of(key)
        try:
            with path.open("rb", buffering=0) as file:
                header = blockfile.read_header(file, key, path)
                size = os.fstat(file.fileno()).st_size
                if size != header.file_bytes:
                    raise BlockCorruptError(
                        f"block {key}: {path} has {size} bytes instead of {header.file_bytes}; recompute it"
                    )
                yield file, path, header
        except FileNotFoundError:
            self._forget(key)
            raise missing(self.tier, key) from None
        except OSError as error:
            if error.errno == errno.EIO:  # an unreadable sector loses this block, not the store
                raise BlockCorruptError(
                    f"block {key}: {path} cannot be read ({error}); recompute it"
                ) from error
            raise storage_error(error, path) from error

    def _forget(self, key: str) -> None:
        with self._lock:
            self._used -= self._sizes.pop(key, 0)


def scan(root: Path) -> dict[str, int]:
    """Sizes of the blocks under `root`; temporary files of writers that are gone are removed."""
    sizes: dict[str, int] = {}
    for entry in itertools.chain.from_iterable(os.scandir(d) for d in os.scandir(root) if d.is_dir()):
        if entry.name.endswith(TEMPORARY):
            sweep(Path(entry.path))
        elif entry.name.endswith(_SUFFIX):
            with suppress(FileNotFoundError):
                sizes[entry.name.removesuffix(_SUFFIX)] = entry.stat().st_size
    return sizes
