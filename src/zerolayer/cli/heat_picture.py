"""The picture of a heat map: cells by address, and beside them the heat of each slot."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.cli.stored import place

if TYPE_CHECKING:
    from zerolayer.runtime.snapshot import Snapshot

HOT, COLD, PLAIN, FREE = "#d1495b", "#3d7ea6", "#8a8a8a", "#d9cfb4"
_RANGE = 1e-4
"""The colours end at this share of the hottest cell: what is colder looks alike."""
_NAMED_BANKS = 8
_CHINESE_FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "SimHei", "PingFang SC")


def draw(snapshot: Snapshot, title: str, session: str, output: Path) -> None:
    """Write the picture; the file's suffix says which format. Raises OSError."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.family": _fonts(), "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a title in a script without a font
        figure = Figure(figsize=(11, 7), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        cells, slots = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _draw_cells(figure, cells, snapshot)
        _draw_slots(slots, snapshot)
        heat = snapshot.heat
        figure.suptitle(f"Where attention falls in device memory: {title}", fontsize=13, fontweight="bold")
        cells.set_title(
            f"session {session}, {snapshot.model}, after {heat.turn} turn{'s' * (heat.turn != 1)}: "
            f"{heat.side} × {heat.side} cells, {_size(heat.nbytes)}",
            fontsize=9,
        )
        figure.savefig(output)


def _draw_cells(figure: Any, axes: Any, snapshot: Snapshot) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    heat, values = snapshot.heat, snapshot.heat.heat
    hottest = float(values.max()) or 1.0
    colours = colormaps["inferno"].with_extremes(bad="#26262b")
    image = axes.imshow(
        np.ma.masked_less_equal(values, 0.0),
        norm=LogNorm(hottest * _RANGE, hottest),
        cmap=colours,
        extent=(0, heat.nbytes / heat.side / 1024, heat.side, 0),
        aspect="auto",
        interpolation="nearest",
    )
    bar = figure.colorbar(image, ax=axes, location="left", pad=0.02, fraction=0.04, aspect=36, extend="min")
    bar.set_label(f"heat of a cell: accesses (queries × share of attention), × {heat.decay:g} a turn")
    axes.set_xlabel("offset within a row of cells (KiB)")
    axes.set_ylabel("device address")
    ticks = np.linspace(0, heat.side, min(heat.side, 8) + 1)
    axes.set_yticks(ticks, [f"{int(tick * heat.nbytes / heat.side):#x}" for tick in ticks])
    axes.tick_params(axis="y", labelfontfamily="monospace")


def _draw_slots(axes: Any, snapshot: Snapshot) -> None:
    from matplotlib.patches import Patch

    heat, occupant = snapshot.heat, snapshot.occupant
    values = heat.slot_heat
    banks, zones = heat.hot_banks(occupant), heat.cold_zones(occupant)
    colours = np.where(occupant < 0, FREE, PLAIN).astype(object)
    for regions, colour in ((banks, HOT), (zones, COLD)):
        for region in regions:
            colours[region.first_slot : region.first_slot + region.slots] = colour
    height = heat.side / heat.slots
    centres = (np.arange(heat.slots) + 0.5) * height
    widest = 1.35 * max(float(values.max()), 1e-9)
    # A band behind each bar: what is cold or free is seen although its bar has no length.
    axes.barh(centres, widest, height=height, color=list(colours), alpha=0.14)
    axes.barh(centres, values, height=0.82 * height, color=list(colours))
    for bank in banks[:_NAMED_BANKS]:
        inside = values[bank.first_slot : bank.first_slot + bank.slots]
        axes.annotate(
            f"{place(snapshot, bank)} · {100 * bank.share:.0f} %",
            (float(inside.max()), (bank.first_slot + bank.slots / 2) * height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=HOT,
        )
    axes.set_xlim(0, widest)
    axes.set_xlabel("heat of a slot (accesses), sinks and open tails left out")
    axes.set_title(f"{heat.slots} slots of {_size(heat.slot_bytes)}", fontsize=9)
    axes.tick_params(axis="y", labelleft=False)
    axes.spines[["top", "right"]].set_visible(False)
    kinds = ((HOT, "hot bank"), (PLAIN, "between"), (COLD, "cold zone"), (FREE, "free now"))
    axes.legend(
        handles=[Patch(color=colour, label=label) for colour, label in kinds],
        loc="lower right",
        fontsize=8,
        framealpha=0.9,
    )


def _fonts() -> list[str]:
    """DejaVu, and behind it whatever this machine has for Chinese titles."""
    from matplotlib.font_manager import get_font_names

    known = set(get_font_names())
    return ["DejaVu Sans", *(font for font in _CHINESE_FONTS if font in known)]


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.1f} KiB"
