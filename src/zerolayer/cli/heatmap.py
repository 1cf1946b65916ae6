"""`zerolayer heatmap`: the heat map of a session as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note
from zerolayer.cli.stored import find_session, open_store, place, read_heat, regions_json, short_id
from zerolayer.errors import StoreError, UsageError

if TYPE_CHECKING:
    from zerolayer.perception.heatmap import Region
    from zerolayer.runtime.snapshot import Snapshot

FORMATS = (".png", ".svg", ".pdf")
_TOLD = 3  # regions that are told on stderr


@click.command()
@click.argument("session")
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Picture to write: .png, .svg or .pdf.",
)
@json_option
def heatmap(session: str, output: Path, as_json: bool) -> None:
    """Draw where the attention of SESSION fell in device memory.

    SESSION is `latest`, a document's file name, or the beginning of a session's id. The picture shows the heat of
    each cell of the arena's addresses, and of each slot with its hot banks and cold zones.
    """
    if output.suffix.lower() not in FORMATS:
        raise UsageError(f"output {str(output)!r} is of no known format; end it in {', '.join(FORMATS)}")
    store = open_store()
    stored = find_session(store, session)
    snapshot = read_heat(store, stored)
    if snapshot is None:
        raise StoreError(
            f"session {short_id(stored)} ({stored.info.title}) has no heat map; it gets one with its next answer"
        )
    from zerolayer.cli.heat_picture import draw

    draw(snapshot, stored.info.title, short_id(stored), output)
    banks = snapshot.heat.hot_banks(snapshot.occupant)
    zones = snapshot.heat.cold_zones(snapshot.occupant)
    if as_json:
        emit_json(
            {
                "file": output,
                "session": stored.info.id,
                "title": stored.info.title,
                "turns": snapshot.heat.turn,
                "side": snapshot.heat.side,
                "arena_bytes": snapshot.heat.nbytes,
                "heat": float(snapshot.heat.heat.sum()),
                "hot_banks": regions_json(snapshot, banks),
                "cold_zones": regions_json(snapshot, zones),
            }
        )
        return
    _tell("hot bank", banks, snapshot)
    _tell("cold zone", zones, snapshot)
    click.echo(output)


def _tell(kind: str, regions: list[Region], snapshot: Snapshot) -> None:
    for region in regions[:_TOLD]:
        note(
            f"{kind} {region.address:#x} + {region.size / 2**20:.1f} MiB: {100 * region.share:.1f} % of the heat, "
            f"{place(snapshot, region)}"
        )
    if len(regions) > _TOLD:
        note(f"{kind}s: {len(regions) - _TOLD} more; --json lists all")
