"""Every policy on the sessions of documents, at every budget: the table by which a default is chosen. Simulated.

Shares and ratios are of sums over sessions; their intervals are 95 % bootstrap intervals over sessions. Persistence
is calibrated as in a live session. Two bounds stand beside the policies: `optimal` knows the future, `order-blind`
knows what will be asked and not when.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.decision.guarded import Guarded
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.decision.registry import DEFAULT_POLICY, POLICIES, create_policy
from zerolayer.decision.reward import Reward, reward
from zerolayer.errors import UsageError
from zerolayer.learning.bounds import ORDER_BLIND, OrderBlindPolicy
from zerolayer.learning.calibrate_files import calibration_of
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.costs import TierCosts
from zerolayer.learning.env import capacity_of
from zerolayer.learning.outcomes import Meter
from zerolayer.learning.replay import (
    OPTIMAL,
    RESERVE_BLOCKS,
    TARGET_COVERAGE,
    ReplayResult,
    Simulation,
    replay,
)

SHARES = (0.05, 0.10, 0.25)
BOUNDS = (ORDER_BLIND, OPTIMAL)

LOAD_RATIO_BAR = 1.3
WRONG_EVICTION_BAR = 0.01

_RESAMPLES = 1000
_CODEC = "K8V4"
_COLUMNS = ("used", "covered", "mass", "loads", "wasted", "evictions", "wrong", "optimal", "earned", "turns")

Sums = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Run:
    """One policy at one budget over all sessions."""

    rows: list[tuple[float, ...]] = field(default_factory=list)  # of _COLUMNS, one a session
    rewards: list[Reward] = field(default_factory=list)  # one a turn
    turn_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)

    def add(self, result: ReplayResult, optimal_loads: int) -> None:
        """Note a session, whose turns have been noted in `rewards`."""
        used = result.used_block_turns
        earned = sum(value.total for value in self.rewards[-result.turns :])
        self.rows.append(
            (
                used,
                result.coverage * used,
                result.effective_context_utilization * used,
                result.loads,
                result.wasted_load_count,
                result.evictions,
                result.wrong_evictions,
                optimal_loads,
                earned,
                result.turns,
            )
        )


def live_policy(name: str, session: Recorded, create: Callable[[str], Policy] = create_policy) -> Policy:
    """A new policy for `session`, calibrated as a live session of its model and its language would calibrate it."""
    if name == ORDER_BLIND:
        return OrderBlindPolicy(session.trace)
    policy = create(name)
    if isinstance(policy, GradingPolicy):
        policy.use_persistence(calibration_of(session.trace))
    return policy


def evaluate_documents(
    sessions: Sequence[Recorded],
    policies: Sequence[str] = (*POLICIES, *BOUNDS),
    shares: Sequence[float] = SHARES,
    create: Callable[[str], Policy] = create_policy,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    costs: TierCosts | None = None,
) -> dict[str, Any]:
    """Replay all `sessions` with all `policies`, a new object each.

    Returns {"sessions", "turns", "seed", "simulated", "bar", "policies": {name: {"5%": row}}}; a row has the
    numbers of DESIGN section 6 by name, their `interval`, the reward by term and decision times. A session that
    fits into its device is left out. Raises UsageError if that leaves none.
    """
    tables: dict[str, dict[str, Any]] = {name: {} for name in policies}
    priced = costs or TierCosts()
    done, total = 0, len(shares) * len(policies)
    for share in shares:
        chosen = [
            s for s in sessions if capacity_of(len(s.trace.block_lengths), share) < len(s.trace.block_lengths)
        ]
        if not chosen:
            raise UsageError(f"no session exceeds a device of {share:.0%}; give longer documents")
        optimal = [replay(s.trace, OPTIMAL, _capacity(s, share)) for s in chosen]
        for name in policies:
            run = _Run()
            for session, best in zip(chosen, optimal, strict=True):
                policy = None if name == OPTIMAL else live_policy(name, session, create)
                result = best if policy is None else _played(session, policy, share, priced, run)
                run.add(result, best.loads)
            tables[name][f"{share:.0%}"] = _report(run, seed)
            done += 1
            if on_progress is not None:
                on_progress(done, total)
    return {
        "sessions": len(sessions),
        "turns": sum(len(session.trace) for session in sessions),
        "seed": seed,
        "simulated": True,
        "bar": {"load_ratio": LOAD_RATIO_BAR, "wrong_eviction_share": WRONG_EVICTION_BAR},
        "policies": tables,
        "default": {"name": DEFAULT_POLICY, **tables.get(DEFAULT_POLICY, {})},
    }


def _capacity(session: Recorded, share: float) -> int:
    return capacity_of(len(session.trace.block_lengths), share)


def _played(session: Recorded, policy: Policy, share: float, costs: TierCosts, run: _Run) -> ReplayResult:
    """The session under the policy; its turns are noted in `run`."""
    simulation = Simulation(
        session.trace, policy, _capacity(session, share), RESERVE_BLOCKS, session.features
    )
    asked = simulation.ask()
    while asked:
        meter, started = Meter(simulation, costs, _CODEC), time.perf_counter()
        turn = simulation.answer()
        run.turn_s.append(time.perf_counter() - started)
        asked = simulation.ask()
        if not asked:
            simulation.ledger.close()  # what was never used is the last turn's waste
        run.rewards.append(reward(meter.outcome(turn)))
    if isinstance(policy, Guarded):
        run.decision_s += [decision.seconds for decision in policy.decisions]
        run.fallbacks += policy.guard.fallbacks
    return simulation.result()


def _report(run: _Run, seed: int) -> dict[str, Any]:
    columns: Sums = np.array(run.rows, dtype=np.float64)
    sums = dict(zip(_COLUMNS, columns.sum(axis=0), strict=True))
    point = _ratios(columns.sum(axis=0))
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(columns), size=(_RESAMPLES, len(columns)))
    samples = [_ratios(columns[index].sum(axis=0)) for index in drawn]
    interval = {
        name: [round(float(q), 4) for q in np.quantile([sample[name] for sample in samples], (0.025, 0.975))]
        for name in point
    }
    covered = point["coverage"] >= TARGET_COVERAGE
    if not run.rewards:  # the optimum is scheduled, not played
        del point["reward"], interval["reward"]
    row: dict[str, Any] = {
        **{name: round(value, 4) for name, value in point.items()},
        "waste_at_coverage": round(point["wasted_loads"], 4) if covered else None,
        "loads": int(sums["loads"]),
        "evictions": int(sums["evictions"]),
        "wrong_evictions": int(sums["wrong"]),
        "interval": interval,
        "meets_load_ratio": point["load_ratio"] <= LOAD_RATIO_BAR,
        "meets_wrong_evictions": point["wrong_eviction_share"] <= WRONG_EVICTION_BAR,
    }
    if run.rewards:
        row["reward_terms"] = _mean_terms(run.rewards)
        row["turn_ms"] = _percentiles(run.turn_s, 1e3)
    if run.decision_s:
        row["decision_us"] = _percentiles(run.decision_s, 1e6)
        row["fallbacks"] = dict(run.fallbacks)
    return row


def _mean_terms(rewards: Sequence[Reward]) -> dict[str, float]:
    """Each weighted term, of a turn."""
    terms = tuple(Reward.__dataclass_fields__)
    return {name: round(float(np.mean([getattr(value, name) for value in rewards])), 2) for name in terms}


def _percentiles(seconds: Sequence[float], unit: float) -> dict[str, float]:
    p50, p99 = np.percentile(seconds, (50, 99)) * unit
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "count": len(seconds)}


def _ratios(sums: Sums) -> dict[str, float]:
    used, covered, mass, loads, wasted, evictions, wrong, optimal, earned, turns = (float(v) for v in sums)
    return {
        "coverage": covered / used if used else 1.0,
        "effective_context_utilization": mass / used if used else 1.0,
        "wasted_loads": wasted / loads if loads else 0.0,
        "wrong_eviction_share": wrong / evictions if evictions else 0.0,
        "load_ratio": loads / optimal if optimal else float(loads == 0),
        "reward": earned / turns if turns else 0.0,  # of a turn
    }
