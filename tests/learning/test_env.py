"""The environment: the checker's contract, seeds, masks, ends, and the same numbers as a replay."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from window_sessions import recorded

from zerolayer.decision.observation import FIELDS
from zerolayer.decision.reward import RewardWeights, reward
from zerolayer.decision.strategy import ACTION_FIELDS, ACTION_SIZES, NO_CHANGE
from zerolayer.errors import SettingError, UsageError
from zerolayer.learning.costs import TierCosts, measured
from zerolayer.learning.env import EnvSettings, WindowEnv, capacity_of
from zerolayer.learning.replay import replay

SESSIONS = [recorded(seed) for seed in range(3)]


def episode(env, action=None, seed=0, **options):
    """Observations, rewards and infos of one episode; random valid actions without `action`."""
    rng = np.random.default_rng(seed)
    seen, _ = env.reset(seed=seed, options=options or None)
    steps, over = [], False
    while not over:
        chosen = action if action is not None else sampled(env.action_masks(), rng)
        nxt, earned, terminated, truncated, info = env.step(np.asarray(chosen))
        steps.append((seen, earned, terminated, truncated, info))
        seen, over = nxt, terminated or truncated
    return steps


def sampled(mask, rng):
    parts = np.split(mask, np.cumsum(ACTION_SIZES)[:-1])
    return [int(rng.choice(np.flatnonzero(part))) for part in parts]


def test_gymnasium_finds_nothing_to_complain_of():
    spec = gymnasium.envs.registration.EnvSpec(
        "zerolayer/Window-v0", entry_point=WindowEnv, kwargs={"sessions": SESSIONS}
    )
    check_env(gymnasium.make(spec).unwrapped)  # warnings are errors


def test_one_seed_gives_one_episode():
    first, second = episode(WindowEnv(SESSIONS), seed=7), episode(WindowEnv(SESSIONS), seed=7)
    assert [step[1] for step in first] == [step[1] for step in second]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, second, strict=True))
    assert [step[1] for step in episode(WindowEnv(SESSIONS), seed=8)] != [step[1] for step in first]


def test_without_a_change_of_strategy_it_is_the_replay_of_the_graded_policy():
    env = WindowEnv(SESSIONS)
    episode(env, NO_CHANGE, session=1, share=0.25)
    ours = env.simulation.result()
    theirs = replay(SESSIONS[1].trace, "graded", capacity_of(120, 0.25))
    names = ("loads", "faults", "evictions", "wrong_evictions", "wasted_load_count", "coverage")
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]


def test_rewards_of_an_episode_add_up_to_the_books():
    env = WindowEnv(SESSIONS)
    steps = episode(env, session=0, share=0.25)
    ledger, width = env.simulation.ledger, 64
    outcomes = [step[4]["outcome"] for step in steps]
    assert sum(outcome.over_prefetched_tokens for outcome in outcomes) == ledger.wasted * width > 0
    assert sum(outcome.wrong_eviction_tokens for outcome in outcomes) == ledger.wrong * width
    assert all(step[1] == pytest.approx(reward(step[4]["outcome"]).total) for step in steps)
    assert ledger.discarded_tokens == 0


def test_a_cut_session_is_truncated_and_a_finished_one_terminated():
    cut = WindowEnv(SESSIONS, EnvSettings(max_turns=5))
    assert [step[2:4] for step in episode(cut)] == [(False, False)] * 4 + [(False, True)]
    whole = [step[2:4] for step in episode(WindowEnv(SESSIONS))]
    assert whole == [(False, False)] * 24 + [(True, False)]
    exact = WindowEnv(SESSIONS, EnvSettings(max_turns=25))
    assert episode(exact)[-1][2:4] == (True, False)  # both at once: it is over


def test_the_codec_can_be_chosen_before_anything_is_written_and_not_later():
    env = WindowEnv(SESSIONS)
    env.reset(seed=0)
    codec = slice(sum(ACTION_SIZES) - ACTION_SIZES[-1], None)
    assert env.action_masks()[codec].all()
    action = np.array([0, 0, 0, 0, 1])
    assert not env.step(action)[4]["invalid"]
    assert env.action_masks()[codec].tolist() == [False, True, False]
    info = env.step(np.array([0, 0, 0, 0, 2]))[4]
    assert info["invalid"]
    assert env.policy.strategy.codec == "INT8"


def test_a_watermark_below_what_is_locked_is_masked():
    env = WindowEnv(SESSIONS)
    env.reset(seed=0, options={"session": 0, "share": 0.25})
    env.simulation.table.pinned[:] = env.simulation.table.resident
    marks = env.action_masks()[: ACTION_SIZES[0]]
    assert marks.tolist() == [True, False, False, False, False]


def test_lower_watermarks_hold_less_memory_and_random_actions_break_no_law():
    def held(action):
        steps = episode(WindowEnv(SESSIONS), action, session=0, share=0.25)
        return np.mean([step[4]["outcome"].device_mb for step in steps])

    assert held([4, 0, 0, 0, 0]) < 0.75 * held(NO_CHANGE)
    for seed in range(4):
        env = WindowEnv(SESSIONS)
        for seen, earned, *_ in episode(env, seed=seed):
            assert env.observation_space.contains(seen)
            assert np.isfinite(earned)
        table = env.simulation.table
        assert table.resident_count <= table.capacity
        assert table.resident[table.pinned].all()


def test_actions_and_observations_have_one_name_each():
    env = WindowEnv(SESSIONS)
    assert env.observation_space.shape == (len(FIELDS),)
    assert len(set(FIELDS)) == len(FIELDS)
    assert len(ACTION_FIELDS) == len(ACTION_SIZES) == len(env.action_space.nvec)
    assert isinstance(env, gymnasium.Env)


def test_weights_change_the_reward_and_not_what_happens():
    plain = episode(WindowEnv(SESSIONS), NO_CHANGE, session=0, share=0.1)
    dear = WindowEnv(SESSIONS, EnvSettings(weights=RewardWeights(device_mb=-3.0)))
    dearer = episode(dear, NO_CHANGE, session=0, share=0.1)
    assert [a[4]["outcome"] for a in plain] == [b[4]["outcome"] for b in dearer]
    assert sum(b[1] for b in dearer) < sum(a[1] for a in plain)


def test_slower_stores_mean_slower_access():
    costs = TierCosts()
    assert costs.load_ms(100, 64, "BF16Z") > costs.load_ms(100, 64, "K8V4")
    spilled = TierCosts(host_budget_bytes=1e6)
    assert spilled.load_ms(100, 64, "K8V4") > costs.load_ms(100, 64, "K8V4")
    assert spilled.pressures(100, 64, "K8V4")[0] > 1.0
    with pytest.raises(SettingError, match="host_bytes_per_s is 0"):
        TierCosts(host_bytes_per_s=0)


def test_a_machine_measures_its_own_costs():
    costs = measured(repeats=1)
    assert set(costs.codecs) == {"K8V4", "INT8", "BF16Z"}
    assert 0.3 < costs.codecs["K8V4"].ratio < costs.codecs["INT8"].ratio < 0.7
    assert costs.codecs["BF16Z"].error < 0.01
    assert costs.host_bytes_per_s > 1e8


def test_sessions_that_fit_any_device_are_refused():
    with pytest.raises(UsageError, match="no session of over 10 blocks"):
        WindowEnv([])
