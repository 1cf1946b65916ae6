"""Replay against numbers known by hand, and the laws that hold for any policy and trace."""

from __future__ import annotations

import numpy as np
import pytest
from demand_traces import random_trace, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.decision.registry import POLICIES, create_policy
from zerolayer.errors import BudgetError, UnknownNameError, VerificationError
from zerolayer.learning.ledger import Ledger
from zerolayer.learning.replay import operating_point, replay, replay_all

everyone = [*sorted(POLICIES), "optimal"]


def test_static_window_loads_two_pages_and_wastes_all_but_one_block():
    # On the device: the sink and blocks 61 to 99 of 100. Block 20 lies in page 1, blocks 16 to 31.
    result = replay(trace_of([[20]], 100), "static-window", 40, reserve_blocks=0)
    assert (result.loads, result.faults, result.fault_blocks) == (32, 1, 32)  # pages 1 and 2
    assert result.evictions == 32
    assert result.wasted_load_count == 31
    assert result.wasted_loads == 31 / 32
    assert (result.coverage, result.waste_at_coverage) == (0.0, None)
    assert result.load_ratio == 32


def test_a_neighbour_that_a_later_turn_uses_is_not_waste():
    result = replay(trace_of([[20], [21], [40]], 100), "static-window", 40, reserve_blocks=0)
    assert (result.loads, result.wasted_load_count) == (32, 29)
    assert result.coverage == 2 / 3


def test_lru_by_hand():
    # Room for the sink and two blocks; 8 and 9 are there after reading.
    result = replay(trace_of([[8], [1], [8], [9]], 10), "lru", 3, reserve_blocks=0)
    assert (result.loads, result.evictions, result.faults) == (2, 2, 2)  # 1 for 9, later 9 for 1
    assert result.wrong_evictions == 0  # 9 is needed again, but later than 8, which stayed
    assert result.coverage == 0.5
    assert result.load_ratio == 1.0


def test_wrong_eviction_needs_a_better_victim():
    # 8 is the oldest and needed in turn 1; 9 is never needed: evicting 8 was wrong.
    assert replay(trace_of([[1], [8]], 10), "lru", 3, reserve_blocks=0).wrong_evictions == 1
    # Both are needed, 8 later: evicting 8 was right.
    assert replay(trace_of([[1], [9], [8]], 10), "lru", 3, reserve_blocks=0).wrong_evictions == 0
    # Needed again, but more than 10 turns later.
    far = [[1]] * 11 + [[8]]
    assert replay(trace_of(far, 10), "lru", 3, reserve_blocks=0).wrong_evictions == 0
    near = [[1]] * 10 + [[8]]
    assert replay(trace_of(near, 10), "lru", 3, reserve_blocks=0).wrong_evictions == 1


def test_graded_with_a_perfect_match_covers_without_waste():
    trace = random_trace(3, noise=0.0)
    result = replay(trace, "graded", 30)
    assert result.coverage == 1.0
    assert result.waste_at_coverage == 0.0
    assert result.faults == 0
    assert result.effective_context_utilization == pytest.approx(1.0)


def test_utilisation_and_evidence_are_taken_when_the_answer_begins():
    trace = trace_of([[9, 1], [1, 2]], 10, gold=[(9,), (1, 2, 3)])
    result = replay(trace, "lru", 5, reserve_blocks=0)
    assert result.effective_context_utilization == pytest.approx(0.5)  # 9 of (9, 1), then 1 of (1, 2)
    assert result.evidence_coverage == 2 / 4
    assert replay(trace_of([[1]], 10), "lru", 6).evidence_coverage is None


def test_optimal_streams_a_turn_that_does_not_fit():
    result = replay(trace_of([[1, 2, 3, 4]], 10), "optimal", 3, reserve_blocks=0)
    assert (result.loads, result.faults, result.coverage) == (4, 4, 0.0)


def test_reserve_stays_free_during_the_answer():
    trace = random_trace(1)
    for result in replay_all(trace, 30, reserve_blocks=10).values():
        assert result.peak_resident_blocks == 30  # after reading, before the first question
    ledger = Ledger(trace, 30, 10)
    assert ledger.table.free == 0 and ledger.table.resident_count == 30


@pytest.mark.parametrize("name", everyone)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1000), capacity=st.integers(8, 60))
def test_laws_of_a_replay(name, seed, capacity):
    trace = random_trace(seed, turns=12)
    result = replay(trace, name, capacity)
    assert result == replay(trace, name, capacity), "two runs with one seed are identical"
    assert result.peak_resident_blocks <= capacity
    assert result.discarded_tokens == 0
    assert result.recalled_blocks + result.fault_blocks == result.loads
    assert result.used_block_turns == 12 * 6
    assert result.coverage == pytest.approx(1 - result.faults / result.used_block_turns)
    assert 0 <= result.wasted_load_count <= result.loads
    assert 0 <= result.wrong_evictions <= result.evictions
    assert (result.waste_at_coverage is None) == (result.coverage < 0.95)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), capacity=st.integers(7, 60), used=st.integers(1, 14))
def test_optimal_loads_no_more_than_lru(seed, capacity, used):
    results = replay_all(random_trace(seed, turns=15, used=used), capacity, ("lru", "optimal"))
    assert results["optimal"].loads <= results["lru"].loads
    assert results["optimal"].wrong_evictions == 0
    assert results["optimal"].wasted_load_count == 0


def test_replay_all_equals_single_replays():
    trace = random_trace(5)
    results = replay_all(trace, 30)
    assert list(results) == ["graded", "static-window", "lru", "optimal"]
    for name, result in results.items():
        assert result == replay(trace, name, 30)
    assert results["optimal"].load_ratio == 1.0


def test_replay_takes_a_policy_object():
    trace = random_trace(5)
    assert replay(trace, create_policy("lru"), 30) == replay(trace, "lru", 30)


def test_operating_point_has_the_least_waste_at_the_target():
    trace = random_trace(7, turns=30, noise=0.35)
    point = operating_point(trace, 60)
    assert point.reached and point.result.coverage >= 0.95
    adapting = replay(trace, "graded", 60)
    if adapting.waste_at_coverage is not None:
        assert point.result.wasted_loads <= adapting.waste_at_coverage


def test_operating_point_out_of_reach():
    trace = trace_of([[3, 4, 5], [6, 7, 8]], 10)  # the match says nothing
    point = operating_point(trace, 4, reserve_blocks=0)
    assert not point.reached
    assert point.result.coverage < 0.95


def test_no_turns_and_no_loads():
    result = replay(trace_of([], 10), "lru", 6)
    assert (result.coverage, result.wasted_loads, result.load_ratio) == (1.0, 0.0, 1.0)


def test_document_smaller_than_the_device():
    for result in replay_all(random_trace(2, num_blocks=20), 64).values():
        assert (result.coverage, result.loads, result.evictions) == (1.0, 0, 0)


def test_device_too_small():
    with pytest.raises(BudgetError, match="1 sink blocks, a reserve of 4 and one more; use at least 6"):
        replay(random_trace(0), "lru", 5)
    with pytest.raises(UnknownNameError, match="unknown policy 'fifo'"):
        replay(random_trace(0), "fifo", 20)


def test_ledger_refuses_to_break_a_law():
    ledger = Ledger(trace_of([[1]], 10), 4, 0)
    before = ledger.table.resident.copy()
    for evict, load, message in [
        ([0], [], "evicts block 0, which is absent or pinned"),
        ([2], [], "evicts block 2"),
        ([], [9], "loads block 9, which is resident"),
        ([], [1], "overruns the capacity of 4"),
        ([9, 9], [1], "names a block twice"),
    ]:
        with pytest.raises(VerificationError, match=message):
            ledger.apply(evict, load)
        assert np.array_equal(ledger.table.resident, before)


def test_discarded_tokens_are_computed_not_assumed():
    ledger = Ledger(trace_of([[1]], 10), 4, 0)
    ledger.stored[9] = False  # had write-behind not happened
    ledger.apply([9], [])
    assert ledger.discarded_tokens == 64
