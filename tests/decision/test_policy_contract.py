"""The contract that every registered policy keeps, on tables drawn by hypothesis."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from block_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.core import BlockTable, Grade
from zerolayer.decision.guarded import Guarded
from zerolayer.decision.planner import end_turn, plan_fault, plan_room, plan_turn
from zerolayer.decision.policy import Policy, SteeringPolicy, evictable
from zerolayer.decision.registry import POLICIES, create_policy
from zerolayer.errors import BudgetError

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
fast = settings(max_examples=60, deadline=None)


def create(name: str) -> Policy:
    """A new policy; a guarded one judges by turns only, or hypothesis would find how busy the machine is."""
    policy = create_policy(name)
    if isinstance(policy, Guarded):
        policy.guard.simulate()
    return policy


def held(table: BlockTable) -> np.ndarray:
    return table.pinned | (table.grade == int(Grade.P0))


def check_plan(table: BlockTable, plan, free_after: int) -> None:
    """Every law of a plan: evicts what may go, loads what is away, leaves `free_after` slots."""
    assert len(set(plan.evict)) == len(plan.evict) and len(set(plan.load)) == len(plan.load)
    assert all(table.resident[b] and not held(table)[b] for b in plan.evict)
    assert not any(table.resident[b] for b in plan.load)
    resident = table.resident_count - len(plan.evict) + len(plan.load)
    assert resident <= table.capacity - free_after


@every_policy
def test_registered_policy_is_a_policy_with_its_registered_name(name):
    policy = create(name)
    assert isinstance(policy, Policy)
    assert policy.name == name


@every_policy
@fast
@given(table=tables(), data=st.data())
def test_victims_are_exactly_n_evictable_blocks_or_none(name, table, data):
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))), dtype=np.bool_
    )
    count = data.draw(st.integers(0, len(table) + 1))
    victims = create(name).victims(table, count, keep)
    allowed = set(np.flatnonzero(evictable(table) & ~keep).tolist())
    assert set(victims) <= allowed
    assert len(set(victims)) == len(victims)
    assert len(victims) == (count if count <= len(allowed) else 0)


@every_policy
@fast
@given(table=tables(), limit=st.integers(0, 20))
def test_recall_names_at_most_limit_absent_blocks(name, table, limit):
    recalled = create(name).recall(table, min(limit, table.free + int(evictable(table).sum())))
    assert len(set(recalled)) == len(recalled) <= limit
    assert not any(table.resident[block] for block in recalled)


@every_policy
@fast
@given(table=tables(), limit=st.integers(0, 20))
def test_attend_names_at_most_limit_distinct_resident_unpinned_blocks(name, table, limit):
    before = copy.deepcopy(table)
    attended = create(name).attend(table, limit)
    assert len(set(attended)) == len(attended) <= limit
    assert all(table.resident[block] and not table.pinned[block] for block in attended)
    assert np.array_equal(table.resident, before.resident) and table.now == before.now


@every_policy
@fast
@given(table=tables(), limit=st.integers(0, 20))
def test_warm_names_at_most_limit_distinct_absent_blocks(name, table, limit):
    warmed = create(name).warm(table, limit)
    assert len(set(warmed)) == len(warmed) <= limit
    assert not any(table.resident[block] for block in warmed)


@every_policy
@fast
@given(table=tables(), reserve=st.integers(0, 6), knit_tokens=st.integers(0, 1000), least=st.floats(0, 1))
def test_turn_plan_leaves_the_reserve_free_and_fits_the_knit_budget(name, table, reserve, knit_tokens, least):
    knittable = np.flatnonzero(table.match > least).tolist()
    room = table.free + int(evictable(table).sum()) - reserve
    policy = create(name)
    if room < 0:
        with pytest.raises(BudgetError, match=f"reserve of {reserve} blocks"):
            plan_turn(policy, table, reserve, knit_tokens)
        return
    plan = plan_turn(policy, table, reserve, knit_tokens, knittable)
    assert set(plan.knit) <= set(knittable)
    check_plan(table, plan, reserve)
    assert sum(int(table.tokens[block]) for block in plan.knit) <= knit_tokens


@every_policy
@fast
@given(table=tables(), fault=st.integers(0, 39), reserve=st.integers(0, 4))
def test_fault_plan_loads_the_fault_first(name, table, fault, reserve):
    fault %= len(table)
    policy = create(name)
    if table.resident[fault]:
        assert plan_fault(policy, table, fault, reserve).load == ()
    elif table.free + int(evictable(table).sum()) - reserve < 1:
        with pytest.raises(BudgetError, match=f"block {fault}"):
            plan_fault(policy, table, fault, reserve)
    else:
        plan = plan_fault(policy, table, fault, reserve)
        assert plan.load[0] == fault
        check_plan(table, plan, reserve)


@every_policy
@fast
@given(table=tables(), count=st.integers(0, 20))
def test_room_plan_frees_exactly_what_is_missing(name, table, count):
    policy = create(name)
    if table.free + int(evictable(table).sum()) < count:
        with pytest.raises(BudgetError, match=f"{count} new blocks"):
            plan_room(policy, table, count)
    else:
        plan = plan_room(policy, table, count)
        check_plan(table, plan, count)
        assert len(plan.evict) == max(0, count - table.free)


@every_policy
@settings(max_examples=15, deadline=None)
@given(table=tables(), seed=st.integers(0, 1000))
def test_same_history_gives_same_plans(name, table, seed):
    """Two policies that live through the same turns decide the same; pinned and P0 blocks stay.

    P0 when the plan is made: a policy that steers may first move its cuts, and what is P1 by then can leave.
    """

    def run():
        rng, mine, policy = np.random.default_rng(seed), copy.deepcopy(table), create(name)
        plans = []
        for _ in range(4):
            mine.match[:] = rng.random(len(mine))
            before, grade = mine.resident.copy(), mine.grade.copy()
            plan = plan_turn(policy, mine)
            assert isinstance(policy, SteeringPolicy) or np.array_equal(mine.grade, grade)
            stays = before & held(mine)
            mine.resident[list(plan.evict)] = False
            mine.resident[list(plan.load)] = True
            mine.touch(plan.load)
            assert mine.resident[stays].all()
            used = rng.permutation(len(mine))[:3]
            end_turn(policy, mine, used.tolist(), rng.random(len(mine)).astype(np.float32))
            plans.append((plan, mine.grade.tolist()))
        return plans

    assert run() == run()


@every_policy
def test_hundred_thousand_blocks(name):
    rng, n = np.random.default_rng(0), 100_000
    table = BlockTable.create([64] * n, 10_000)
    table.resident[:10_000] = True
    table.match[:] = rng.random(n)
    policy = create(name)
    for turn in range(3):
        plan = plan_turn(policy, table, reserve_blocks=8, knit_tokens=640, knittable=range(n))
        check_plan(table, plan, 8)
        plan = plan_fault(policy, table, 50_000 + turn)
        check_plan(table, plan, 0)
        end_turn(policy, table, [5, 6, 7], np.zeros(n, dtype=np.float32))
    assert table.turn == 3
