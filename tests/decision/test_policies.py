"""What each policy does that the contract leaves open, and the planner against policies that break it."""

from __future__ import annotations

import numpy as np
import pytest

from zerolayer.core import BlockTable, Grade
from zerolayer.decision.planner import end_turn, plan_fault, plan_room, plan_turn
from zerolayer.decision.policies.graded import GradedPolicy, GradedSettings
from zerolayer.decision.policies.lru import LruPolicy
from zerolayer.decision.policies.static_window import StaticWindowPolicy
from zerolayer.decision.registry import create_policy
from zerolayer.errors import SettingError, UnknownNameError


def load(table: BlockTable, plan) -> None:
    table.resident[list(plan.evict)] = False
    table.resident[list(plan.load)] = True
    table.touch(plan.load)


def test_lru_evicts_the_oldest_touch_and_loads_one_block():
    table = BlockTable.create([64] * 6, 3)
    table.resident[:3] = True
    table.touch([2, 0, 1])
    plan = plan_fault(LruPolicy(), table, 4)
    assert (plan.evict, plan.load) == ((2,), (4,))


def test_static_window_cuts_its_oldest_tokens_while_reading():
    table = BlockTable.create([64] * 10, 4)
    policy = StaticWindowPolicy()
    table.pinned[0] = True
    read = []
    for block in range(10):
        plan = plan_room(policy, table, 1)
        table.resident[list(plan.evict)] = False
        table.resident[block] = True
        read.append(plan.evict)
    assert read == [(), (), (), (), (1,), (2,), (3,), (4,), (5,), (6,)]
    assert np.flatnonzero(table.resident).tolist() == [0, 7, 8, 9]


def test_static_window_loads_the_page_of_the_fault_and_the_next():
    table = BlockTable.create([256] * 20, 20, 256)  # four blocks a page
    table.resident[[4, 11]] = True
    plan = plan_fault(StaticWindowPolicy(), table, 6)
    assert plan.load == (6, 5, 7, 8, 9, 10)


def test_static_window_evicts_the_oldest_load_however_often_it_is_used():
    table = BlockTable.create([1024] * 8, 3, 1024)  # one block a page
    policy = StaticWindowPolicy()
    table.resident[[5, 6, 7]] = True
    load(table, plan_fault(policy, table, 1))  # brings 1 and 2, in that order, for 5 and 6
    table.touch([7, 7, 7])
    plan = plan_fault(policy, table, 4)  # brings 4 and 5; 7 came before 1 and 2
    assert (plan.evict, plan.load) == ((7, 1), (4, 5))


def test_graded_recalls_the_best_matches_first_and_leaves_unlikely_blocks():
    table = BlockTable.create([64] * 300, 100)
    table.match[[200, 50, 120]] = [0.9, 1.0, 0.8]
    plan = plan_turn(GradedPolicy(), table)
    assert plan.load == (50, 200, 120)


def test_graded_recalls_the_previous_turns_blocks_without_a_match():
    table = BlockTable.create([64] * 100, 50)
    policy = GradedPolicy()
    plan_turn(policy, table)
    end_turn(policy, table, [30, 40], np.zeros(100, dtype=np.float32))
    assert set(plan_turn(policy, table).load) == {30, 40}


def test_graded_keeps_likely_blocks_and_knits_the_best_matches():
    table = BlockTable.create([64] * 10, 4)
    table.resident[:4] = True
    table.match[[1, 8]] = [1.0, 0.9]
    plan = plan_turn(GradedPolicy(), table, knit_tokens=64, knittable=[1, 8])
    assert plan.load == (8,)
    assert plan.evict == (0,)
    assert plan.knit == (1,)
    assert plan_turn(GradedPolicy(), table, knit_tokens=64).knit == ()


def test_graded_does_not_swap_a_block_for_one_that_is_no_likelier():
    table = BlockTable.create([64] * 6, 3)
    table.resident[:3] = True
    table.match[:] = [1.0, 1.0, 1.0, 0.9, 0.8, 0.7]
    assert plan_turn(GradedPolicy(), table).load == ()


def run_turns(turns: int, useful: int, n: int = 400) -> list[int]:
    """Recall depth by turn where each answer uses the `useful` best matches, new blocks every turn."""
    rng, policy = np.random.default_rng(1), GradedPolicy()
    table = BlockTable.create([64] * n, 200)
    depth = []
    for _ in range(turns):
        order = rng.permutation(n)
        table.match[order[:100]] = np.linspace(1, 0.1, 100)
        table.resident[:] = False
        plan = plan_turn(policy, table)
        depth.append(len(plan.load))
        end_turn(policy, table, order[:useful].tolist(), np.zeros(n, dtype=np.float32))
    return depth


def test_graded_learns_how_deep_to_recall():
    shallow, deep = run_turns(20, useful=4), run_turns(20, useful=60)
    assert shallow[0] == deep[0], "before the first answer nothing is known"
    assert 4 <= shallow[-1] <= 8
    assert shallow[-1] < shallow[0]
    assert 57 <= deep[-1] <= 96


def test_graded_learns_how_far_a_fault_reaches():
    table, policy = BlockTable.create([64] * 60, 60), GradedPolicy()
    assert policy.expand(table, 30) == [30]
    for start in range(0, 40, 4):  # answers use runs of four blocks
        end_turn(policy, table, range(start, start + 4), np.zeros(60, dtype=np.float32))
    table.resident[31] = True
    assert policy.expand(table, 30)[:3] == [30, 29, 28]
    assert 31 not in policy.expand(table, 30)
    assert policy.expand(table, 0)[:2] == [0, 1]
    for block in [*range(0, 60, 2)] * 2:  # now single blocks
        end_turn(policy, table, [block], np.zeros(60, dtype=np.float32))
    assert policy.expand(table, 30) == [30]


def test_graded_brings_an_absent_p0_block_whatever_its_match():
    table = BlockTable.create([64] * 8, 4)
    table.match[3] = 1.0
    table.grade[6] = int(Grade.P0)
    assert plan_turn(GradedPolicy(), table).load[0] == 6


def test_graded_explains_its_grades():
    policy, table = GradedPolicy(), BlockTable.create([64] * 8, 8)
    assert "not graded" in policy.explain(0)
    table.pinned[0] = table.resident[0] = True
    policy.floors = np.array([3, 1, 3, 3, 3, 3, 3, 3])
    plan_turn(policy, table)
    end_turn(policy, table, [4], np.zeros(8, dtype=np.float32))
    assert table.grade.tolist()[:2] == [0, 1]
    assert policy.explain(0).endswith("pinned")
    assert policy.explain(1).startswith("P1") or "hint" in policy.explain(1)
    assert "recency" in policy.explain(4)


def test_graded_locks_at_most_its_share_as_p0():
    table = BlockTable.create([64] * 40, 24)
    table.resident[:20] = True
    policy = GradedPolicy(GradedSettings(p0_share=0.25))
    plan_turn(policy, table, reserve_blocks=4)
    end_turn(policy, table, list(range(20)), np.full(40, 0.05, dtype=np.float32))
    assert int((table.grade == int(Grade.P0)).sum()) == 5
    assert "held at P1" in policy.explain(19)
    plan_turn(policy, table, reserve_blocks=12)  # the reserve still fits


@pytest.mark.parametrize("field", ["cut", "target_coverage", "cut_min", "p0_share"])
def test_graded_settings_out_of_range(field):
    with pytest.raises(SettingError, match=rf"{field} 1\.5 is out of range"):
        GradedSettings(**{field: 1.5})


def test_graded_settings_cut_bounds():
    with pytest.raises(SettingError, match=r"cut_min 0\.6 is above cut_max 0\.5"):
        GradedSettings(cut_min=0.6, cut_max=0.5)
    policy, table = GradedPolicy(GradedSettings(cut=0.0, cut_min=0.0)), BlockTable.create([64] * 9, 9)
    assert len(plan_turn(policy, table).load) == 9, "a cut of 0 recalls whatever fits"
    end_turn(policy, table, [1], np.zeros(9, dtype=np.float32))
    assert policy.cut > 0


class OutOfTree(LruPolicy):
    name = "out-of-tree"


class NoMethods:
    name = "no-methods"


class NoName:
    victims = recall = expand = knit = end_turn = LruPolicy.victims


class NeedsArgument(LruPolicy):
    def __init__(self, size):
        self.size = size


def test_out_of_tree_policy_loads():
    assert create_policy(f"{__name__}:OutOfTree").name == "out-of-tree"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module_here:X", "cannot be imported"),
        ("a b:X", "not of the form module:Class"),
        (":", "not of the form module:Class"),
        (f"{__name__}:Missing", "has no class 'Missing'"),
        (f"{__name__}:NoMethods", "lacks victims, recall, expand, knit, end_turn"),
        (f"{__name__}:NoName", "lacks the attribute name"),
        (f"{__name__}:NeedsArgument", "without arguments"),
    ],
)
def test_bad_out_of_tree_spec(spec, message):
    with pytest.raises(SettingError, match=message):
        create_policy(spec)


def test_unknown_policy_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="graded, lru, module:Class, ppo, sparing, static-window"):
        create_policy("mru")


class Greedy(LruPolicy):
    """Breaks the contract in every answer."""

    def victims(self, table, count, keep):
        return [0] * count

    def recall(self, table, limit):
        return list(range(limit + 1))

    def expand(self, table, fault):
        return []


def test_planner_refuses_a_policy_that_breaks_its_contract():
    table = BlockTable.create([64] * 10, 3)
    table.resident[:3] = True
    with pytest.raises(SettingError, match="recall gave"):
        plan_turn(Greedy(), table)
    with pytest.raises(SettingError, match="expand gave"):
        plan_fault(Greedy(), table, 7)
    with pytest.raises(SettingError, match="victims gave"):
        plan_room(Greedy(), table, 2)


def test_end_turn_counts_use_and_forgets_the_match():
    table = BlockTable.create([64] * 3, 3)
    table.match[:] = 1.0
    mass = np.array([0.0, 0.5, 0.1], dtype=np.float32)
    end_turn(LruPolicy(), table, [1], mass)
    end_turn(LruPolicy(), table, [1, 2], mass)
    assert table.use_count.tolist() == [0, 2, 1]
    assert table.last_used_turn.tolist() == [-1, 1, 1]
    assert table.attention.tolist() == pytest.approx([0.0, 0.9, 0.18])
    assert table.turn == 2
    assert not table.match.any()
