"""The guard: every reason to fall back, provoked, counted and undone; the shadow; the rollback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from window_networks import always_network, random_network

from zerolayer.core import BlockTable, Grade
from zerolayer.decision import observation
from zerolayer.decision.guarded import Guarded
from zerolayer.decision.planner import end_turn, plan_fault, plan_turn
from zerolayer.decision.policies.graded import GradedPolicy
from zerolayer.decision.policies.ppo import PpoPolicy
from zerolayer.decision.safety import (
    DRIFT,
    LATE,
    OUT_OF_RANGE,
    P0_EVICTIONS,
    WORSE,
    Guard,
    P0Watch,
    SafetySettings,
)
from zerolayer.decision.shadow import Shadow
from zerolayer.decision.strategy import ACTION_SIZES, NO_CHANGE, WindowStrategy, valid_action
from zerolayer.errors import SettingError

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from demand_traces import random_trace

RECALL_NOTHING = (0, 0, 6, 0, 0)


class Clock:
    """Advances by hand, and by `step` with every look."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def play(policy, trace, capacity=30, reserve=4, after=None):
    """A session in the planner's order, as the scheduler and the replay run it."""
    table = BlockTable.create(trace.block_lengths, capacity)
    table.resident[:capacity] = True
    table.pinned[0] = True
    for number, turn in enumerate(trace.turns):
        table.turn = number
        for block, score in turn.match:
            table.match[block] = score
        plans = [plan_turn(policy, table, reserve)]
        carry_out(table, plans[0])
        for block in turn.blocks:
            carry_out(table, plan_fault(policy, table, block, reserve))
        table.touch(turn.blocks)
        mass = np.zeros(len(table), np.float32)
        mass[turn.blocks] = 1.0 / len(turn.blocks)
        end_turn(policy, table, turn.blocks, mass)
        if after is not None:
            after(number, table)
    return table


def carry_out(table, plan):
    table.resident[list(plan.evict)] = False
    table.resident[list(plan.load)] = True
    table.touch(plan.load)


def ppo(action=NO_CHANGE, clock=None, **bounds):
    return PpoPolicy(always_network(action), SafetySettings(**bounds), clock or Clock())


def test_a_default_network_is_the_graded_policy_and_its_shadow_agrees():
    trace, policy, graded = random_trace(1, noise=0.3), ppo(), GradedPolicy()
    ours, theirs = play(policy, trace), play(graded, trace)
    assert np.array_equal(ours.resident, theirs.resident)
    assert np.array_equal(policy.guard.shadow.ghost.resident, ours.resident)
    assert policy.guard.advantage == 0.0
    assert not policy.guard.fallbacks


def test_the_shadow_moves_nothing_and_is_what_the_static_policy_alone_would_hold():
    trace, policy = random_trace(2, noise=0.3), ppo(RECALL_NOTHING, worse_by=100.0)
    real, alone = play(policy, trace), play(GradedPolicy(), trace)
    assert np.array_equal(policy.guard.shadow.ghost.resident, alone.resident)
    assert not np.array_equal(real.resident, alone.resident)


def test_a_late_decision_does_not_count_and_the_next_one_may():
    clock = Clock()
    policy = ppo(RECALL_NOTHING, clock)
    table = BlockTable.create([64] * 40, 20)
    clock.step = 0.01
    late = policy.decide(table, "question")
    assert (late.fallback, late.strategy) == (LATE, WindowStrategy())
    assert "took 10000 µs, allowed are 1000" in late.why()
    clock.step = 0.0
    assert policy.decide(table, "question").strategy.recall_factor == 16.0
    assert policy.guard.fallbacks == {LATE: 1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_an_observation_out_of_range_falls_back_and_names_the_field(value):
    policy = ppo(RECALL_NOTHING)
    policy.history.last_recall = value
    decision = policy.decide(BlockTable.create([64] * 40, 20), "question")
    assert decision.fallback == OUT_OF_RANGE
    assert decision.strategy == WindowStrategy()
    assert "last_recall is" in policy.why()
    assert policy.guard.fallbacks == {OUT_OF_RANGE: 1}


def test_doing_worse_than_the_shadow_suspends_and_a_suspension_ends():
    policy = ppo(RECALL_NOTHING, hold_turns=6, least_turns=3, worse_by=0.01)
    seen = []
    play(policy, random_trace(3, noise=0.0, turns=40), after=lambda *_: seen.append(policy.decisions[-1]))
    assert policy.guard.fallbacks[WORSE] >= 2  # again after it was let back
    assert any(not decision.fallback for decision in seen[10:])
    held = next(i for i, decision in enumerate(seen) if decision.fallback)
    assert [decision.fallback for decision in seen[held : held + 6]] == [WORSE] * 6
    assert all(decision.strategy == WindowStrategy() for decision in seen[held : held + 6])


def test_drift_suspends():
    policy = ppo(RECALL_NOTHING, drift_max=1e-9, worse_by=100.0)
    play(policy, random_trace(4))
    assert policy.guard.fallbacks[DRIFT] >= 1
    assert DRIFT in policy.why()


def test_p0_evictions_for_five_minutes_roll_back_for_good():
    clock, policy = Clock(), None
    policy = ppo(RECALL_NOTHING, clock, worse_by=100.0)

    def lose_a_p0_block(number, table):
        clock.now += 60.0
        resident = np.flatnonzero(table.resident & ~table.pinned)
        table.grade[resident[0]] = int(Grade.P0)
        policy.guard.watch(table)
        table.resident[resident[0]] = False  # by whoever breaks the law
        policy.guard.watch(table)
        rolled_back.append(policy.guard.rolled_back)

    rolled_back = []
    play(policy, random_trace(5, turns=12), after=lose_a_p0_block)
    assert rolled_back == [False] * 5 + [True] * 7  # 60 s to 300 s: above the bound, not yet for five minutes
    assert policy.guard.fallbacks == {P0_EVICTIONS: 1}
    assert P0_EVICTIONS in policy.why()


def test_the_watch_forgets_what_is_over_five_minutes_ago():
    clock, table = Clock(), BlockTable.create([64] * 10, 10)
    watch = P0Watch(SafetySettings(), clock)
    table.resident[:], table.grade[0] = True, int(Grade.P0)
    watch.update(table)
    table.resident[0] = False
    assert not watch.update(table)
    assert watch.rate == 1.0
    clock.now = 301.0
    assert not watch.update(table)
    assert (watch.rate, watch.p0_evictions) == (0.0, 1)


def test_decisions_follow_events_and_grow_at_most_200_ms_old():
    clock = Clock()
    policy, table = ppo(clock=clock), BlockTable.create([64] * 40, 20)
    assert policy.tick(table)
    clock.now += 0.19
    assert not policy.tick(table)
    clock.now += 0.02
    plan_fault(policy, table, 30)
    assert [decision.event for decision in policy.decisions] == ["period", "fault"]


def test_two_sessions_with_one_seed_decide_alike():
    def run():
        policy = PpoPolicy(random_network(7), clock=Clock())
        table = play(policy, random_trace(6))
        return [decision.action for decision in policy.decisions], table.resident.tolist()

    assert run() == run()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_chosen_keeps_the_contract_of_policies(seed):
    """Other thresholds grade again, which locks other blocks: that must not happen while a plan is made."""

    class Restless:
        def __init__(self):
            self.rng = np.random.default_rng(seed)

        def act(self, observation, mask):
            return valid_action([int(self.rng.integers(size)) for size in ACTION_SIZES], mask)

    bounds = SafetySettings(worse_by=1e9, drift_max=1e9, time_budget_s=10.0)
    policy = Guarded(Restless(), bounds, Clock(step=0.15))
    trace = random_trace(seed, turns=40, noise=0.3)
    table = play(policy, trace, after=lambda _, table: carry_out(table, policy.release(table)))
    assert table.resident_count <= table.capacity
    assert len({decision.strategy.thresholds for decision in policy.decisions}) > 1


def test_why_says_who_decided_and_what_it_changed():
    policy = ppo(RECALL_NOTHING)
    assert policy.why() == "nothing decided yet: the first question decides"
    policy.decide(BlockTable.create([64] * 40, 20), "question")
    assert "recall stops at 16 times the calibrated cut" in policy.why()
    assert "learned: departs from the default in recall_factor" in policy.why()


def test_a_growing_conversation_keeps_its_shadow():
    policy, table = ppo(), BlockTable.create([64] * 20, 30)
    table.resident[:] = True
    for turn in range(3):
        table.turn = turn
        plan_turn(policy, table, 4)
        end_turn(policy, table, [3], np.eye(1, len(table), 3, dtype=np.float32)[0])
        table.grow(2)
    plan_turn(policy, table, 4)
    assert len(policy.guard.shadow.ghost) == len(table)


def test_impossible_bounds_are_refused():
    with pytest.raises(SettingError, match="safety bound period_s is 0"):
        SafetySettings(period_s=0)


def test_a_guard_without_a_turn_has_no_opinion():
    bounds = SafetySettings()
    guard = Guard(Shadow(GradedPolicy(), bounds.weights, bounds.block_mb), bounds, Clock())
    assert (guard.suspended, guard.advantage, guard.rolled_back) == ("", 0.0, False)
    zeros = np.zeros(observation.SIZE, np.float32)
    assert (guard.in_range(zeros), guard.in_time(0.0)) == ("", "")
