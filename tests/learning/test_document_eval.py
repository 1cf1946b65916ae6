"""The table of policies on documents: sums, intervals and bars."""

from __future__ import annotations

import pytest
from window_sessions import recorded

from zerolayer.errors import UnknownNameError, UsageError
from zerolayer.learning.document_eval import evaluate_documents
from zerolayer.learning.env import capacity_of
from zerolayer.learning.replay import replay

SESSIONS = [recorded(seed, noise=0.3) for seed in range(4)]


@pytest.fixture(scope="module")
def report():
    return evaluate_documents(SESSIONS, ("graded", "lru", "optimal"), (0.1, 0.25))


def test_numbers_are_sums_over_sessions(report):
    capacity = capacity_of(120, 0.25)
    results = [replay(s.trace, "graded", capacity, features=s.features) for s in SESSIONS]
    best = [replay(s.trace, "optimal", capacity).loads for s in SESSIONS]
    row = report["budgets"]["25%"]["graded"]
    loads = sum(result.loads for result in results)
    assert row["loads"] == loads
    assert row["load_ratio"] == pytest.approx(loads / sum(best), abs=1e-4)
    wasted = sum(result.wasted_load_count for result in results)
    assert row["wasted_loads"] == pytest.approx(wasted / loads, abs=1e-4)


def test_the_optimum_is_the_yardstick(report):
    for table in report["budgets"].values():
        assert table["optimal"]["load_ratio"] == 1.0
        assert table["optimal"]["coverage"] == 1.0
        assert table["lru"]["coverage"] < table["graded"]["coverage"]


def test_waste_is_shown_at_coverage_only_and_intervals_hold_their_point(report):
    for table in report["budgets"].values():
        for row in table.values():
            covered = row["coverage"] >= 0.95
            assert (row["waste_at_coverage"] is not None) == covered
            assert not row["meets_bar"] or covered
            for name, (low, high) in row["interval"].items():
                assert low - 1e-4 <= row[name] <= high + 1e-4


def test_the_same_seed_gives_the_same_table(report):
    again = evaluate_documents(SESSIONS, ("graded", "lru", "optimal"), (0.1, 0.25))
    for table in (*again["budgets"].values(), *report["budgets"].values()):
        for row in table.values():
            row.pop("ms_per_turn", None)
    assert again == report


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(UnknownNameError, match="unknown policy 'clever'"):
        evaluate_documents(SESSIONS, ("clever",), (0.1,))
    with pytest.raises(UsageError, match="no session exceeds a device of 5%"):
        evaluate_documents([], ("graded",))
