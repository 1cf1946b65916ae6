"""`zerolayer top`: a session as it is now, from what it saves at the end of every turn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json
from zerolayer.cli.servers import key_option, url_option
from zerolayer.cli.stored import LATEST, find_session, open_store, place, read_heat, regions_json, short_id

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zerolayer.execution.tiers import SessionStore
    from zerolayer.execution.tiers.sessions import StoredSession
    from zerolayer.perception.heatmap import Heat, Region
    from zerolayer.runtime.snapshot import Snapshot

ROWS, COLUMNS = 16, 64
_SHADES = (("·", "grey37"), ("░", "blue3"), ("▒", "magenta3"), ("▓", "orange3"), ("█", "bright_yellow"))
_DECADES = 1.0
"""Powers of ten of heat between two shades."""
_REGIONS = 4
_TALL = 44  # lines of a terminal that the whole frame fits into; a lower one gets less of everything
_PIPE_WIDTH = 100  # columns where there is no terminal

_METRICS = (
    ("ttft_s", "first token", "s"),
    ("recall_s", "of it recall", "s"),
    ("knit_s", "of it knit", "s"),
    ("decode_s_per_token", "per token", "s"),
    ("answer_tokens", "answer", "tokens"),
    ("recalled_blocks", "recalled", "blocks"),
    ("fault_blocks", "faults", "blocks"),
    ("evicted_blocks", "evicted", "blocks"),
    ("recomputed_tokens", "recomputed", "tokens"),
    ("discarded_tokens", "discarded", "tokens"),
    ("device_bytes", "device", "MiB"),
)


@click.command()
@click.argument("session", default=LATEST)
@click.option("--once", is_flag=True, help="Print one frame and end; so it is where stdout is no terminal.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two frames.",
)
@url_option
@key_option
@json_option
def top(
    session: str, once: bool, interval: float, url: str | None, api_key: str | None, as_json: bool
) -> int:
    """Watch SESSION: tokens by tier, grades, heat of the device memory, the last turn. Ctrl-C ends it.

    SESSION is `latest` (the default), a document's file name, or the beginning of a session's id. A session is seen
    as it was at the end of its last turn, whichever process runs it; with --url a server's, as it is now.
    """
    look: Callable[[bool], RenderableType]
    if url is not None:
        from zerolayer.cli import top_server

        if as_json:
            emit_json(top_server.to_json(url, api_key, session))
            return 0
        look = partial(top_server.frame, url, api_key, session)
    else:
        store = open_store()
        if as_json:
            stored = find_session(store, session)
            emit_json(to_json(stored, read_heat(store, stored)))
            return 0
        look = partial(_look, store, session)
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if terminal else _PIPE_WIDTH)
    if once or not terminal:
        console.print(look(True))
        return 0
    return _watch(console, look, interval)


def _look(store: SessionStore, name: str, tall: bool) -> RenderableType:
    """One frame; `latest` follows whatever session is used."""
    stored = find_session(store, name)
    return frame(stored, read_heat(store, stored), tall)


def _watch(console: Any, look: Callable[[bool], RenderableType], interval: float) -> int:
    """Redraw until interrupted."""
    from rich.live import Live

    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(look(console.height >= _TALL), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return 130


def to_json(stored: StoredSession, snapshot: Snapshot | None) -> dict[str, Any]:
    """What one frame shows, as plain data."""
    shown: dict[str, Any] = {
        "session": stored.info.id,
        "title": stored.info.title,
        "in_use": stored.in_use,
        "stored_bytes": stored.nbytes,
        "document_tokens": stored.info.tokens_total,
        "turns": 0,
    }
    if snapshot is None:
        return shown
    heat = snapshot.heat
    return {
        **shown,
        "model": snapshot.model,
        "written": snapshot.written,
        "turns": heat.turn,
        "arena_bytes": heat.nbytes,
        "heatmap_side": heat.side,
        "heat": heat.coarse(min(ROWS, heat.side), min(ROWS, heat.side)),
        "hot_banks": regions_json(snapshot, heat.hot_banks(snapshot.occupant)),
        "cold_zones": regions_json(snapshot, heat.cold_zones(snapshot.occupant)),
        "metrics": asdict(snapshot.metrics),
    }


def frame(stored: StoredSession, snapshot: Snapshot | None, tall: bool = True) -> RenderableType:
    """One picture of the session; one that is not `tall` fits into about 30 lines."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    info = stored.info
    about = Text(
        f"session {short_id(stored)} · {info.tokens_total:,} tokens · {stored.nbytes / 2**20:,.1f} MiB stored"
    )
    about.append(" · open" if stored.in_use else " · closed", style="green" if stored.in_use else "dim")
    if snapshot is None:
        body: RenderableType = Group(about, Text("no turn has ended yet: ask it a question", style="yellow"))
        return Panel(body, title=Text(info.title), title_align="left")
    metrics = snapshot.metrics
    age = max(0, int(time.time() - snapshot.written))
    about.append(f"\n{snapshot.model} · policy {metrics.policy} · turn {metrics.turn}, ended {age:,} s ago")
    if metrics.status != "active":
        about.append(f"\n{metrics.status}: {metrics.reason}", style="bold red")
    heat, (rows, most) = snapshot.heat, (ROWS, _REGIONS) if tall else (ROWS // 2, _REGIONS // 2)
    turn = [(label, _value(getattr(metrics, key), unit)) for key, label, unit in _METRICS]
    counts = Table.grid(padding=(0, 3, 0, 0))
    counts.add_row(
        pairs("tokens by tier", [(name, f"{count:,}") for name, count in metrics.tier_tokens.items()]),
        pairs("by grade", [(name, f"{count:,}") for name, count in metrics.grade_counts.items()]),
        pairs("last turn", turn[:6]),
        pairs(" ", turn[6:]),
    )
    return Panel(
        Group(
            about,
            Text(),
            counts,
            Text(
                f"heat, {heat.nbytes / 2**20:,.1f} MiB from address 0, {COLUMNS} cells a line", style="bold"
            ),
            picture(heat.coarse(rows, COLUMNS), heat.nbytes),
            _regions("hot banks", heat.hot_banks(snapshot.occupant), snapshot, most),
            _regions("cold zones", heat.cold_zones(snapshot.occupant), snapshot, most),
        ),
        title=Text(info.title),
        title_align="left",
    )


def picture(cells: Heat, nbytes: int) -> RenderableType:
    """Heat `[rows, columns]` of `nbytes` of memory as shades, a power of ten each, the hottest cell the brightest.

    A cell that was never hot is blank.
    """
    import numpy as np
    from rich.text import Text

    hottest = float(cells.max())
    drawn = Text()
    for row, values in enumerate(cells):
        drawn.append(f"{row * nbytes // len(cells):#11x} ", style="dim")
        for value in values:
            if value <= 0:
                drawn.append(" ")
                continue
            below = int(-np.log10(value / hottest) / _DECADES)
            drawn.append(*_SHADES[max(0, len(_SHADES) - 1 - below)])
        drawn.append("\n")
    drawn.append(" " * 12 + "each shade ×10: ", style="dim")
    for shade in _SHADES:
        drawn.append(*shade)
    return drawn


def _regions(title: str, regions: Sequence[Region], snapshot: Snapshot, most: int) -> RenderableType:
    from rich.text import Text

    text = Text(f"{title}: ", style="bold")
    if not regions:
        return text.append("none", style="dim")
    for region in regions[:most]:
        text.append(f"\n  {region.address:#x} + {region.size / 2**20:.1f} MiB", style="not bold cyan")
        last = f"turn {region.last_access}" if region.last_access >= 0 else "never used"
        text.append(f"  {100 * region.share:4.1f} % of the heat, {last}, ", style="not bold")
        text.append(place(snapshot, region), style="not bold")
    if len(regions) > most:
        text.append(f"\n  and {len(regions) - most} more", style="not bold dim")
    return text


def pairs(title: str, pairs: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table

    grid = Table(box=None, title=title, title_justify="left", title_style="bold")
    grid.show_header, grid.pad_edge, grid.min_width = False, False, len(title)
    grid.add_column()
    grid.add_column(justify="right")
    for pair in pairs:
        grid.add_row(*pair)
    return grid


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.3f} s"
    if unit == "MiB":
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,} {unit}"
