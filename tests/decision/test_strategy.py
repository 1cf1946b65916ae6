"""Strategies, their actions, and what a policy observes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from block_tables import tables
from hypothesis import given

from zerolayer.core import BlockTable, Grade
from zerolayer.decision import observation
from zerolayer.decision.policies.strategic import StrategicPolicy
from zerolayer.decision.policy import evictable
from zerolayer.decision.strategy import (
    ACTION_SIZES,
    NO_CHANGE,
    Watermarks,
    WindowStrategy,
    action_mask,
    plan_watermark,
    strategy_of,
    valid_action,
)
from zerolayer.errors import SettingError


def test_the_action_of_zeros_is_the_default_strategy():
    assert strategy_of(NO_CHANGE) == WindowStrategy()


def test_every_action_names_a_strategy_and_no_two_the_same_one():
    named = {strategy_of(action) for action in np.ndindex(*ACTION_SIZES)}
    assert len(named) == np.prod(ACTION_SIZES)


@pytest.mark.parametrize("action", [(5, 0, 0, 0, 0), (0, 0, 0, 0), (-1, 0, 0, 0, 0)])
def test_an_action_out_of_range_is_refused(action):
    with pytest.raises(SettingError, match="is out of range; indices lie below"):
        strategy_of(action)


def test_impossible_strategies_are_refused():
    with pytest.raises(SettingError, match=r"low=0\.9 high=0\.5"):
        Watermarks(0.9, 0.5)
    with pytest.raises(SettingError, match="recall_factor is 0"):
        WindowStrategy(recall_factor=0.0)
    with pytest.raises(SettingError, match="prefetch_blocks is -1"):
        WindowStrategy(prefetch_blocks=-1)


@given(tables())
def test_masks_leave_every_field_a_choice_and_invalid_actions_become_valid(table):
    for codec in (None, "INT8", "ZSTD"):
        mask = action_mask(table, codec)
        worst = valid_action([size - 1 for size in ACTION_SIZES], mask)
        for part, index in zip(np.split(mask, np.cumsum(ACTION_SIZES)[:-1]), worst, strict=True):
            assert part[index]
        assert valid_action(worst, mask) == worst


@given(tables())
def test_watermarks_evict_only_what_may_leave_and_no_further_than_asked(table):
    marks = Watermarks(0.3, 0.5)
    plan = plan_watermark(StrategicPolicy(), table, marks)
    assert evictable(table)[list(plan.evict)].all()
    assert not plan.load
    left = table.resident_count - len(plan.evict)
    if table.resident_count <= 0.5 * table.capacity:
        assert not plan.evict
    else:
        assert left >= min(0.3 * table.capacity, table.resident_count)
        assert left <= max(np.ceil(0.3 * table.capacity), table.resident_count - evictable(table).sum())


@given(tables())
def test_an_observation_is_finite_and_within_its_bounds(table):
    seen = observation.observe(table, observation.History())
    assert seen.shape == (observation.SIZE,)
    assert seen.dtype == np.float32
    assert np.isfinite(seen).all()
    assert (seen >= observation.LOW).all()
    assert (seen <= observation.HIGH).all()


def test_an_observation_says_what_its_names_say():
    table = BlockTable.create([64] * 20, 10)
    table.resident[:8] = True
    table.pinned[0] = True
    table.grade[:2] = int(Grade.P0)
    table.match[[0, 15]] = 0.5
    table.attention[[1, 12]] = [3.0, 1.0]
    history = observation.History()
    history.end_turn(table, [1, 12, 13, 14], covered=1, recalled=5, loads=8)
    seen = dict(zip(observation.FIELDS, observation.observe(table, history).tolist(), strict=True))
    assert seen["pressure_device"] == pytest.approx(0.8)
    assert seen["pressure_locked"] == pytest.approx(0.2)
    assert seen["heat_resident"] == pytest.approx(0.75)
    assert seen["heat_concentration"] == pytest.approx(1.0)
    assert seen["match_resident"] == pytest.approx(0.5)
    assert seen["intent_entropy"] == pytest.approx(np.log(2) / np.log(20), abs=1e-5)
    assert seen["grade_p0"] == pytest.approx(0.1)
    assert seen["last_coverage"] == pytest.approx(0.25)
    assert seen["last_recall"] == pytest.approx(0.5)


def test_observing_a_thousand_blocks_costs_microseconds():
    table, history = BlockTable.create([64] * 1000, 100), observation.History()
    table.match[:] = 0.5
    times = []
    for _ in range(300):
        started = time.perf_counter()
        observation.observe(table, history)
        times.append(time.perf_counter() - started)
    assert np.median(times) < 200e-6  # 20 µs measured; a busy machine is slower
