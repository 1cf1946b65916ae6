"""The table of policies on documents: sums, intervals and bars."""

from __future__ import annotations

import pytest
from window_sessions import recorded

from zerolayer.errors import UnknownNameError, UsageError
from zerolayer.learning.document_eval import evaluate_documents, live_policy
from zerolayer.learning.env import capacity_of
from zerolayer.learning.replay import replay

SESSIONS = [recorded(seed, noise=0.3) for seed in range(4)]


NAMES = ("graded", "lru", "sparing", "order-blind", "optimal")


@pytest.fixture(scope="module")
def report():
    return evaluate_documents(SESSIONS, NAMES, (0.1, 0.25))


def test_numbers_are_sums_over_sessions(report):
    capacity = capacity_of(120, 0.25)
    results = [replay(s.trace, live_policy("graded", s), capacity, features=s.features) for s in SESSIONS]
    best = [replay(s.trace, "optimal", capacity).loads for s in SESSIONS]
    row = report["policies"]["graded"]["25%"]
    assert report["default"]["25%"] == row
    loads = sum(result.loads for result in results)
    assert row["loads"] == loads
    assert row["load_ratio"] == pytest.approx(loads / sum(best), abs=1e-4)
    wasted = sum(result.wasted_load_count for result in results)
    assert row["wasted_loads"] == pytest.approx(wasted / loads, abs=1e-4)


def test_the_optimum_is_the_yardstick(report):
    for budget in ("10%", "25%"):
        table = {name: rows[budget] for name, rows in report["policies"].items()}
        assert table["optimal"]["load_ratio"] == 1.0
        assert table["optimal"]["coverage"] == 1.0
        assert table["optimal"]["wrong_evictions"] == 0
        assert table["lru"]["coverage"] < table["graded"]["coverage"]
        assert table["order-blind"]["load_ratio"] < table["lru"]["load_ratio"]
        assert table["sparing"]["load_ratio"] < table["graded"]["load_ratio"]


def test_waste_is_shown_at_coverage_only_and_intervals_hold_their_point(report):
    for table in report["policies"].values():
        for row in table.values():
            covered = row["coverage"] >= 0.95
            assert (row["waste_at_coverage"] is not None) == covered
            assert row["meets_load_ratio"] == (row["load_ratio"] <= 1.3)
            for name, (low, high) in row["interval"].items():
                assert low - 1e-4 <= row[name] <= high + 1e-4


def test_the_same_seed_gives_the_same_table(report):
    again = evaluate_documents(SESSIONS, NAMES, (0.1, 0.25))
    for table in (*again["policies"].values(), *report["policies"].values()):
        for row in table.values():
            row.pop("turn_ms", None)
    assert again["policies"] == report["policies"]


def test_the_reward_is_reported_by_term(report):
    row = report["policies"]["graded"]["10%"]
    assert row["reward"] == pytest.approx(sum(row["reward_terms"].values()), abs=0.05)
    assert row["reward_terms"]["wrong_eviction"] <= 0 <= row["reward_terms"]["answer"]
    assert "reward" not in report["policies"]["optimal"]["10%"]


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(UnknownNameError, match="unknown policy 'clever'"):
        evaluate_documents(SESSIONS, ("clever",), (0.1,))
    with pytest.raises(UsageError, match="no session exceeds a device of 5%"):
        evaluate_documents([], ("graded",))
