"""Pictures of policies: learning curves, and what a decision costs by the size of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerolayer.errors import UsageError

_SMOOTH = 0.6  # share of a curve's running mean that is carried from one rollout to the next


def draw_curves(notes: Mapping[str, Any], path: Path) -> Path:
    """Write the reward of a turn against turns played, every seed a line, as PNG. `notes` are a policy file's.

    Thin: the mean of each rollout. Thick: its running mean. Dotted: the default strategy on held-out sessions,
    beside the held-out score of each seed (dots). Needs matplotlib; raises UsageError for a file without curves.
    """
    from matplotlib.figure import Figure

    curves, scores = notes.get("curves"), notes.get("scores", {})
    if not curves:
        raise UsageError("the policy's file holds no learning curves; train it again")
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    last = max(points[-1][0] for points in curves.values())
    for number, (seed, points) in enumerate(curves.items()):
        steps, values = [step for step, _ in points], [value for _, value in points]
        colour = f"C{number}"
        axes.plot(steps, values, color=colour, linewidth=0.6, alpha=0.45)
        axes.plot(steps, _running(values), color=colour, linewidth=1.8, label=f"seed {seed}")
        if seed in scores:
            axes.plot([1.03 * last], [scores[seed]], "o", color=colour, markersize=5, clip_on=False)
    before = notes.get("default_score")
    if before is not None:
        axes.axhline(before, color="0.25", linestyle=":", label="default strategy, held-out sessions")
    axes.plot([], [], "o", color="0.4", markersize=5, label="seed's score, held-out sessions")
    axes.set_xlabel("turns played (simulated)")
    axes.set_ylabel("reward of a turn")
    axes.set_title("PPO on the window strategy, documented reward weights", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False, ncols=2)
    figure.savefig(path, dpi=110)
    return path


def _running(values: list[float]) -> list[float]:
    mean, out = values[0], []
    for value in values:
        mean = _SMOOTH * mean + (1.0 - _SMOOTH) * value
        out.append(mean)
    return out


def draw_scale(policies: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> Path:
    """Write the rows of `learning.request_eval.scale` of one or more policies as PNG. Needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, rows) in enumerate(policies.items()):
        sizes = [row["resident_blocks"] for row in rows]
        for key, style in (("mean", "o-"), ("p50", "s:")):
            costs = [row[f"decision_us_{key}"] for row in rows]
            axes.plot(sizes, costs, style, color=f"C{number}", markersize=4, label=f"{name}, {key}")
    axes.axhline(50, color="0.25", linewidth=0.8, linestyle="--", label="limit: 50 µs")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("resident blocks")
    axes.set_ylabel("µs of processor time a block reference")
    axes.set_title("Cost of a decision, simulated Zipf load in chains of 8 blocks", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    return path
