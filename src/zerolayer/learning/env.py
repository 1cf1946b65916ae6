"""A Gymnasium environment over recorded demand: an episode is a document's session, a step is one turn.

The simulator is that of replays (`replay.Simulation`); the environment adds prefetch between turns, the cost of
moves, and the reward. Proxies stand for what a simulation cannot have: those of `outcomes`, and as the forecast of
the next question the match of the last one, since a topic goes on.

A session that is over terminates. One that is cut at `max_turns` is truncated: its value goes on, and what was
loaded and not yet used is not waste.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from zerolayer.core import BoolArray, FloatArray, IntArray
from zerolayer.decision import observation
from zerolayer.decision.planner import plan_warm
from zerolayer.decision.policies.strategic import StrategicPolicy
from zerolayer.decision.reward import RewardWeights, reward
from zerolayer.decision.strategy import ACTION_SIZES, action_mask, strategy_of, valid_action
from zerolayer.errors import UsageError
from zerolayer.learning.calibrate_files import calibration_of
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.costs import TierCosts
from zerolayer.learning.outcomes import Meter
from zerolayer.learning.replay import RESERVE_BLOCKS, Simulation

LEAST_BLOCKS = 10
"""The smallest device: sinks, the reserve, and a few blocks to choose among."""


@dataclass(frozen=True, slots=True)
class EnvSettings:
    """What an episode is drawn from, what things cost, and what is worth how much."""

    shares: tuple[float, ...] = (0.05, 0.10, 0.25)  # device blocks / document blocks, one is drawn an episode
    weights: RewardWeights = field(default_factory=RewardWeights)
    costs: TierCosts = field(default_factory=TierCosts)
    reserve_blocks: int = RESERVE_BLOCKS
    max_turns: int | None = None  # truncates longer sessions
    calibrated: bool = False  # persistence as a live session would calibrate it, else the hand-set noisy-or


def capacity_of(blocks: int, share: float) -> int:
    """Device blocks of a document at a budget of `share`."""
    return max(int(share * blocks), LEAST_BLOCKS)


class WindowEnv(gymnasium.Env[FloatArray, IntArray]):
    """Chooses the window strategy of each turn. Actions: `strategy.ACTION_FIELDS`; observation: `observation.FIELDS`.

    `action_masks()` says which indices are valid; an invalid one is replaced by its field's nearest valid one,
    and the info says so under `invalid`. `reset(options={"session": i, "share": s})` fixes an episode, otherwise
    the seed draws it. Raises UsageError without a session that exceeds its device.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (declared so by the base class)

    def __init__(self, sessions: Sequence[Recorded], settings: EnvSettings | None = None) -> None:
        self.settings = settings or EnvSettings()
        self.sessions = [s for s in sessions if len(s.trace) and len(s.trace.block_lengths) > LEAST_BLOCKS]
        if not self.sessions:
            raise UsageError(f"no session of over {LEAST_BLOCKS} blocks to schedule; give longer documents")
        self.action_space = gymnasium.spaces.MultiDiscrete(list(ACTION_SIZES))
        low, high = observation.LOW, observation.HIGH
        self.observation_space = gymnasium.spaces.Box(low, high, (observation.SIZE,), np.float32)
        calibrated = self.settings.calibrated
        self._models = [calibration_of(s.trace) if calibrated else None for s in self.sessions]
        self.policy = StrategicPolicy()
        self._codec: str | None = None
        self._turns = 0
        self._simulation: Simulation | None = None

    @property
    def simulation(self) -> Simulation:
        """The running episode. Raises UsageError before the first reset."""
        if self._simulation is None:
            raise UsageError("the environment has no episode yet; call reset first")
        return self._simulation

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start a session; returns the observation of its first question."""
        super().reset(seed=seed)
        chosen = options or {}
        number = int(chosen.get("session", self.np_random.integers(len(self.sessions))))
        share = float(chosen.get("share", self.np_random.choice(self.settings.shares)))
        recorded = self.sessions[number]
        capacity = capacity_of(len(recorded.trace.block_lengths), share)
        self.policy = StrategicPolicy(model=self._models[number])
        self._codec, self._turns = None, 0
        self._simulation = Simulation(
            recorded.trace, self.policy, capacity, self.settings.reserve_blocks, recorded.features
        )
        self._simulation.ask()
        return self._observe(), {"session": number, "share": share, "document": recorded.trace.document}

    def action_masks(self) -> BoolArray:
        """[sum(ACTION_SIZES)] which indices are valid now, field after field."""
        return action_mask(self.simulation.table, self._codec)

    def step(self, action: IntArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Answer one question under the strategy that `action` names."""
        simulation, table = self.simulation, self.simulation.table
        asked = tuple(int(index) for index in action)
        valid = valid_action(asked, self.action_masks())
        strategy = strategy_of(valid)
        if self._codec is None:
            self._codec = strategy.codec
            history, n = self.policy.history, len(table)
            history.pressure_host, history.pressure_disk = self.settings.costs.pressures(
                n, table.block_tokens, self._codec
            )
        self.policy.use(table, strategy)
        meter, match = Meter(simulation, self.settings.costs, self._codec), table.match.copy()
        turn = simulation.answer()
        self._prefetch(match)
        self._turns += 1
        terminated = not simulation.ask()
        if terminated:
            simulation.ledger.close()
        truncated = not terminated and self._turns == self.settings.max_turns
        outcome = meter.outcome(turn)
        earned = reward(outcome, self.settings.weights)
        info = {"outcome": outcome, "reward": earned, "invalid": valid != asked, "turn": turn}
        return self._observe(), earned.total, terminated, truncated, info

    def _prefetch(self, match: FloatArray) -> None:
        """What is forecast comes into free slots."""
        simulation, table = self.simulation, self.simulation.table
        table.forecast[:] = match
        plan = plan_warm(self.policy, table, self.settings.reserve_blocks)
        simulation.ledger.apply((), plan.load)
        table.forecast[:] = 0.0

    def _observe(self) -> FloatArray:
        seen = observation.observe(self.simulation.table, self.policy.history)
        return np.clip(seen, observation.LOW, observation.HIGH)
