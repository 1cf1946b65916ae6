"""The fitted imitation: exported trees, features before use, survival by class, and what it brings on real agents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from zerolayer.decision.request_features import REQUEST_FEATURES, BlockHistory
from zerolayer.decision.request_model import RequestModel, shipped_model
from zerolayer.decision.request_policy import Request
from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, SIMPLE_POLICIES
from zerolayer.decision.request_survival import AGE_EDGES, AGES, SurvivalTable
from zerolayer.errors import SettingError, TraceError
from zerolayer.learning.imitation_fit import _boost, _stack, fit_imitation
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.simulate import simulate


def test_exported_trees_score_as_the_fitted_ones() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, len(REQUEST_FEATURES))).astype(np.float32)
    label = features[:, 0] * features[:, 1] + rng.normal(size=3000) > 0
    models = [_boost(features, label.astype(float), (~label).astype(float), seed) for seed in (0, 1)]
    scores = _stack([models[:1], models]).scores(features[:200])
    parts = [model.decision_function(features[:200]) for model in models]
    assert np.allclose(scores[:, 0], parts[0], atol=1e-4)
    assert np.allclose(scores[:, 1], (parts[0] + parts[1]) / 2, atol=1e-4)


def test_features_know_only_the_past_and_no_scale_of_time() -> None:
    slow, fast = BlockHistory(), BlockHistory()
    fast.timescale_s = slow.timescale_s / 60
    chains = [[0, 1, 2], [0, 3], [0, 1, 2, 4], [0, 1, 2, 4, 5]]
    for number, chain in enumerate(chains):
        first = slow.observe(Request(chain, 600.0 * number))
        assert np.allclose(first.features, fast.observe(Request(chain, 10.0 * number)).features, atol=1e-5)
    assert first.ends.tolist() == [
        1,
        3,
        4,
        5,
    ]  # the root, what two requests had, the last one's, the new block
    found = dict(zip(REQUEST_FEATURES, first.features.T.tolist(), strict=True))
    assert found["new"] == [0, 0, 0, 1] and found["last"] == [0, 0, 0, 1]
    assert found["count"][0] == 2.0  # log2(1 + 3 earlier references)
    assert found["turn"] == [2.0] * 4


def test_a_chain_of_one_history_is_one_segment_and_its_last_block() -> None:
    history = BlockHistory()
    assert history.observe(Request(range(50), 0.0)).ends.tolist() == [49, 50]
    assert history.observe(Request(range(50), 9.0)).ends.tolist() == [49, 50]
    assert history.observe(Request([70], 9.5)).ends.tolist() == [1]


def test_survival_learns_when_a_class_returns() -> None:
    table = SurvivalTable(np.full((2, AGES), 0.02), prior_blocks=10)
    latest = np.full(20_000, -1)
    for step in range(2000):
        now, block = step * 0.1, step
        latest[[block, 10_000 + block]] = table.note(np.array([block, 10_000 + block]), np.array([0, 1]), now)
        if step >= 10:  # class 0 returns after one timescale, class 1 never
            table.returned(np.array([0]), np.array([1.0]))
            latest[block - 10] = -2
        if step % 20 == 0:
            table.sweep(now, 1.0, latest.__getitem__)
    bucket = int(np.searchsorted(AGE_EDGES, 1.0, side="right")) - 1
    assert table.hazard()[0, bucket] > 0.5
    assert table.hazard()[1, bucket] < 0.01
    assert table.density[0, 0] > 10 * table.density[1, 0]


def test_the_shipped_file_says_where_it_comes_from() -> None:
    model = shipped_model()
    assert len(model.trained_on) == 64 and model.command.startswith("zerolayer policy fit")
    again = RequestModel.from_json(json.loads(json.dumps(model.to_json())))
    features = np.zeros((3, len(REQUEST_FEATURES)), dtype=np.float32)
    assert np.array_equal(again.classify(features), model.classify(features))
    with pytest.raises(SettingError, match="fit it again"):
        RequestModel.from_json({"features": ["age"]})


def test_nothing_that_returns_is_nothing_to_fit() -> None:
    pytest.importorskip("sklearn")
    trace = RequestTrace.build(range(40), range(0, 41, 4), range(10), block_tokens=64, source="once")
    with pytest.raises(TraceError, match="nothing to fit"):
        fit_imitation(trace)


@pytest.mark.data
def test_agent_sessions_are_served_no_worse_than_by_any_simple_policy(shared_data: Path) -> None:
    """The shipped model was fitted to people's conversations; these are agents'."""
    from zerolayer.learning.trace_files import load_trace

    trace = load_trace(shared_data / "agent_traces" / "taubench")
    assert isinstance(trace, RequestTrace)
    for share in (0.01, 0.02, 0.05, 0.1):
        capacity = round(share * len(np.unique(trace.blocks)))
        best = max(simulate(trace, name, capacity).hits for name in SIMPLE_POLICIES)
        assert simulate(trace, DEFAULT_REQUEST_POLICY, capacity).hits >= best, share
