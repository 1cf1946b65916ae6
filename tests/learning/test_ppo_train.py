"""Training: seeds, the numpy actor against the torch one, the exported file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from window_sessions import recorded

from zerolayer.decision.network import read_policy
from zerolayer.decision.observation import SIZE
from zerolayer.decision.policies.ppo import PpoPolicy
from zerolayer.decision.strategy import ACTION_SIZES, NO_CHANGE
from zerolayer.errors import SettingError, UsageError
from zerolayer.learning.env import WindowEnv
from zerolayer.learning.ppo_export import default_score, export, score, split, trace_hash, train_seeds
from zerolayer.learning.ppo_train import TrainSettings, network_of, train

SESSIONS = [recorded(seed, turns=8) for seed in range(5)]
SHORT = TrainSettings(steps=128, environments=2, rollout_steps=32, batch_size=32, epochs=1)


@pytest.fixture(scope="module")
def candidates():
    return train_seeds(SESSIONS, SHORT, seeds=(0, 1))


def test_one_seed_gives_one_network_and_another_seed_another(candidates):
    fit, _ = split(SESSIONS)
    again = train(fit, SHORT)
    first, second = candidates[0].trained, candidates[1].trained
    assert all(
        np.array_equal(a, b) for a, b in zip(again.network.weights, first.network.weights, strict=True)
    )
    assert again.curve == first.curve
    assert not np.array_equal(first.network.weights[0], second.network.weights[0])


def test_the_curve_has_a_point_for_every_rollout(candidates):
    assert [steps for steps, _ in candidates[0].trained.curve] == [64, 128]
    assert all(np.isfinite(value) for _, value in candidates[0].trained.curve)


def test_numpy_chooses_what_torch_chooses():
    import torch
    from sb3_contrib import MaskablePPO

    env = WindowEnv(SESSIONS)
    how = {"net_arch": [32, 32], "activation_fn": torch.nn.Tanh}
    model = MaskablePPO("MlpPolicy", env, policy_kwargs=how, seed=3, device="cpu")
    network, rng = network_of(model.policy), np.random.default_rng(0)
    for _ in range(20):
        seen = rng.uniform(-1, 1, SIZE).astype(np.float32)
        mask = rng.random(sum(ACTION_SIZES)) < 0.6
        mask[np.cumsum((0, *ACTION_SIZES[:-1]))] = True
        theirs, _ = model.predict(seen, action_masks=mask, deterministic=True)
        assert network.act(seen, mask) == tuple(theirs.tolist())


def test_training_starts_at_the_default_strategy():
    untrained = train(SESSIONS, TrainSettings(**{**SHORT.to_json(), "learning_rate": 1e-12}))
    mask = np.ones(sum(ACTION_SIZES), dtype=np.bool_)
    assert untrained.network.act(np.zeros(SIZE, np.float32), mask) == NO_CHANGE
    assert score(untrained, SESSIONS) == pytest.approx(default_score(SESSIONS), rel=0.2)


def test_the_best_candidate_is_written_with_where_it_comes_from(candidates, tmp_path):
    path = tmp_path / "policy.json"
    export(candidates, SESSIONS, path, "zerolayer policy train --seed 0", SHORT)
    kept, best = read_policy(path), max(candidates, key=lambda candidate: candidate.score)
    fit, _ = split(SESSIONS)
    assert (kept.seed, kept.command) == (best.seed, "zerolayer policy train --seed 0")
    assert kept.traces == tuple(trace_hash(session) for session in fit)
    assert set(kept.notes["curves"]) == set(kept.notes["scores"]) == {"0", "1"}
    seen = np.linspace(-1, 1, SIZE).astype(np.float32)
    assert np.allclose(kept.network.logits(seen), best.trained.network.logits(seen), atol=1e-5)
    assert PpoPolicy(kept.network).name == "ppo"


def test_hashes_tell_sessions_apart():
    assert len({trace_hash(session) for session in SESSIONS}) == len(SESSIONS)
    assert trace_hash(SESSIONS[0]) == trace_hash(recorded(0, turns=8))


def test_a_damaged_or_foreign_file_is_refused(candidates, tmp_path):
    path = tmp_path / "policy.json"
    export(candidates, SESSIONS, path, "", SHORT)
    record = json.loads(path.read_text())
    for change, said in (
        ({"version": 2}, "is no policy of format"),
        ({"fields": ["heat"]}, "reads other fields"),
        ({"biases": [[0.0]]}, "policy network has layers"),
        ({"weights": None}, "is damaged"),
    ):
        path.write_text(json.dumps({**record, **change}))
        with pytest.raises(SettingError, match=said):
            read_policy(path)
    with pytest.raises(SettingError, match="cannot be read as a policy"):
        read_policy(tmp_path / "absent.json")


def test_impossible_settings_are_refused():
    with pytest.raises(SettingError, match="steps is 0"):
        TrainSettings(steps=0)
    with pytest.raises(SettingError, match=r"discount is 1\.0"):
        TrainSettings(discount=1.0)
    with pytest.raises(UsageError, match="2 sessions are too few"):
        split(SESSIONS[:2])
