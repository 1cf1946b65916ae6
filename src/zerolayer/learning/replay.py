"""Replays recorded demand against any policy, without a model, in seconds.

A turn is: the match that perception gave → plan and recall → the used blocks in order of first use, each
resident (covered) or a fault that loads → end of turn. The numbers are simulated: what was used comes from
the trace, so that no policy can shape its own label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.decision.guarded import Guarded
from zerolayer.decision.oracle import schedule_turns
from zerolayer.decision.planner import end_turn, plan_fault, plan_turn
from zerolayer.decision.policies.graded import GradedPolicy, GradedSettings
from zerolayer.decision.policy import Policy, ReleasingPolicy
from zerolayer.decision.registry import create_policy
from zerolayer.learning.ledger import Ledger
from zerolayer.learning.traces import DemandTrace, DemandTurn

RESERVE_BLOCKS = 4
"""Slots for the question and its answer: 256 tokens at 64 a block."""

TARGET_COVERAGE = 0.95

OPTIMAL = "optimal"

Json = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay counted; names and units are those of metrics.py."""

    policy: str
    turns: int
    used_block_turns: int
    capacity_blocks: int
    reserve_blocks: int
    peak_resident_blocks: int
    coverage: float
    loads: int
    recalled_blocks: int
    faults: int
    fault_blocks: int
    wasted_load_count: int
    evictions: int
    wrong_evictions: int
    discarded_tokens: int
    effective_context_utilization: float
    evidence_coverage: float | None  # None without gold blocks
    load_ratio: float | None  # None where the optimal policy loads nothing but this one does

    @property
    def wasted_loads(self) -> float:
        """Wasted loads over all loads; 0 without loads."""
        return self.wasted_load_count / self.loads if self.loads else 0.0

    @property
    def waste_at_coverage(self) -> float | None:
        """Wasted loads where coverage reaches the target, else None."""
        return self.wasted_loads if self.coverage >= TARGET_COVERAGE else None

    @property
    def wrong_eviction_share(self) -> float:
        """Wrong evictions over evictions; 0 without evictions."""
        return self.wrong_evictions / self.evictions if self.evictions else 0.0

    def to_json(self) -> dict[str, Json]:
        """Plain numbers by metric name."""
        fields: dict[str, Json] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["wasted_loads"] = self.wasted_loads
        fields["waste_at_coverage"] = self.waste_at_coverage
        fields["wrong_eviction_share"] = self.wrong_eviction_share
        fields["simulated"] = True
        return fields


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The cut with the least waste at the target coverage; the highest coverage if none reaches it."""

    cut: float | None  # None: the cut that adapts from turn to turn
    reached: bool
    result: ReplayResult


@dataclass(slots=True)
class _Tally:
    """Sums over turns that the ledger does not keep."""

    used: int = 0
    covered: int = 0
    recalled: int = 0
    faults: int = 0
    fault_blocks: int = 0
    mass: float = 0.0
    mass_resident: float = 0.0
    gold: int = 0
    gold_resident: int = 0

    def begin_answer(self, ledger: Ledger, turn: DemandTurn) -> float:
        """Note what is resident when the answer begins; returns the share of its attention mass on that."""
        resident = ledger.table.resident
        self.used += len(turn.used)
        mass = sum(mass for _, mass in turn.used)
        mass_resident = sum(mass for block, mass in turn.used if resident[block])
        self.mass += mass
        self.mass_resident += mass_resident
        self.gold += len(turn.gold or ())
        self.gold_resident += sum(bool(resident[block]) for block in turn.gold or ())
        return mass_resident / mass if mass else 1.0


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """What one turn did. Loads are in the order in which they were carried out."""

    recalled: tuple[int, ...]
    faults: tuple[tuple[int, int], ...]  # (block, blocks that its fault loaded)
    blocks: tuple[int, ...]  # used, in order
    covered: int  # of the used blocks, those resident at first use
    mass_share: float  # of the turn's attention mass, what lay on resident blocks when the answer began
    held: int  # blocks on the device when the answer ended

    @property
    def used(self) -> int:
        """Blocks that the turn used."""
        return len(self.blocks)


class Simulation:
    """A trace under one policy, turn by turn: the simulator of replays and of the training environment.

    `ask`, `answer`, and so on until `ask` is False; between turns a caller may move blocks through `ledger`.
    Raises BudgetError if sinks, reserve and one block do not fit.
    """

    def __init__(
        self,
        trace: DemandTrace,
        policy: Policy,
        capacity_blocks: int,
        reserve_blocks: int = RESERVE_BLOCKS,
        features: FloatArray | None = None,
    ) -> None:
        self.trace, self.policy, self.reserve = trace, policy, reserve_blocks
        if isinstance(policy, Guarded):
            policy.guard.simulate()
        self.ledger = Ledger(trace, capacity_blocks, reserve_blocks)
        self.table = self.ledger.table
        if features is not None:
            self.table.features[:] = features
        self._tally = _Tally()
        self._number = 0  # turns answered

    def ask(self) -> bool:
        """The next question: its match enters the table. False when the trace is over."""
        if self._number >= len(self.trace):
            return False
        self.ledger.begin_turn(self._number)
        self.table.turn = self._number
        self.table.match[:] = _dense(self.trace.turns[self._number].match, len(self.table))
        return True

    def answer(self) -> SimulatedTurn:
        """Recall, use the turn's blocks in order, let the policy learn, then release what it wants released."""
        turn, table, ledger, tally = self.trace.turns[self._number], self.table, self.ledger, self._tally
        plan = plan_turn(self.policy, table, self.reserve)
        ledger.apply(plan.evict, plan.load)
        tally.recalled += len(plan.load)
        share = tally.begin_answer(ledger, turn)
        faults = []
        for block in turn.blocks:
            if not table.resident[block]:
                fault = plan_fault(self.policy, table, block, self.reserve)
                ledger.apply(fault.evict, fault.load)
                faults.append((block, len(fault.load)))
            ledger.use(block)
        tally.covered += len(turn.used) - len(faults)
        tally.faults += len(faults)
        tally.fault_blocks += sum(count for _, count in faults)
        end_turn(self.policy, table, turn.blocks, _dense(turn.used, len(table)))
        held = table.resident_count
        if isinstance(self.policy, ReleasingPolicy):
            ledger.apply(self.policy.release(table).evict, ())
        self._number += 1
        used = tuple(turn.blocks)
        return SimulatedTurn(plan.load, tuple(faults), used, len(used) - len(faults), share, held)

    def result(self) -> ReplayResult:
        """Close the books: what was loaded and never used since is waste. The load ratio is left open."""
        return _result(self.policy.name, self.trace, self.ledger, self._tally, self.reserve)


def replay(
    trace: DemandTrace,
    policy: Policy | str,
    capacity_blocks: int,
    reserve_blocks: int = RESERVE_BLOCKS,
    features: FloatArray | None = None,
) -> ReplayResult:
    """Replay a trace with a policy (a new object or a name, `optimal` included) on `capacity_blocks` blocks.

    `reserve_blocks` of them stay free for the question and its answer; `features` `[blocks, BLOCK_FEATURES]`
    are what keys and text tell, where that is known. Raises BudgetError if sinks, reserve and one block do not
    fit, UnknownNameError for an unknown policy.
    """
    best = _replay_optimal(trace, capacity_blocks, reserve_blocks)
    if policy == OPTIMAL:
        return best
    chosen = create_policy(policy) if isinstance(policy, str) else policy
    result = _replay_policy(trace, chosen, capacity_blocks, reserve_blocks, features)
    return _with_ratio(result, best.loads)


def replay_all(
    trace: DemandTrace,
    capacity_blocks: int,
    policies: Sequence[str] = ("graded", "static-window", "lru", OPTIMAL),
    reserve_blocks: int = RESERVE_BLOCKS,
) -> dict[str, ReplayResult]:
    """Replay the same trace with every policy, by name."""
    best = _replay_optimal(trace, capacity_blocks, reserve_blocks)
    results = {}
    for name in policies:
        if name == OPTIMAL:
            results[name] = best
        else:
            result = _replay_policy(trace, create_policy(name), capacity_blocks, reserve_blocks)
            results[name] = _with_ratio(result, best.loads)
    return results


def operating_point(
    trace: DemandTrace,
    capacity_blocks: int,
    reserve_blocks: int = RESERVE_BLOCKS,
    target: float = TARGET_COVERAGE,
    cuts: Sequence[float | None] = (None, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6, 0.8),
) -> OperatingPoint:
    """Search the recall depth of the graded policy for the least waste at `target` coverage.

    None among the cuts is the adapting cut. The choice is made on the trace that it is reported for: say so
    where it is shown, and take the adapting cut for a number that no hindsight has touched.
    """
    best = _replay_optimal(trace, capacity_blocks, reserve_blocks).loads
    points = []
    for cut in cuts:
        settings = GradedSettings() if cut is None else GradedSettings(cut=cut, adaptive=False)
        result = _replay_policy(trace, GradedPolicy(settings), capacity_blocks, reserve_blocks)
        points.append(OperatingPoint(cut, result.coverage >= target, _with_ratio(result, best)))
    reached = [point for point in points if point.reached]
    if reached:
        return min(reached, key=lambda point: (point.result.wasted_loads, point.result.loads))
    return max(points, key=lambda point: point.result.coverage)


def _replay_policy(
    trace: DemandTrace, policy: Policy, capacity: int, reserve: int, features: FloatArray | None = None
) -> ReplayResult:
    simulation = Simulation(trace, policy, capacity, reserve, features)
    while simulation.ask():
        simulation.answer()
    return simulation.result()


def _replay_optimal(trace: DemandTrace, capacity: int, reserve: int) -> ReplayResult:
    ledger = Ledger(trace, capacity, reserve)
    table, tally = ledger.table, _Tally()
    demand = [turn.blocks for turn in trace.turns]
    start = [int(block) for block in np.flatnonzero(table.resident)]
    steps = schedule_turns(demand, capacity - reserve, start, range(trace.sink_blocks))
    for number, (turn, step) in enumerate(zip(trace.turns, steps, strict=True)):
        ledger.begin_turn(number)
        ledger.apply(step.evict, step.load)
        tally.recalled += len(step.load)
        tally.begin_answer(ledger, turn)
        victims = dict(step.faults)
        for block in turn.blocks:
            if block in victims:
                victim = victims[block]
                ledger.apply([] if victim is None else [victim], [block])
                tally.faults += 1
                tally.fault_blocks += 1
            else:
                tally.covered += 1
            ledger.use(block)
    return _with_ratio(_result(OPTIMAL, trace, ledger, tally, reserve), ledger.loads)


def _result(name: str, trace: DemandTrace, ledger: Ledger, tally: _Tally, reserve: int) -> ReplayResult:
    ledger.close()
    return ReplayResult(
        policy=name,
        turns=len(trace),
        used_block_turns=tally.used,
        capacity_blocks=ledger.table.capacity,
        reserve_blocks=reserve,
        peak_resident_blocks=ledger.peak_resident,
        coverage=tally.covered / tally.used if tally.used else 1.0,
        loads=ledger.loads,
        recalled_blocks=tally.recalled,
        faults=tally.faults,
        fault_blocks=tally.fault_blocks,
        wasted_load_count=ledger.wasted,
        evictions=ledger.evictions,
        wrong_evictions=ledger.wrong,
        discarded_tokens=ledger.discarded_tokens,
        effective_context_utilization=tally.mass_resident / tally.mass if tally.mass else 1.0,
        evidence_coverage=tally.gold_resident / tally.gold if tally.gold else None,
        load_ratio=None,
    )


def _with_ratio(result: ReplayResult, optimal_loads: int) -> ReplayResult:
    if optimal_loads:
        return replace(result, load_ratio=result.loads / optimal_loads)
    return replace(result, load_ratio=None if result.loads else 1.0)


def _dense(pairs: Sequence[tuple[int, float]], n: int) -> FloatArray:
    dense = np.zeros(n, dtype=np.float32)
    for block, value in pairs:
        dense[block] = value
    return dense
