"""Every policy on the sessions of documents, at every budget: the table by which a default is chosen. Simulated.

Shares and ratios are of sums over sessions; their intervals are 95 % bootstrap intervals over sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerolayer.decision.policy import Policy
from zerolayer.decision.registry import create_policy
from zerolayer.errors import UsageError
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.env import capacity_of
from zerolayer.learning.replay import OPTIMAL, RESERVE_BLOCKS, TARGET_COVERAGE, ReplayResult, replay

SHARES = (0.05, 0.10, 0.25)
DOCUMENT_POLICIES = ("graded", "ppo", "static-window", "lru", OPTIMAL)

LOAD_RATIO_BAR = 1.3
WRONG_EVICTION_BAR = 0.01

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class _Row:
    """Counts of one session under one policy."""

    used: int
    covered: float
    mass_covered: float
    loads: int
    wasted: int
    evictions: int
    wrong: int
    optimal_loads: int


def evaluate_documents(
    sessions: Sequence[Recorded],
    policies: Sequence[str] = DOCUMENT_POLICIES,
    shares: Sequence[float] = SHARES,
    create: Callable[[str], Policy] = create_policy,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Replay all `sessions` with all `policies`, a new object each.

    Returns {"sessions", "turns", "simulated", "budgets": {"5%": {policy: {coverage, evidence_coverage, loads,
    wasted_loads, waste_at_coverage, load_ratio, wrong_eviction_share, ms_per_turn, interval, meets_bar}}}}. A
    session that fits into its device is left out. Raises UsageError if that leaves none.
    """
    budgets: dict[str, Any] = {}
    done, total = 0, len(shares) * len(policies)
    for share in shares:
        chosen = [
            s for s in sessions if capacity_of(len(s.trace.block_lengths), share) < len(s.trace.block_lengths)
        ]
        if not chosen:
            raise UsageError(f"no session exceeds a device of {share:.0%}; give longer documents")
        optimal = [_replayed(s, OPTIMAL, share, create).loads for s in chosen]
        table = {}
        for name in policies:
            started = time.perf_counter()
            results = [_replayed(s, name, share, create) for s in chosen]
            seconds = time.perf_counter() - started
            rows = [_row(result, best) for result, best in zip(results, optimal, strict=True)]
            turns = sum(result.turns for result in results)
            table[name] = {**_report(rows, seed), "ms_per_turn": round(1e3 * seconds / max(turns, 1), 3)}
            done += 1
            if on_progress is not None:
                on_progress(done, total)
        budgets[f"{share:.0%}"] = table
    return {
        "sessions": len(sessions),
        "turns": sum(len(session.trace) for session in sessions),
        "seed": seed,
        "simulated": True,
        "bar": {"load_ratio": LOAD_RATIO_BAR, "wrong_eviction_share": WRONG_EVICTION_BAR},
        "budgets": budgets,
    }


def _replayed(session: Recorded, name: str, share: float, create: Callable[[str], Policy]) -> ReplayResult:
    capacity = capacity_of(len(session.trace.block_lengths), share)
    policy = name if name == OPTIMAL else create(name)
    return replay(session.trace, policy, capacity, RESERVE_BLOCKS, session.features)


def _row(result: ReplayResult, optimal_loads: int) -> _Row:
    return _Row(
        result.used_block_turns,
        result.coverage * result.used_block_turns,
        result.effective_context_utilization * result.used_block_turns,
        result.loads,
        result.wasted_load_count,
        result.evictions,
        result.wrong_evictions,
        optimal_loads,
    )


def _report(rows: Sequence[_Row], seed: int) -> dict[str, Any]:
    columns = np.array(
        [
            (r.used, r.covered, r.mass_covered, r.loads, r.wasted, r.evictions, r.wrong, r.optimal_loads)
            for r in rows
        ],
        dtype=np.float64,
    )
    point = _ratios(columns.sum(axis=0))
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(rows), size=(_RESAMPLES, len(rows)))
    samples = [_ratios(columns[index].sum(axis=0)) for index in drawn]
    interval = {
        name: [round(float(q), 4) for q in np.quantile([sample[name] for sample in samples], (0.025, 0.975))]
        for name in point
    }
    covered = point["coverage"] >= TARGET_COVERAGE
    return {
        **{name: round(value, 4) for name, value in point.items()},
        "waste_at_coverage": round(point["wasted_loads"], 4) if covered else None,
        "loads": int(columns[:, 3].sum()),
        "evictions": int(columns[:, 5].sum()),
        "interval": interval,
        "meets_bar": covered
        and point["load_ratio"] <= LOAD_RATIO_BAR
        and point["wrong_eviction_share"] <= WRONG_EVICTION_BAR,
    }


def _ratios(sums: np.typing.NDArray[np.float64]) -> dict[str, float]:
    used, covered, mass, loads, wasted, evictions, wrong, optimal = (float(value) for value in sums)
    return {
        "coverage": covered / used if used else 1.0,
        "evidence_coverage": mass / used if used else 1.0,
        "wasted_loads": wasted / loads if loads else 0.0,
        "wrong_eviction_share": wrong / evictions if evictions else 0.0,
        "load_ratio": loads / optimal if optimal else float(loads == 0),
    }
