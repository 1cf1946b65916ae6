"""`zerolayer top --url`: a server's session as it is now, and the server's totals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.cli.servers import server_json
from zerolayer.cli.stored import LATEST
from zerolayer.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHORT = 12  # digits of an id that are shown
_EVENTS = 5


def to_json(url: str, api_key: str | None, name: str) -> dict[str, Any]:
    """What one frame shows, as plain data. Raises ServerError, UnknownNameError, UsageError."""
    session = _session(server_json(url, "v1/rtls/sessions", "sessions", api_key), name)
    shown = {"session": session, "totals": server_json(url, "v1/rtls/totals", None, api_key), "heat": None}
    if session["state"] != "stored":
        shown["heat"] = server_json(url, "v1/rtls/heat", "heat", api_key, session_id=session["id"])
    events = server_json(url, "v1/rtls/events", "events", api_key)
    return {
        **shown,
        "events": [event for event in events if event["session"] in ("", session["id"])][-_EVENTS:],
    }


def _session(sessions: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The one that `name` means, as `stored.find_session` has it."""
    if not sessions:
        raise UsageError("the server has no session yet; send it a document and a question first")
    if name == LATEST:
        return sessions[0]
    file_name = Path(name).name
    for session in sessions:
        if name == session["id"] or file_name in (session["title"], *session["title"].split(", ")):
            return session
    matches = [session for session in sessions if name and session["id"].startswith(name.lower())]
    if len(matches) == 1:
        return matches[0]
    known = [f"{session['id'][:_SHORT]} ({session['title']})" for session in sessions]
    raise UnknownNameError("session", name, [LATEST, *known])


def frame(url: str, api_key: str | None, name: str, tall: bool = True) -> RenderableType:
    """One picture of a server's session; one that is not `tall` fits into about 30 lines."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from zerolayer.cli.top import pairs

    shown = to_json(url, api_key, name)
    session, totals = shown["session"], shown["totals"]
    about = Text(f"session {session['id'][:_SHORT]} · {session['document_tokens']:,} tokens of documents")
    about.append(f" · {session['conversation_tokens']:,} of conversation · ")
    about.append(session["state"], style="green" if session["in_use"] else "dim")
    about.append(f"\n{session['model']} · policy {session['policy']} · {session['turns']} turns")
    counts = Table.grid(padding=(0, 3, 0, 0))
    counts.add_row(
        pairs("tokens by tier", [(tier, f"{count:,}") for tier, count in session["tier_tokens"].items()]),
        pairs("blocks by grade", [(grade, f"{count:,}") for grade, count in session["grade_blocks"].items()]),
        *(pairs(title, rows) for title, rows in _columns(totals)),
    )
    events = Text("last events", style="bold")
    for event in shown["events"]:
        events.append(f"\n  {event['kind']}  {event['text']}", style="not bold")
    parts = [about, Text(), counts, Text(), *_heat(shown["heat"], 16 if tall else 8), events]
    return Panel(Group(*parts), title=Text(f"{session['title']} on {url}"), title_align="left")


def _columns(totals: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The server's totals, each with its unit."""
    latency, ttft = totals["p0_access_latency_us"], totals["ttft_s"]
    return [
        (
            "server",
            [
                ("turns", f"{totals['turns']:,}"),
                ("running", f"{totals['running']:,} turns"),
                ("waiting", f"{totals['queue_length']:,} turns"),
                ("device", f"{totals['device_bytes'] / 2**20:,.1f} MiB"),
                ("discarded", f"{totals['discarded_tokens']:,} tokens"),
                ("recomputed", f"{totals['recomputed_tokens']:,} tokens"),
            ],
        ),
        (
            " ",
            [
                ("wasted loads", f"{100 * totals['wasted_share']:.1f} %"),
                ("the window's", f"{100 * totals['window_wasted_share']:.1f} %"),
                ("coverage", f"{100 * totals['coverage']:.1f} %"),
                ("the window's", f"{100 * totals['window_coverage']:.1f} %"),
                ("P0 p50 / p99", f"{latency['p50']:.1f} / {latency['p99']:.1f} µs"),
                ("first token", f"{ttft['p50']:.3f} s"),
            ],
        ),
    ]


def _heat(heat: dict[str, Any] | None, rows: int) -> list[RenderableType]:
    import numpy as np
    from rich.text import Text

    from zerolayer.cli.top import COLUMNS, picture
    from zerolayer.perception.heatmap import resample

    if heat is None:
        return []
    cells = np.asarray(heat["cells"], dtype=np.float64)
    title = f"heat, {heat['nbytes'] / 2**20:,.1f} MiB from address 0, {COLUMNS} cells a line"
    coarse = resample(cells.ravel(), rows * COLUMNS).reshape(rows, COLUMNS)
    return [Text(title, style="bold"), picture(coarse, heat["nbytes"])]
