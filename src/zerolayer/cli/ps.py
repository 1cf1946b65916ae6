"""`zerolayer ps`: the sessions there are, their tokens by tier, and until when they are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, table
from zerolayer.cli.servers import key_option, server_json, url_option
from zerolayer.cli.stored import open_store, read_heat

if TYPE_CHECKING:
    from zerolayer.execution.tiers import SessionStore
    from zerolayer.execution.tiers.sessions import StoredSession

_SHORT = 12  # digits of an id that are shown
_UNTIL_ROOM = "room is needed"  # the least recently used go first, when the disk budget is full


@dataclass(frozen=True, slots=True)
class Row:
    """One session. Tokens by tier are of copies: a token on the device has one in host memory or on disk too."""

    id: str
    title: str
    model: str
    state: str
    policy: str
    document_tokens: int
    conversation_tokens: int | None  # None: not known
    tier_tokens: dict[str, int]
    turns: int
    pinned_blocks: int | None
    disk_bytes: int
    last_used: float  # seconds since the epoch
    expires: float | None  # the latest of its pins and cache_control's ttl
    until: str


@click.command()
@url_option
@key_option
@json_option
def ps(url: str | None, api_key: str | None, as_json: bool) -> None:
    """List sessions, the latest used first: of a running server (--url), else those stored on this machine.

    A stored session is kept until the disk budget needs its room; the least recently used goes first. Whatever
    process has a stored session open, its device and host tokens are those of its last turn's end.
    """
    rows = _of_server(url, api_key) if url else _of_store(open_store())
    if as_json:
        emit_json({"source": url or "store", "sessions": rows})
        return
    if not rows:
        note("no session yet: zerolayer ask FILE -q TEXT makes one")
        return
    now = time.time()
    table(
        "",
        ("session", "document", "state", "policy", "device, tokens", "host, tokens", "disk, tokens", "turns",
         "disk", "used", "kept until"),
        [
            (row.id[:_SHORT], row.title, row.state, row.policy, *(row.tier_tokens.get(t, 0) for t in _TIERS), row.turns,
             f"{row.disk_bytes / 2**20:,.1f} MiB", _ago(now - row.last_used), row.until)
            for row in rows
        ],
    )  # fmt: skip


_TIERS = ("device", "host", "disk")


def _of_server(url: str, api_key: str | None) -> list[Row]:
    """A server's sessions. Raises ServerError."""
    return [_shown(view) for view in server_json(url, "v1/rtls/sessions", "sessions", api_key)]


def _shown(view: dict[str, Any]) -> Row:
    expires, now = view["expires"], time.time()
    until = "its end" if view["pin_blocks"] else _UNTIL_ROOM
    if expires is not None and expires > now:
        until = f"at least {_span(expires - now)} from now"
    return Row(
        view["id"],
        view["title"],
        view["model"],
        view["state"],
        view["policy"],
        view["document_tokens"],
        view["conversation_tokens"],
        view["tier_tokens"],
        view["turns"],
        view["pin_blocks"],
        view["disk_bytes"],
        view["last_used"],
        expires,
        until,
    )


def _of_store(store: SessionStore) -> list[Row]:
    """Stored sessions, and what their last turn has noted. Raises StoreError."""
    return [_stored(store, session) for session in store.list()]


def _stored(store: SessionStore, session: StoredSession) -> Row:
    info, snapshot = session.info, read_heat(store, session)
    tokens = {"device": 0, "host": 0, "disk": _tokens_on_disk(store, session)}
    if snapshot is not None and session.in_use:
        tokens = {**tokens, **{t: snapshot.metrics.tier_tokens.get(t, 0) for t in ("device", "host")}}
    return Row(
        info.id,
        info.title,
        info.model_fingerprint if snapshot is None else snapshot.model,
        "open" if session.in_use else "stored",
        "" if snapshot is None else snapshot.metrics.policy,
        info.tokens_total,
        None,
        tokens,
        0 if snapshot is None else snapshot.heat.turn,
        None,
        session.nbytes,
        info.last_used,
        None,
        "its process ends" if session.in_use else _UNTIL_ROOM,
    )


def _tokens_on_disk(store: SessionStore, session: StoredSession) -> int:
    """Document tokens of which a form lies on disk, whether computed in order or early."""
    from zerolayer.execution.tiers.disk import scan

    info = session.info
    try:
        held = scan(store.directory(info.id) / "blocks")
    except FileNotFoundError:
        return 0
    blocks = {index for index, block_id in enumerate(info.block_ids) if block_id in held}
    blocks |= {index for block_id, index in info.early_forms.items() if block_id in held}
    return min(len(blocks) * info.block_tokens, info.tokens_total)


def _ago(seconds: float) -> str:
    return f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
