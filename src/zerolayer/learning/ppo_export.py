"""Trains several seeds, keeps the best by sessions that none was trained on, and writes the file that is shipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.decision.network import PolicyFile
from zerolayer.decision.strategy import NO_CHANGE
from zerolayer.errors import UsageError
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.env import EnvSettings, WindowEnv
from zerolayer.learning.ppo_train import Trained, TrainSettings, train
from zerolayer.learning.rollout import always, mean_reward

SEEDS = (0, 1, 2, 3, 4)

_CHOOSE_EVERY = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """One seed's training, and its mean reward of a turn on sessions that it was not trained on."""

    seed: int
    trained: Trained
    score: float


def trace_hash(recorded: Recorded) -> str:
    """SHA-256 of a session's demand: document, block lengths, and what each turn used, matched and asked."""
    trace = recorded.trace
    turns = [(turn.question, turn.used, turn.match) for turn in trace.turns]
    text = json.dumps([trace.document, trace.block_lengths, turns], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def split(sessions: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Sessions to train on, and every fifth one to choose a seed by. Raises UsageError for under five."""
    if len(sessions) < _CHOOSE_EVERY:
        raise UsageError(f"{len(sessions)} sessions are too few to train on; give at least {_CHOOSE_EVERY}")
    fit = [session for number, session in enumerate(sessions) if number % _CHOOSE_EVERY]
    return fit, list(sessions[::_CHOOSE_EVERY])


def score(trained: Trained, sessions: Sequence[Recorded], environment: EnvSettings | None = None) -> float:
    """Mean reward of a turn by the likeliest actions, over all sessions and budgets."""
    env = WindowEnv(sessions, environment)
    return mean_reward(env, trained.network.act, env.settings.shares)


def default_score(sessions: Sequence[Recorded], environment: EnvSettings | None = None) -> float:
    """The same under the default strategy: the graded policy."""
    env = WindowEnv(sessions, environment)
    return mean_reward(env, always(NO_CHANGE), env.settings.shares)


def train_seeds(
    sessions: Sequence[Recorded],
    settings: TrainSettings | None = None,
    environment: EnvSettings | None = None,
    seeds: Sequence[int] = SEEDS,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Candidate]:
    """One candidate a seed, trained on four fifths of the sessions, scored on the rest."""
    from dataclasses import replace

    base = settings or TrainSettings()
    fit, choose = split(sessions)
    candidates = []
    for number, seed in enumerate(seeds):

        def progress(done: int, total: int, before: int = number) -> None:
            if on_progress is not None:
                on_progress(before * total + done, len(seeds) * total)

        trained = train(fit, replace(base, seed=seed), environment, progress)
        candidates.append(Candidate(seed, trained, score(trained, choose, environment)))
    return candidates


def export(
    candidates: Sequence[Candidate],
    sessions: Sequence[Recorded],
    path: Path,
    command: str,
    settings: TrainSettings | None = None,
    environment: EnvSettings | None = None,
) -> PolicyFile:
    """Write the candidate with the highest score; all curves and scores, and the default's, go with it."""
    if not candidates:
        raise UsageError("no candidate to export; train at least one seed")
    fit, choose = split(sessions)
    best = max(candidates, key=lambda candidate: candidate.score)
    scores = {str(candidate.seed): round(candidate.score, 2) for candidate in candidates}
    w = (environment or EnvSettings()).weights
    notes: dict[str, Any] = {
        "settings": (settings or TrainSettings()).to_json() | {"seed": best.seed},
        "reward_weights": {name: getattr(w, name) for name in w.__dataclass_fields__},
        "scores": scores,
        "default_score": round(default_score(choose, environment), 2),
        "score_spread": round(float(np.std(list(scores.values()))), 2),
        "curves": {
            str(candidate.seed): [[steps, round(value, 1)] for steps, value in candidate.trained.curve]
            for candidate in candidates
        },
        "training_seconds": round(sum(candidate.trained.seconds for candidate in candidates), 1),
        "simulated": True,
    }
    kept = PolicyFile(
        best.trained.network, best.seed, command, tuple(trace_hash(session) for session in fit), notes
    )
    kept.write(path)
    return kept
