"""Presets: three visibly different ways to run the same session."""

from __future__ import annotations

import pytest
from window_sessions import recorded

from zerolayer.decision.presets import PRESETS, get_preset
from zerolayer.errors import UnknownNameError
from zerolayer.learning.env import EnvSettings, WindowEnv
from zerolayer.learning.replay import replay
from zerolayer.learning.rollout import always, play

SESSION = recorded(5, num_blocks=400, turns=30, noise=0.3)


def run(name, share=None):
    preset = get_preset(name)
    env = WindowEnv([SESSION], EnvSettings(weights=preset.weights))
    return play(env, always(preset.action), 0, share or preset.device_share)


def test_presets_differ_visibly_on_the_same_run():
    fast, even, small = (run(name) for name in ("low_latency", "balanced", "memory_efficient"))
    assert fast.device_mb > 1.5 * even.device_mb > 1.5 * 1.5 * small.device_mb
    assert fast.p0_latency_ms < even.p0_latency_ms
    assert fast.answer_proxy > even.answer_proxy > small.answer_proxy


def test_presets_differ_by_more_than_their_budget():
    fast, even, small = (run(name, 0.1) for name in ("low_latency", "balanced", "memory_efficient"))
    assert fast.device_mb >= even.device_mb > small.device_mb
    assert fast.loads > even.loads > small.loads
    assert fast.wasted_loads > even.wasted_loads > small.wasted_loads


def test_balanced_is_the_graded_policy_with_the_documented_weights():
    preset = get_preset("balanced")
    ours, theirs = replay(SESSION.trace, preset.policy(), 40), replay(SESSION.trace, "graded", 40)
    assert (ours.loads, ours.coverage, ours.evictions) == (theirs.loads, theirs.coverage, theirs.evictions)
    assert (preset.weights.device_mb, preset.weights.wrong_eviction_token) == (-0.3, -2.0)


def test_each_preset_is_better_than_the_opposite_one_by_its_own_weights():
    def worth(name, judge):
        env = WindowEnv([SESSION], EnvSettings(weights=get_preset(judge).weights))
        preset = get_preset(name)
        return play(env, always(preset.action), 0, preset.device_share).total_reward

    assert worth("memory_efficient", "memory_efficient") > worth("low_latency", "memory_efficient")


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="balanced, low_latency, memory_efficient"):
        get_preset("fast")
    assert all(name == preset.name for name, preset in PRESETS.items())
