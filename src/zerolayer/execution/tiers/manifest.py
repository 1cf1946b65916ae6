"""What is written about a session, and about all sessions of a store: manifest.json and index.json."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from zerolayer.errors import StoreVersionError
from zerolayer.execution.tiers.files import storage_error, write_atomic

STORE_VERSION = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What is known of a session: one document, read by one model, stored with one codec.

    `id` is the caller's hash of all that makes stored blocks reusable. Times are seconds since the epoch, for
    people; eviction does not use them.
    """

    id: str
    title: str
    model_fingerprint: str
    codec: str
    block_tokens: int
    tokens_total: int = 0
    created: float = 0.0
    last_used: float = 0.0
    block_ids: tuple[str, ...] = ()  # in document order
    early_forms: dict[str, int] = field(
        default_factory=dict
    )  # ids of blocks computed out of order → block index
    tenant: str = ""  # whose it is, where a service keeps tenants apart
    grade: str = "P1"  # P3 when no process has the session open


@dataclass(slots=True)
class IndexEntry:
    """A session in the store's index."""

    use: int = 0  # value of the store's use counter when it was last opened
    claimed_bytes: int = 0  # what its blocks occupy or may grow to
    settled: bool = False  # claimed_bytes was counted when nobody had it open


@dataclass(slots=True)
class StoreIndex:
    """The store's use counter and its sessions. Wall clocks jump, a counter does not."""

    counter: int = 0
    sessions: dict[str, IndexEntry] = field(default_factory=dict)

    @property
    def claimed_bytes(self) -> int:
        """Budget in use or promised."""
        return sum(entry.claimed_bytes for entry in self.sessions.values())


def read_manifest(path: Path) -> SessionInfo | None:
    """The session's description, None when there is none or it is damaged.

    A damaged manifest loses no block: blocks name their content themselves. Raises StoreVersionError.
    """
    data = _read(path)
    if data is None:
        return None
    try:
        known = {f.name for f in fields(SessionInfo)}
        values = {name: value for name, value in data["session"].items() if name in known}
        values["block_ids"] = tuple(values.get("block_ids", ()))
        return SessionInfo(**values)
    except (KeyError, TypeError, AttributeError):
        _log.warning("%s is damaged and is written anew when the session is opened", path)
        return None


def write_manifest(path: Path, info: SessionInfo) -> None:
    """Replaces the manifest atomically and durably. Raises StoreError."""
    _write(path, {"session": asdict(info)})


def merge(given: SessionInfo, stored: SessionInfo | None, now: float) -> SessionInfo:
    """`given`, completed from what was stored when the session was first read."""
    if stored is None:
        return replace(given, created=given.created or now, last_used=now)
    return replace(
        given,
        created=stored.created,
        last_used=now,
        tokens_total=given.tokens_total or stored.tokens_total,
        block_ids=given.block_ids or stored.block_ids,
        early_forms=given.early_forms or stored.early_forms,
    )


def read_index(path: Path) -> StoreIndex:
    """The index, empty when there is none or it is damaged (it is rebuilt). Raises StoreVersionError."""
    data = _read(path)
    if data is None:
        return StoreIndex()
    try:
        sessions = {name: IndexEntry(**entry) for name, entry in data["sessions"].items()}
        return StoreIndex(int(data["counter"]), sessions)
    except (KeyError, TypeError, ValueError, AttributeError):
        _log.warning("%s is damaged; the order of use of the sessions is lost, the sessions are not", path)
        return StoreIndex()


def write_index(path: Path, index: StoreIndex) -> None:
    """Replaces the index atomically. Raises StoreError."""
    _write(path, asdict(index), durable=False)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        _log.warning("%s is not JSON; it is written anew", path)
        return None
    except OSError as error:
        raise storage_error(error, path) from error
    if not isinstance(data, dict) or "version" not in data:
        _log.warning("%s has no version; it is written anew", path)
        return None
    if data["version"] != STORE_VERSION:
        raise StoreVersionError(
            f"{path} has store version {data['version']!r}, this zerolayer reads {STORE_VERSION}; "
            "use the version that wrote it, or point ZEROLAYER_HOME at another directory"
        )
    return data


def _write(path: Path, data: dict[str, Any], *, durable: bool = True) -> None:
    text = json.dumps({"version": STORE_VERSION, **data}, indent=1)
    write_atomic(path, [text.encode()], durable=durable)
