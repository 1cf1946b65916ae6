"""Diagrams of `zerolayer bench signals`: reliability, and what each signal is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_CALIBRATED, _HAND_SET, _ADDS = "#1f6f8b", "#c97b3d", "#8a8a8a"


def draw(reports: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write `signals-reliability.png` and `signals-auroc.png`; returns their paths. Needs matplotlib."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "signals-reliability.png", folder / "signals-auroc.png"]
    columns = min(2, len(reports))
    rows = -(-len(reports) // columns)
    for path, draw_one in zip(paths, (_reliability, _signals), strict=True):
        figure = Figure(figsize=(5.0 * columns, 4.0 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (name, values) in zip(grid, reports.items(), strict=False):
            draw_one(axes, name, values)
        for axes in grid[len(reports) :]:
            axes.set_axis_off()
        figure.savefig(path, dpi=90)
    return paths


def _reliability(axes: Any, name: str, values: Mapping[str, Any]) -> None:
    top = 0.0
    for key, kind, colour in (
        ("hand_set_reliability", "hand_set", _HAND_SET),
        ("reliability", "calibrated", _CALIBRATED),
    ):
        table = np.asarray(values[key])
        label = f"{kind.replace('_', '-')}, error {values[kind]['ece_mass']:.3f}"
        axes.plot(table[:, 0], table[:, 1], "o-", color=colour, label=label, markersize=4, linewidth=1.2)
        top = max(top, float(table[:, :2].max()))
    base = values["calibrated"]["base_rate"]
    axes.plot([0, top], [0, top], color="black", linewidth=0.7)
    axes.axhline(base, color=_ADDS, linewidth=0.7, linestyle=":", label=f"base rate {base:.3f}")
    axes.set(title=name, xlabel="predicted use within 10 turns", ylabel="observed")
    axes.legend(fontsize=8, loc="upper left")


def _signals(axes: Any, name: str, values: Mapping[str, Any]) -> None:
    signals = sorted(values["signals"].items(), key=lambda item: item[1]["alone_in_document"] or 0.5)
    rows = np.arange(len(signals))
    alone = [found["alone_in_document"] or 0.5 for _, found in signals]
    axes.barh(rows, np.array(alone) - 0.5, left=0.5, color=_CALIBRATED, height=0.6)
    for row, (value, (_, found)) in enumerate(zip(alone, signals, strict=True)):
        adds = found["adds_in_document"] or 0.0
        axes.text(max(value, 0.5) + 0.005, row, f"{value:.2f} ({adds:+.3f})", va="center", fontsize=8)
    axes.axvline(0.5, color="black", linewidth=0.7)
    both = values["calibrated_auroc_in_document"]
    if both:
        axes.axvline(both, color=_HAND_SET, linewidth=1.0, linestyle="--", label=f"all together {both:.2f}")
    axes.set_yticks(rows, [label for label, _ in signals])
    axes.set(
        title=name,
        xlabel="AUROC alone (what it adds to the rest)",
        xlim=(min(0.45, *alone), 1.15),
    )
    axes.legend(fontsize=8, loc="lower right")
