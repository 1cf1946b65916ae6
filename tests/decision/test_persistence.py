"""The calibrated model: features, ranks, files, speed; and the drift of what it predicts."""

from __future__ import annotations

import time

import numpy as np
import pytest
from block_tables import tables
from hypothesis import given, settings

from zerolayer.core import BLOCK_FEATURES, BlockTable, Grade
from zerolayer.decision import planner
from zerolayer.decision.drift import Drift
from zerolayer.decision.grading import Thresholds, grade_blocks
from zerolayer.decision.persistence import (
    FEATURES,
    SIGNALS,
    TURN_FEATURES,
    PersistenceModel,
    all_features,
    turn_features,
)
from zerolayer.decision.policies.graded import GradedPolicy
from zerolayer.decision.policies.lru import LruPolicy
from zerolayer.decision.policy import GradingPolicy
from zerolayer.errors import SettingError


def model_of(bias=-2.0, **weights) -> PersistenceModel:
    n = len(FEATURES)
    weight = np.zeros(n, dtype=np.float32)
    for name, value in weights.items():
        weight[FEATURES.index(name)] = value
    x = np.linspace(-8, 8, 41)
    knots = np.stack([x, 1 / (1 + np.exp(-x))], axis=1).astype(np.float32)
    return PersistenceModel(
        "en", "", "synthetic", np.zeros(n, np.float32), np.ones(n, np.float32), weight, bias, knots
    )


def test_signals_are_the_features():
    assert sorted(name for names in SIGNALS.values() for name in names) == sorted(FEATURES)
    assert len(set(FEATURES)) == len(FEATURES)


@given(table=tables())
@settings(deadline=None)
def test_probability_for_any_table(table):
    model = model_of(recency=2.0, match=1.0, position=1.0, session_rate=0.3)
    value = model.probability(table)
    assert value.shape == (len(table),)
    assert ((value >= 0) & (value <= 1)).all()
    parts = model.contributions(all_features(table))
    total = sum(parts.values(), np.full(len(table), model.bias))
    np.testing.assert_allclose(total, model.log_odds(all_features(table)), atol=1e-4)


def test_features_follow_the_session():
    table = BlockTable.create([64] * 5, 5)
    policy = LruPolicy()
    for used, match in (([1], 1), ([1, 3], 3), ([3], 2)):
        table.match[match] = 1.0
        seen = []

        def end_turn(table, used, mass, seen=seen):
            seen.append(turn_features(table))

        policy.end_turn = end_turn
        mass = np.zeros(5, dtype=np.float32)
        mass[used] = 1.0 / len(used)
        planner.end_turn(policy, table, used, mass)
    (last,) = seen
    column = TURN_FEATURES.index
    assert last[:, column("used_last")].tolist() == [0, 0, 0, 1, 0]
    np.testing.assert_allclose(last[:, column("use_rate")], [0, 2 / 3, 0, 2 / 3, 0], rtol=1e-6)
    assert last[2, column("neighbours")] == pytest.approx(2 / 3)
    assert last[:, column("match_rank")].tolist() == [0, 0, 1, 0, 0]
    assert last[1, column("best_match")] == last[3, column("best_match")] == 1
    assert last[3, column("recency")] > last[1, column("recency")] > last[0, column("recency")]


def test_unknown_features_count_as_the_mean():
    table = BlockTable.create([64] * 2, 2)
    table.features[1, BLOCK_FEATURES.index("dispersion")] = 0.0  # the mean of the model
    first, second = model_of(dispersion=3.0).probability(table)
    assert first == second


def test_file_round_trip():
    model = model_of(match=1.25, amount=-0.5)
    again = PersistenceModel.from_json(model.to_json())
    table = BlockTable.create([64] * 4, 4)
    table.match[:] = [0, 0.2, 0.7, 1]
    np.testing.assert_allclose(again.probability(table), model.probability(table), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"features": {"luck": [0, 1, 1]}}, "damaged"),
        ({"features": {"match": [0, 0, 1]}}, "damaged"),
        ({"knots": []}, "damaged"),
        ({"knots": [[0, 0.5], [1, 0.2]]}, "damaged"),
        ({"knots": [[0, 0.5], [1, 1.2]]}, "damaged"),
        ({"bias": "much"}, "damaged"),
    ],
)
def test_other_files_are_refused(change, message):
    with pytest.raises(SettingError, match=message):
        PersistenceModel.from_json({**model_of(match=1.0).to_json(), **change})


def test_a_thousand_blocks_in_a_millisecond():
    table = BlockTable.create([64] * 1000, 100)
    table.match[:] = np.random.default_rng(0).random(1000)
    model = model_of(match=1.0, recency=1.0, position=0.1)
    times = []
    for _ in range(30):
        started = time.perf_counter()
        model.probability(table)
        times.append(time.perf_counter() - started)
    assert min(times) < 1e-3


def test_grades_and_reasons_of_a_model():
    table = BlockTable.create([64] * 3, 3)
    table.resident[:] = True
    table.match[:] = [1.0, 0.5, 0.0]
    grading = grade_blocks(table, model=model_of(bias=-4.0, match=3.5, match_rank=-0.1))
    np.testing.assert_allclose(grading.persistence, [0.354, 0.091, 0.018], atol=0.01)
    assert grading.grade.tolist() == [Grade.P0, Grade.P2, Grade.P3]
    assert "calibrated; log-odds question +3.40" in grading.explain(0)


def test_a_policy_takes_a_model_and_gives_it_back():
    policy = GradedPolicy()
    assert isinstance(policy, GradingPolicy) and not isinstance(LruPolicy(), GradingPolicy)
    table = BlockTable.create([64] * 4, 4)
    table.resident[:] = True
    mass = np.zeros(4, dtype=np.float32)
    policy.use_persistence(model_of(bias=4.0))
    planner.end_turn(policy, table, [], mass)
    assert "calibrated" in policy.explain(2)
    policy.use_persistence(None)
    planner.end_turn(policy, table, [], mass)
    assert "recency" in policy.explain(2) and "calibrated" not in policy.explain(2)


def test_thresholds_move_in_a_running_session():
    policy, table = GradedPolicy(), BlockTable.create([64] * 4, 4)
    policy.set_thresholds(table, Thresholds())  # before anything is graded
    assert policy.grading is None
    policy.use_persistence(model_of(bias=-2.0))  # 0.12
    planner.end_turn(policy, table, [], np.zeros(4, dtype=np.float32))
    assert set(table.grade.tolist()) == {Grade.P1}
    policy.set_thresholds(table, Thresholds(0.9, 0.5, 0.2))
    assert set(table.grade.tolist()) == {Grade.P3}
    policy.set_thresholds(table, Thresholds(0.9, 0.5, 0.1))
    assert set(table.grade.tolist()) == {Grade.P2}
    assert "P1 from 0.5" in policy.explain(0)


def simulate(predicted, rate, turns=60, blocks=400, seed=0):
    rng, drift = np.random.default_rng(seed), Drift(10)
    for _ in range(turns):
        drift.update(np.full(blocks, predicted, dtype=np.float32), rng.random(blocks) < rate)
    return drift.value


def test_drift_is_zero_for_right_predictions_and_signed_for_wrong_ones():
    rate = 0.02
    right = 1 - (1 - rate) ** 10
    assert simulate(right, rate) == pytest.approx(0, abs=0.02)
    assert simulate(0.5, rate) == pytest.approx(0.5 - right, abs=0.03)
    assert simulate(0.0, rate) == pytest.approx(-right, abs=0.03)
    assert simulate(right, rate, turns=3) == pytest.approx(0, abs=0.02)  # before a whole horizon has passed


def test_drift_survives_a_growing_stream():
    drift = Drift(10)
    drift.update(np.zeros(3, np.float32), np.zeros(3, np.bool_))
    drift.update(np.zeros(5, np.float32), np.ones(5, np.bool_))
    assert drift.value == 0
    drift.update(np.zeros(5, np.float32), np.ones(5, np.bool_))
    assert drift.value == -1
