"""Sessions on disk, by content, within one budget that several processes share.

    root/index.json, root/lock               use counter and claimed bytes; flock around every change
    root/sessions/<id>/manifest.json, lock   what the session is; a shared flock while a process has it open
    root/sessions/<id>/blocks/xx/*.kv        its blocks
    root/trash/                              sessions being deleted: renamed first, so none is ever half there

A process claims budget before it writes, in steps, so the blocks of all processes together stay within it.
Bytes are those of block files. What a killed process had claimed is counted again once its lock is gone.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from zerolayer.errors import StoreError, StoreFullError, StoreModelError, StoreVersionError, UnknownNameError
from zerolayer.execution.tiers import files, manifest
from zerolayer.execution.tiers.disk import DiskTier, scan
from zerolayer.execution.tiers.manifest import IndexEntry, SessionInfo, StoreIndex

__all__ = ["SessionInfo", "SessionStore", "StoredSession"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_LARGEST_STEP = 64 << 20  # bytes claimed at a time

_log = logging.getLogger(__name__)

Ids = list[str]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as listed: its description, the bytes of its blocks, and whether a process has it open."""

    info: SessionInfo
    nbytes: int
    in_use: bool


@dataclass(slots=True)
class _Open:
    tier: DiskTier
    lock: int  # descriptor
    users: int = 1


class SessionStore:
    """All sessions under `root`; their blocks take at most `disk_budget` bytes. Any process may share it.

    Raises StoreVersionError when another version wrote the store, StoreError when `root` cannot be used.
    """

    def __init__(self, root: Path, disk_budget: int) -> None:
        self.root = root
        self.disk_budget = disk_budget
        self._open: dict[str, _Open] = {}
        self._mutex = threading.Lock()
        try:
            self._sessions.mkdir(parents=True, exist_ok=True)
            self._trash.mkdir(exist_ok=True)
        except OSError as error:
            raise files.storage_error(error, root) from error
        with self._index():
            for remains in self._trash.iterdir():
                shutil.rmtree(remains, ignore_errors=True)

    def open(self, info: SessionInfo) -> DiskTier:
        """Creates or opens a session; blocks that an interrupted read left are there again.

        The session is never evicted until close(). Opening it again gives the same tier. An existing session
        opens on a full disk too. Raises StoreModelError when another model wrote it, StoreVersionError,
        StoreFullError, StoreError.
        """
        self._check_id(info.id)
        with self._mutex, self._index() as index:
            directory = self._sessions / info.id
            stored = manifest.read_manifest(directory / "manifest.json")
            if stored is not None and stored.model_fingerprint != info.model_fingerprint:
                raise StoreModelError(
                    f"session {info.id} ({stored.title}) was written by model {stored.model_fingerprint}, "
                    f"not by {info.model_fingerprint}; use that model, or delete the session and read again"
                )
            self._describe(manifest.merge(info, stored, time.time()), known=stored is not None)
            entry = index.sessions.setdefault(info.id, IndexEntry())
            index.counter += 1
            entry.use = index.counter
            opened = self._open.get(info.id)
            if opened is None:
                opened = self._open[info.id] = self._attach(info.id, entry)
            else:
                opened.users += 1
            return opened.tier

    def share(self, source_id: str, target_id: str, block_ids: Collection[str]) -> int:
        """Gives a session that nobody has open these blocks of another one, as links; returns how many there were.

        Deleting either session leaves the other its blocks; the budget counts them twice. Raises StoreError.
        """
        self._check_id(source_id)
        self._check_id(target_id)
        linked = 0
        with self._mutex, self._index():
            source, target = (self._sessions / name / "blocks" for name in (source_id, target_id))
            for block_id in block_ids:
                path = DiskTier.place(source, block_id)
                copy = DiskTier.place(target, block_id)
                try:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.hardlink_to(path)
                    linked += 1
                except (FileNotFoundError, FileExistsError):
                    continue
                except OSError as error:
                    raise files.storage_error(error, copy) from error
        return linked

    def save(self, info: SessionInfo) -> None:
        """Writes the description of an open session. Raises UnknownNameError when not open, StoreError."""
        with self._mutex, self._index():
            if info.id not in self._open:
                raise UnknownNameError("open session", info.id, self._open)
            manifest.write_manifest(self._sessions / info.id / "manifest.json", info)

    def info(self, session_id: str) -> SessionInfo:
        """The description of a session. Raises UnknownNameError, StoreVersionError."""
        self._check_id(session_id)
        info = manifest.read_manifest(self._sessions / session_id / "manifest.json")
        if info is None:
            raise UnknownNameError("session", session_id, self._ids())
        return info

    def directory(self, session_id: str) -> Path:
        """Where a session is kept, whether it exists or not: room for what describes it, beside its blocks."""
        self._check_id(session_id)
        return self._sessions / session_id

    def stored_prefix(self, session_id: str, block_ids: Sequence[str]) -> int:
        """Number of leading `block_ids` that the open session holds, intact by header and length."""
        with self._mutex:
            if session_id not in self._open:
                raise UnknownNameError("open session", session_id, self._open)
            tier = self._open[session_id].tier
        return tier.stored_prefix(block_ids)

    def close(self, session_id: str) -> None:
        """Ends one use of a session; after the last one it may be evicted and its tier refuses to write."""
        with self._mutex:
            opened = self._open.get(session_id)
            if opened is None:
                raise UnknownNameError("open session", session_id, self._open)
            opened.users -= 1
            if opened.users == 0:
                del self._open[session_id]
                opened.tier.close()
                with self._index() as index:
                    os.close(opened.lock)
                    self._settle(index)

    def list(self) -> list[StoredSession]:
        """All sessions that this version can read, most recently used first."""
        with self._index() as index:
            self._settle(index)
            found: list[StoredSession] = []
            for name, entry in sorted(index.sessions.items(), key=lambda item: -item[1].use):
                directory = self._sessions / name
                try:
                    info = manifest.read_manifest(directory / "manifest.json")
                except StoreVersionError as error:
                    _log.warning("session %s is left out: %s", name, error)
                    continue
                if info is None:
                    continue
                in_use = self._in_use(name)
                info = info if in_use else replace(info, grade="P3")
                nbytes = _blocks_bytes(directory) if in_use else entry.claimed_bytes
                found.append(StoredSession(info, nbytes, in_use))
            return found

    def delete(self, session_id: str) -> None:
        """Removes a session, whole. Raises UnknownNameError, and StoreError while a process has it open."""
        self._check_id(session_id)
        with self._index() as index:
            directory = self._sessions / session_id
            if not directory.is_dir():
                raise UnknownNameError("session", session_id, self._ids())
            user = files.user_of(directory / "lock")
            if user is not None:
                raise StoreError(f"session {session_id} is open in process {user}; end that process first")
            self._remove(session_id)
            index.sessions.pop(session_id, None)

    def reserve(self, nbytes: int, keep: Collection[str] = ()) -> Ids:
        """Makes `nbytes` of the budget and of the disk itself free; returns the ids of the evicted sessions.

        Whole sessions go, least recently used first; never those in `keep`, nor any that a process has open.
        Raises StoreFullError, having evicted nothing, when that is not enough.
        """
        with self._index() as index:
            self._settle(index)
            free = min(self.disk_budget - index.claimed_bytes, shutil.disk_usage(self.root).free)
            by_use = sorted(index.sessions, key=lambda name: index.sessions[name].use)
            evictable = [name for name in by_use if name not in keep and not self._in_use(name)]
            victims: Ids = []
            available = free
            for name in evictable:
                if available >= nbytes:
                    break
                victims.append(name)
                available += index.sessions[name].claimed_bytes
            if available < nbytes:
                raise StoreFullError(
                    f"the session store {self.root} needs {nbytes} bytes, at most {max(0, available)} of its "
                    f"{self.disk_budget} can be made free; raise --disk-budget, free disk space, "
                    "or end other runs"
                )
            for name in victims:
                self._warn_evicted(name, index.sessions[name].claimed_bytes)
                self._remove(name)
                del index.sessions[name]
            return victims

    @property
    def claimed_bytes(self) -> int:
        """Bytes of the budget that blocks occupy or that open sessions may still write."""
        with self._index() as index:
            self._settle(index)
            return index.claimed_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session_id, opened in list(self._open.items()):
            for _ in range(opened.users):
                self.close(session_id)

    @property
    def _sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def _trash(self) -> Path:
        return self.root / "trash"

    @contextmanager
    def _index(self, *, strict: bool = False) -> Iterator[StoreIndex]:
        """The index under the store's lock; written back when the block ends without an error.

        On a full disk the change is lost with a warning, so that what is stored stays usable, or it raises
        (`strict`).
        """
        with files.exclusive(self.root / "lock"):
            path = self.root / "index.json"
            index = manifest.read_index(path)
            before = repr(index)
            yield index
            if repr(index) != before:
                try:
                    manifest.write_index(path, index)
                except StoreFullError as error:
                    if strict:
                        raise
                    _log.warning("the order of use of the sessions was not noted: %s", error)

    def _describe(self, info: SessionInfo, known: bool) -> None:
        """Writes the manifest; when the session is `known` a full disk only costs the new description."""
        directory = self._sessions / info.id
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise files.storage_error(error, directory) from error
        try:
            manifest.write_manifest(directory / "manifest.json", info)
        except StoreFullError as error:
            if not known:
                raise
            _log.warning("the description of session %s was not renewed: %s", info.id, error)

    def _attach(self, session_id: str, entry: IndexEntry) -> _Open:
        directory = self._sessions / session_id
        tier = DiskTier(directory / "blocks", 0, lambda nbytes: self._claim(session_id, nbytes))
        alone = not self._in_use(session_id)
        try:
            lock = files.share(directory / "lock")
        except OSError as error:
            raise files.storage_error(error, directory) from error
        if alone:
            entry.claimed_bytes = tier.used_bytes
        entry.settled = False
        return _Open(tier, lock)

    def _claim(self, session_id: str, nbytes: int) -> int:
        """Budget granted to an open session: `nbytes` or a larger step, or 0 when there is not enough."""
        with self._index(strict=True) as index:
            self._settle(index)
            free = self.disk_budget - index.claimed_bytes
            if free < nbytes or session_id not in index.sessions:
                return 0
            granted = min(free, max(nbytes, min(_LARGEST_STEP, self.disk_budget // 16)))
            index.sessions[session_id].claimed_bytes += granted
            return granted

    def _settle(self, index: StoreIndex) -> None:
        """Makes the index agree with the directories; counts again what nobody has open any more."""
        names: set[str] = set(self._ids())
        for gone in set(index.sessions) - names:
            del index.sessions[gone]
        for name in names:
            entry = index.sessions.get(name)
            if entry is not None and entry.settled:
                continue
            in_use = self._in_use(name)
            if entry is None or not in_use:
                use = entry.use if entry is not None else 0
                index.sessions[name] = IndexEntry(use, _blocks_bytes(self._sessions / name), not in_use)

    def _remove(self, session_id: str) -> None:
        grave = self._trash / f"{session_id}-{uuid.uuid4().hex}"
        directory = self._sessions / session_id
        try:
            directory.rename(grave)
        except OSError as error:
            raise files.storage_error(error, directory) from error
        shutil.rmtree(grave, ignore_errors=True)  # what resists is tried again when the store is next opened

    def _warn_evicted(self, session_id: str, nbytes: int) -> None:
        try:
            info = manifest.read_manifest(self._sessions / session_id / "manifest.json")
        except StoreVersionError:
            info = None
        title = info.title if info is not None else "untitled"
        _log.warning(
            "disk budget of %d bytes: session %s (%s, %d bytes), the least recently used, is evicted; "
            "its document is read again when it is next asked for",
            self.disk_budget,
            session_id,
            title,
            nbytes,
        )

    def _in_use(self, session_id: str) -> bool:
        return files.user_of(self._sessions / session_id / "lock") is not None

    def _ids(self) -> Ids:
        return [path.name for path in self._sessions.iterdir() if path.is_dir()]

    @staticmethod
    def _check_id(session_id: str) -> None:
        if _ID.fullmatch(session_id) is None:
            raise StoreError(
                f"session id {session_id!r} is not 1 to 128 letters, digits, dashes or underscores"
            )


def _blocks_bytes(directory: Path) -> int:
    blocks = directory / "blocks"
    return sum(scan(blocks).values()) if blocks.is_dir() else 0
