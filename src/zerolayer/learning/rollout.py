"""Plays whole sessions of the environment by one chooser of strategies, and sums up what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import BoolArray, FloatArray
from zerolayer.decision.reward import TurnOutcome
from zerolayer.learning.env import WindowEnv

Chooser = Callable[[FloatArray, BoolArray], Sequence[int]]
"""The action for an observation and the mask of valid indices."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session under one chooser. Means are over turns; names and units as in metrics.py and reward.py."""

    document: str
    share: float
    turns: int
    total_reward: float
    device_mb: float
    answer_proxy: float
    p0_latency_ms: float
    coverage: float
    used_block_turns: int
    loads: int
    wasted_loads: int
    evictions: int
    wrong_evictions: int
    actions: tuple[tuple[int, ...], ...]


def always(action: Sequence[int]) -> Chooser:
    """One strategy for all turns."""
    return lambda seen, mask: action


def play(env: WindowEnv, choose: Chooser, session: int, share: float) -> SessionSummary:
    """One session from its first question to its last (or to `max_turns`)."""
    seen, info = env.reset(options={"session": session, "share": share})
    outcomes: list[TurnOutcome] = []
    actions = []
    earned, used, covered, over = 0.0, 0, 0, False
    while not over:
        action = tuple(int(index) for index in choose(seen, env.action_masks()))
        seen, value, terminated, truncated, step = env.step(np.asarray(action))
        earned += value
        outcomes.append(step["outcome"])
        actions.append(action)
        used += step["turn"].used
        covered += step["turn"].covered
        over = terminated or truncated
    ledger = env.simulation.ledger
    return SessionSummary(
        document=info["document"],
        share=share,
        turns=len(outcomes),
        total_reward=earned,
        device_mb=float(np.mean([outcome.device_mb for outcome in outcomes])),
        answer_proxy=float(np.mean([outcome.answer_bleu4 for outcome in outcomes])),
        p0_latency_ms=float(np.mean([outcome.p0_latency_ms for outcome in outcomes])),
        coverage=covered / used if used else 1.0,
        used_block_turns=used,
        loads=ledger.loads,
        wasted_loads=ledger.wasted,
        evictions=ledger.evictions,
        wrong_evictions=ledger.wrong,
        actions=tuple(actions),
    )


def play_all(env: WindowEnv, choose: Chooser, shares: Sequence[float]) -> list[SessionSummary]:
    """Every session of the environment at every share."""
    return [play(env, choose, session, share) for share in shares for session in range(len(env.sessions))]


def mean_reward(env: WindowEnv, choose: Chooser, shares: Sequence[float]) -> float:
    """Mean reward of a turn over all sessions and shares."""
    played = play_all(env, choose, shares)
    return sum(s.total_reward for s in played) / sum(s.turns for s in played)
