"""Finding a stored session by what a person knows of it, and describing its heat in words and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from zerolayer.execution.tiers import SessionStore
    from zerolayer.execution.tiers.sessions import StoredSession
    from zerolayer.perception.heatmap import Region
    from zerolayer.runtime.snapshot import Snapshot

LATEST = "latest"
_SHORT = 12  # digits of a session's id that are shown


def open_store() -> SessionStore:
    """The user's session store. Raises StoreError, SettingError."""
    from zerolayer.config import cache_dir, load_settings, parse_size
    from zerolayer.execution.tiers import SessionStore

    return SessionStore(cache_dir() / "sessions", parse_size(load_settings().disk_budget, "disk budget"))


def find_session(store: SessionStore, name: str) -> StoredSession:
    """The session named by `latest`, a document's file name, its id, or the beginning of its id.

    Of several sessions on one document it is the one used last. Raises UnknownNameError with the known sessions,
    UsageError when there is none at all, or when several ids begin with `name`.
    """
    listed = store.list()  # most recently used first
    if not listed:
        raise UsageError(
            f"no session is stored in {store.root}; ask a document first: zerolayer ask FILE -q TEXT"
        )
    if name == LATEST:
        return listed[0]
    file_name = Path(name).name
    for session in listed:
        if name == session.info.id or file_name in (session.info.title, *session.info.title.split(", ")):
            return session
    matches = [session for session in listed if name and session.info.id.startswith(name.lower())]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(
            f"session {name!r} could be any of {', '.join(map(_named, matches))}; give more digits"
        )
    raise UnknownNameError("session", name, [LATEST, *map(_named, listed)])


def short_id(session: StoredSession) -> str:
    """As many digits of a session's id as people need."""
    return session.info.id[:_SHORT]


def _named(session: StoredSession) -> str:
    return f"{short_id(session)} ({session.info.title})"


def read_heat(store: SessionStore, session: StoredSession) -> Snapshot | None:
    """What the session's last turn left, None before its first turn."""
    from zerolayer.runtime.snapshot import SNAPSHOT_NAME, read_snapshot

    return read_snapshot(store.directory(session.info.id) / SNAPSHOT_NAME)


def regions_json(snapshot: Snapshot, regions: Sequence[Region]) -> list[dict[str, Any]]:
    """Banks or zones as plain data, with the pages that lie there."""
    return [
        {**asdict(region), "address": f"{region.address:#x}", "pages": snapshot.pages_of(region.blocks)}
        for region in regions
    ]


def numbers(values: Sequence[int], most: int = 6) -> str:
    """`3–5, 9, …` for rising or unordered whole numbers, at most `most` runs."""
    from zerolayer.execution.compiler import runs

    spans = [
        str(first) if count == 1 else f"{first}–{first + count - 1}" for first, count in runs(set(values))
    ]
    return ", ".join(spans[:most]) + (", …" if len(spans) > most else "")


def place(snapshot: Snapshot, region: Region) -> str:
    """The pages of a region in words, or its blocks where they are of no page."""
    pages = snapshot.pages_of(region.blocks)
    return f"p. {numbers(pages)}" if pages else f"block {numbers(region.blocks)}"
