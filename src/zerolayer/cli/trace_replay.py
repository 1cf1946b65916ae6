"""`zerolayer trace replay`: policies over a recorded trace of either kind, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, progress, table
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.learning.requests import RequestTrace
    from zerolayer.learning.traces import DemandTrace

OPTIMAL = "optimal"

_DEMAND_COLUMNS = ("coverage", "wasted_loads", "load_ratio", "loads", "wrong_evictions")
_REQUEST_COLUMNS = ("hit_rate", "share_of_optimum", "hits", "evictions", "wrong_evictions", "decision_us_p50")

Results = dict[str, dict[str, Any]]


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Name or module:Class; may be repeated [default: the shipped one, its baselines and optimal].",
)
@click.option("--capacity", default="10%", show_default=True, help="Blocks on the device: 500, or 1% of all.")
@json_option
def replay(file: Path, policies: tuple[str, ...], capacity: str, as_json: bool) -> None:
    """Replay FILE with policies at one capacity, without a model; all numbers are simulated.

    FILE is a trace of zerolayer's, or of a source that `trace convert` knows. Policies for documents and policies for
    request streams have names of their own; `optimal` is the offline bound of either, which knows the future. The
    whole trace is replayed, from an empty device for requests, from the state after reading for documents.
    """
    from zerolayer.learning.requests import RequestTrace
    from zerolayer.learning.trace_files import load_trace

    found = load_trace(file)
    columns: tuple[str, ...]
    if isinstance(found, RequestTrace):
        kind, num_blocks, columns = "requests", found.num_blocks, _REQUEST_COLUMNS
        blocks = capacity_blocks(capacity, num_blocks)
        results = replay_requests(found, policies, blocks)
    else:
        kind, num_blocks, columns = "demand", len(found.block_lengths), _DEMAND_COLUMNS
        blocks = capacity_blocks(capacity, num_blocks)
        results = replay_demand(found, policies, blocks)
    if as_json:
        emit_json({"file": file, "kind": kind, "capacity_blocks": blocks, "policies": results})
        return
    rows = [[name, *(result.get(column) for column in columns)] for name, result in results.items()]
    title = f"{blocks:,} of {num_blocks:,} blocks on the device (simulated)"
    table(title, ("policy", *(column.replace("_", " ") for column in columns)), rows)


def capacity_blocks(text: str, num_blocks: int) -> int:
    """Blocks from `500`, or from `1%` of a trace's blocks (at least one). Raises UsageError."""
    share, wanted = text.strip().endswith("%"), text.strip().removesuffix("%")
    try:
        value = float(wanted) if share else int(wanted)
    except ValueError as error:
        raise UsageError(f"capacity {text!r} is no number; give blocks (500) or a share (1%)") from error
    if not 0 < value < float("inf") or (share and value > 100):
        raise UsageError(
            f"capacity {text!r} is out of range; give 1 or more blocks, or a share of 0 to 100 %"
        )
    return max(1, round(num_blocks * value / 100)) if share else int(value)


def replay_demand(trace: DemandTrace, policies: Sequence[str], blocks: int) -> Results:
    """What each policy did with a demand trace, by name, in the words of metrics.py."""
    from zerolayer.learning.replay import replay as replay_turns

    names = policies or ("graded", "static-window", "lru", OPTIMAL)
    return {name: replay_turns(trace, name, blocks).to_json() for name in names}


def replay_requests(trace: RequestTrace, policies: Sequence[str], blocks: int) -> Results:
    """What each policy did with a request trace, by name; `share_of_optimum` is None where nothing can hit."""
    from zerolayer.decision.request_oracle import optimal_hits
    from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, create_request_policy
    from zerolayer.learning.simulate import simulate

    names = policies or (DEFAULT_REQUEST_POLICY, "frequency-bonus", "lru", OPTIMAL)
    for name in names:
        if name != OPTIMAL:
            create_request_policy(name, blocks)  # a wrong name is told before minutes are spent on the others
    best = int(optimal_hits(trace.blocks, blocks).sum())
    results: Results = {}
    with progress("replaying", "policies") as update:
        for number, name in enumerate(names, start=1):
            if name == OPTIMAL:
                counts: dict[str, Any] = {"policy": OPTIMAL, "hits": best, "references": trace.references}
            else:
                counts = asdict(simulate(trace, name, blocks))
                del counts["hit"]
            counts["hit_rate"] = counts["hits"] / trace.references if trace.references else 0.0
            counts["share_of_optimum"] = counts["hits"] / best if best else None
            results[name] = {**counts, "simulated": True}
            update(number, len(names))
    return results
