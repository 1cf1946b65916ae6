"""Persistence, thresholds, floors, and the chain rule."""

from __future__ import annotations

import numpy as np
import pytest
from block_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.core import BlockTable, Grade
from zerolayer.decision.grading import Thresholds, chain_grades, grade_blocks, persistence
from zerolayer.errors import SettingError


@pytest.mark.parametrize("values", [(0.1, 0.1, 0.05), (0.05, 0.1, 0.17), (1.2, 0.1, 0.05), (0.2, 0.1, -0.1)])
def test_thresholds_must_fall(values):
    with pytest.raises(SettingError, match="must fall from P0 to P2"):
        Thresholds(*values)


@given(table=tables())
@settings(deadline=None)
def test_persistence_is_a_probability(table):
    value = persistence(table)
    assert value.shape == (len(table),)
    assert ((value >= 0) & (value <= 1)).all()


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [("last_used_turn", 2, 9), ("use_count", 1, 5), ("attention", 0.0, 0.1), ("match", 0.0, 0.8)],
)
def test_more_evidence_means_more_persistent(column, low, high):
    table = BlockTable.create([64] * 2, 2)
    table.turn = 10
    getattr(table, column)[:] = [low, high]
    less, more = persistence(table)
    assert less < more


def test_untouched_blocks_cool_down_as_turns_pass():
    table = BlockTable.create([64], 1)
    grades = []
    for turn in (0, 10, 40):
        table.turn = turn
        grades.append(int(grade_blocks(table).grade[0]))
    assert grades == [Grade.P2, Grade.P3, Grade.P3]


def test_grades_are_cut_at_the_thresholds():
    table = BlockTable.create([64] * 4, 4)
    table.resident[:] = True
    table.turn = 10_000  # the rate of use of a block never used is then almost 0
    table.match[:] = np.array([0.36, 0.24, 0.14, 0.06])  # half of it is the probability
    grading = grade_blocks(table)
    assert grading.grade.tolist() == [0, 1, 2, 3]
    assert "question 0.18" in grading.explain(0)


@given(table=tables(), limit=st.integers(0, 5))
@settings(deadline=None)
def test_only_resident_blocks_become_p0_and_no_more_than_the_limit(table, limit):
    p0 = grade_blocks(table, p0_limit=limit).grade == int(Grade.P0)
    assert p0[table.pinned].all()
    assert int((p0 & ~table.pinned).sum()) <= limit
    assert not (p0 & ~table.resident).any()


@given(table=tables(), data=st.data())
@settings(deadline=None)
def test_floors_only_raise(table, data):
    n = len(table)
    floors = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    grade = grade_blocks(table, floors=floors).grade
    assert (grade <= floors).all()
    assert (grade <= grade_blocks(table).grade).all()


def naive_chain(grade: list[int], parents: list[int]) -> list[int]:
    best = list(grade)
    for block in range(len(grade)):
        ancestor = parents[block]
        while ancestor >= 0:
            best[ancestor] = min(best[ancestor], grade[block])
            ancestor = parents[ancestor]
    return best


@given(st.integers(0, 60), st.integers(0, 10_000))
def test_prefix_is_at_least_its_best_descendant(n, seed):
    rng = np.random.default_rng(seed)
    grade = rng.integers(0, 4, size=n)
    order = rng.permutation(n)  # parents need not come first
    parents = np.full(n, -1, dtype=np.int64)
    for position in range(1, n):
        if rng.random() < 0.9:
            parents[order[position]] = order[rng.integers(max(0, position - 3), position)]
    assert chain_grades(grade, parents).tolist() == naive_chain(grade.tolist(), parents.tolist())


def test_chain_of_a_hundred_thousand():
    grade = np.full(100_000, 3)
    grade[-1] = 0
    assert not chain_grades(grade, np.arange(-1, 99_999)).any()


@pytest.mark.parametrize(
    ("parents", "message"), [([1, 0], "cycle"), ([0, -1], "cycle"), ([2, -1], "from -1"), ([-1], "2 values")]
)
def test_impossible_parents(parents, message):
    with pytest.raises(SettingError, match=message):
        chain_grades(np.array([1, 2]), np.array(parents))
