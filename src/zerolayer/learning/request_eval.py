"""Compares policies on a request trace: hit rate, share of the optimum, wrong evictions and cost, by cache size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerolayer.core import BoolArray
from zerolayer.decision.request_model import RequestModel, shipped_model
from zerolayer.decision.request_oracle import optimal_hits
from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, SIMPLE_POLICIES, imitating
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.simulate import SimulationResult, simulate

SIZES = (0.01, 0.02, 0.05, 0.10)
"""Shares of the trace's unique blocks."""

FIT_SHARE = 0.6
SEGMENTS = 20
BAR = 0.6
BAR_SIZES = ("1%", "2%")
OPTIMUM = "optimum"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results by policy and size ("1%"), and how they were obtained."""

    policies: dict[str, dict[str, dict[str, Any]]]
    fitted: bool  # reported on the requests after FIT_SHARE, else on all
    requests: int  # reported
    references: int  # reported
    unique_blocks: int  # of the whole trace

    def meets_bar(self, policy: str = DEFAULT_REQUEST_POLICY) -> bool:
        """At least BAR of the optimum at BAR_SIZES, and nowhere below the best simple policy."""
        own = self.policies[policy]
        enough = all(own[size]["share_of_optimum"] >= BAR for size in BAR_SIZES)
        return enough and not self.beaten_by(policy)

    def beaten_by(self, policy: str = DEFAULT_REQUEST_POLICY) -> dict[str, str]:
        """By size, the simple policy that has more hits."""
        found = {}
        for size, own in self.policies[policy].items():
            rivals = {
                name: self.policies[name][size]["hit_rate"]
                for name in SIMPLE_POLICIES
                if name in self.policies
            }
            best = max(rivals, key=rivals.__getitem__, default=None)
            if best is not None and rivals[best] > own["hit_rate"]:
                found[size] = best
        return found


def evaluate(
    trace: RequestTrace,
    policies: Sequence[str],
    model: RequestModel | None = None,
    held_out: bool = False,
    jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Run every policy at every size of SIZES, with caches that are empty when the trace begins.

    With `held_out`, only requests after FIT_SHARE of the trace are counted; caches are warm by then, and sizes stay
    shares of the whole trace's unique blocks. `model` is the imitation's [default: the shipped one].
    """
    chosen = model or shipped_model()
    report_from = round(FIT_SHARE * len(trace)) if held_out else 0
    unique = len(np.unique(trace.blocks))
    capacities = {f"{round(100 * share)}%": max(1, round(share * unique)) for share in SIZES}
    first = int(trace.starts[report_from])
    best = {size: optimal_hits(trace.blocks, capacity)[first:] for size, capacity in capacities.items()}
    tasks = [(name, size) for name in policies for size in capacities]
    results: dict[tuple[str, str], SimulationResult] = {}
    with ProcessPoolExecutor(jobs) as pool:
        futures: dict[tuple[str, str], Future[SimulationResult]] = {
            (name, size): pool.submit(_run, trace, name, capacities[size], report_from, chosen)
            for name, size in tasks
        }
        for done, (key, future) in enumerate(futures.items(), start=1):
            results[key] = future.result()
            if on_progress is not None:
                on_progress(done, len(tasks))
    table = {name: {size: _row(results[name, size], best[size]) for size in capacities} for name in policies}
    table[OPTIMUM] = {
        size: {"hit_rate": float(hits.mean()) if len(hits) else 0.0, "share_of_optimum": 1.0}
        for size, hits in best.items()
    }
    return Evaluation(table, held_out, len(trace) - report_from, len(trace.blocks) - first, unique)


def _run(
    trace: RequestTrace, name: str, capacity: int, report_from: int, model: RequestModel
) -> SimulationResult:
    return simulate(trace, imitating(name, capacity, model), capacity, report_from)


def _row(result: SimulationResult, best: BoolArray) -> dict[str, Any]:
    low, high = interval(result.hit, best)
    return {
        "hit_rate": result.hit_rate,
        "share_of_optimum": result.hits / int(best.sum()) if best.any() else 1.0,
        "share_interval": [low, high],
        "usable_hit_rate": result.usable_hits / result.references if result.references else 0.0,
        "evictions": result.evictions,
        "bypasses": result.bypasses,
        "wrong_evictions": result.wrong_eviction_share,
        "regretted_evictions": result.regretted_evictions / result.evictions if result.evictions else 0.0,
        "decision_us": {
            "mean": result.decision_us_mean,
            "p50": result.decision_us_p50,
            "p99": result.decision_us_p99,
        },
        "capacity_blocks": result.capacity_blocks,
    }


def interval(hit: BoolArray, best: BoolArray, seed: int = 0, draws: int = 1000) -> tuple[float, float]:
    """95 % interval of the share of the optimum: a bootstrap over SEGMENTS pieces of the reported time."""
    own = np.array([part.sum() for part in np.array_split(hit, SEGMENTS)])
    top = np.array([part.sum() for part in np.array_split(best, SEGMENTS)])
    picks = np.random.default_rng(seed).integers(0, SEGMENTS, (draws, SEGMENTS))
    shares = own[picks].sum(axis=1) / np.maximum(top[picks].sum(axis=1), 1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def scale(
    policy: str, sizes: Sequence[int], references: int = 50_000, seed: int = 0
) -> list[dict[str, float]]:
    """Decision cost of a policy by resident blocks: a full cache, then `references` of a Zipf load.

    Blocks come in chains of 8; every cache is filled first, so that each miss is a decision.
    """
    rows = []
    for size in sizes:
        rng = np.random.default_rng(seed)
        fill = np.arange(-(-size // 8) * 8)
        popular = rng.zipf(1.2, references // 8) % (4 * len(fill) // 8)
        chains = (popular[:, None] * 8 + np.arange(8)).ravel()
        blocks = np.concatenate([fill, chains])
        count = len(blocks) // 8
        trace = RequestTrace.build(
            blocks, np.arange(count + 1) * 8, np.arange(count) * 0.1, block_tokens=64, source="zipf 1.2"
        )
        result = simulate(trace, policy, size, report_from=len(fill) // 8)
        rows.append(
            {
                "resident_blocks": size,
                "decision_us_mean": result.decision_us_mean,
                "decision_us_p50": result.decision_us_p50,
                "decision_us_p99": result.decision_us_p99,
                "hit_rate": result.hit_rate,
            }
        )
    return rows
