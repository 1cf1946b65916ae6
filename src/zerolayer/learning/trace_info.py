"""What a trace holds: how many references, how much they repeat, how many blocks are at work at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolayer.core import BoolArray, IntArray
from zerolayer.learning.requests import TIERS, UNKNOWN, RequestTrace
from zerolayer.learning.trace_files import Trace
from zerolayer.learning.traces import DemandTrace

WINDOWS = 10
"""Parts of equal time (of equal numbers of turns, where times are not known) of the working set."""


@dataclass(frozen=True, slots=True)
class WindowInfo:
    """One part of a trace; times in seconds from its first request, None where they are not known."""

    begin_s: float | None
    end_s: float | None
    requests: int
    references: int
    working_set_blocks: int  # different blocks referenced in this part
    new_blocks: int  # of these, not referenced before it
    blocks_so_far: int  # different blocks referenced up to its end


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """Counts of a trace. Shares lie within 0 to 1; None is not known."""

    kind: str  # requests | demand
    source: str
    block_tokens: int
    requests: int  # of a demand trace: its turns
    sessions: int | None
    duration_s: float | None
    references: int
    unique_blocks: int  # that are referenced
    num_blocks: int  # that can be referenced: of a demand trace, those of its document
    blocks_used_once: int
    references_per_block: float
    reused_references: (
        float  # share of references to a block that was referenced before: the hit rate's upper bound
    )
    mean_blocks_per_request: float
    max_blocks_per_request: int
    input_tokens: int | None  # sums over the requests where they are known
    output_tokens: int | None
    tiers: dict[str, int]  # references by the tier in which the block was found, where that was recorded
    windows: tuple[WindowInfo, ...]


@dataclass(frozen=True, slots=True)
class _References:
    """Both kinds of traces as arrays."""

    blocks: IntArray  # [references]
    counts: IntArray  # [requests] references of each
    place: IntArray  # [requests] window of each
    edges_s: tuple[float, ...] | None  # [windows + 1]


def describe(trace: Trace, windows: int = WINDOWS) -> TraceInfo:
    """Counts of a trace of either kind."""
    if isinstance(trace, RequestTrace):
        return _describe_requests(trace, windows)
    return _describe_demand(trace, windows)


def _describe_requests(trace: RequestTrace, windows: int) -> TraceInfo:
    place, edges = _by_time([float(time) for time in trace.times_s], windows)
    known = trace.sessions[trace.sessions != UNKNOWN]
    tiers = {tier.value: int((trace.tiers == number).sum()) for number, tier in enumerate(TIERS)}
    return _info(
        _References(trace.blocks, np.diff(trace.starts), place, edges),
        kind="requests",
        source=trace.source,
        block_tokens=trace.block_tokens,
        sessions=len(np.unique(known)) if len(known) else None,
        num_blocks=trace.num_blocks,
        input_tokens=_sum(trace.input_tokens),
        output_tokens=_sum(trace.output_tokens),
        tiers={name: count for name, count in tiers.items() if count},
    )


def _describe_demand(trace: DemandTrace, windows: int) -> TraceInfo:
    times = [turn.time_s for turn in trace.turns if turn.time_s is not None]
    if times and len(times) == len(trace):
        place, edges = _by_time(times, windows)
    else:
        place, edges = np.arange(len(trace)) * windows // max(1, len(trace)), None
    tiers: dict[str, int] = {}
    for turn in trace.turns:
        for tier in turn.tiers or ():
            if tier is not None:
                tiers[tier.value] = tiers.get(tier.value, 0) + 1
    chains = [turn.blocks for turn in trace.turns]
    blocks = np.array([block for chain in chains for block in chain], dtype=np.int64)
    counts = np.array([len(chain) for chain in chains], dtype=np.int64)
    return _info(
        _References(blocks, counts, place, edges),
        kind="demand",
        source=f"{trace.document}, {trace.model}",
        block_tokens=trace.block_tokens,
        sessions=1,
        num_blocks=len(trace.block_lengths),
        input_tokens=None,
        output_tokens=None,
        tiers=tiers,
    )


def _info(
    found: _References,
    kind: str,
    source: str,
    block_tokens: int,
    sessions: int | None,
    num_blocks: int,
    input_tokens: int | None,
    output_tokens: int | None,
    tiers: dict[str, int],
) -> TraceInfo:
    unique, first, times = np.unique(found.blocks, return_index=True, return_counts=True)
    references, edges = len(found.blocks), found.edges_s
    return TraceInfo(
        kind=kind,
        source=source,
        block_tokens=block_tokens,
        requests=len(found.counts),
        sessions=sessions,
        duration_s=edges[-1] - edges[0] if edges else None,
        references=references,
        unique_blocks=len(unique),
        num_blocks=num_blocks,
        blocks_used_once=int((times == 1).sum()),
        references_per_block=references / len(unique) if len(unique) else 0.0,
        reused_references=1 - len(unique) / references if references else 0.0,
        mean_blocks_per_request=references / len(found.counts) if len(found.counts) else 0.0,
        max_blocks_per_request=int(found.counts.max()) if len(found.counts) else 0,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tiers=tiers,
        windows=_windows(found, _is_first(references, first)),
    )


def _windows(found: _References, new: BoolArray) -> tuple[WindowInfo, ...]:
    """The parts of a trace that hold a request."""
    of_reference = np.repeat(found.place, found.counts)
    windows, so_far = [], 0
    for window in range(int(found.place.max(initial=-1)) + 1):
        inside = of_reference == window
        fresh = int(new[inside].sum())
        so_far += fresh
        windows.append(
            WindowInfo(
                begin_s=found.edges_s[window] if found.edges_s else None,
                end_s=found.edges_s[window + 1] if found.edges_s else None,
                requests=int((found.place == window).sum()),
                references=int(inside.sum()),
                working_set_blocks=len(np.unique(found.blocks[inside])),
                new_blocks=fresh,
                blocks_so_far=so_far,
            )
        )
    return tuple(windows)


def _is_first(references: int, first: IntArray) -> BoolArray:
    new = np.zeros(references, dtype=np.bool_)
    new[first] = True
    return new


def _by_time(times: list[float], windows: int) -> tuple[IntArray, tuple[float, ...] | None]:
    """[requests] window of each, and the windows' edges from the first request on; one window for one moment."""
    if not times:
        return np.zeros(0, dtype=np.int64), None
    elapsed = np.asarray(times, dtype=np.float64) - times[0]
    span = float(elapsed[-1])
    if span == 0.0:
        return np.zeros(len(times), dtype=np.int64), (0.0, 0.0)
    place = np.minimum((elapsed / span * windows).astype(np.int64), windows - 1)
    return place, tuple(span * edge / windows for edge in range(windows + 1))


def _sum(values: IntArray) -> int | None:
    known = values[values != UNKNOWN]
    return int(known.sum()) if len(known) else None
