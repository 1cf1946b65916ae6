"""The quality bench as a picture: KL to the full cache against the share of blocks in sight, a panel a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS = {"zerolayer": "black", "zerolayer_engine": "red"}
"""Drawn boldly; the others are thin."""


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the picture to `path` in the format that its ending names. `results` are summaries by model."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5 * len(results), 6), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (model, result) in enumerate(results.items(), start=1):
        axes = figure.add_subplot(1, len(results), number)
        _panel(axes, result)
        axes.set_title(f"{model}: {result['questions']} questions on {len(result['contracts'])} contracts")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _panel(axes: Any, result: Mapping[str, Any]) -> None:
    from matplotlib import colormaps

    methods = [method for method in result["kl"] if method != "full"]
    shares = sorted({int(share) for method in methods for share in result["kl"][method]})
    last = str(shares[-1])
    # In the order in which the lines end, so that the legend reads like the picture.
    methods.sort(key=lambda name: -result["kl"][name].get("25", result["kl"][name].get(last, 0.0)))
    markers, palette = "osD^v<>phX*Pd", colormaps["tab20"]
    for number, method in enumerate(methods):
        by_share = result["kl"][method]
        bold = method in OURS
        axes.plot(
            [int(share) for share in by_share],
            list(by_share.values()),
            marker=markers[number % len(markers)],
            markersize=7 if bold else 4,
            linewidth=3 if bold else 1,
            linestyle="--" if method in {"gold", "answer_attention"} else "-",
            color=OURS.get(method, palette(number % palette.N)),
            label=method,
        )
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share} %" for share in shares])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("share of the document's blocks in sight")
    axes.set_ylabel("KL to the full cache (nats, mean over the answer's tokens)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
