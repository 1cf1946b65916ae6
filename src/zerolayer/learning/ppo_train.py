"""Trains the window strategy by PPO with masked actions (Schulman et al., arXiv:1707.06347; Huang and Ontanon,
arXiv:2006.14171), as stable-baselines3 and its contrib package implement it. One CPU thread, minutes a seed.

Training starts at the default strategy: the action head's biases favour it, so that what is learned is where to
depart from it. Rewards are normalised by their running spread in training only; curves are in the reward's units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from zerolayer.decision.network import PolicyNetwork
from zerolayer.decision.strategy import ACTION_SIZES
from zerolayer.errors import SettingError
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.env import EnvSettings, WindowEnv

Progress = Callable[[int, int], None]
"""Called with the steps done and the steps there are."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How long and how fast. Raises SettingError for a number that cannot be."""

    steps: int = 24_000
    seed: int = 0
    environments: int = 8  # sessions played side by side
    rollout_steps: int = 32  # of each of them
    batch_size: int = 64
    epochs: int = 8
    learning_rate: float = 1e-3
    discount: float = 0.95
    entropy_weight: float = 0.003
    hidden: int = 32
    default_bias: float = 1.0  # log-odds by which the untrained network favours the default strategy

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "environments",
            "rollout_steps",
            "batch_size",
            "epochs",
            "hidden",
            "learning_rate",
        ):
            if not getattr(self, name) > 0:
                raise SettingError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0.0 <= self.discount < 1.0:
            raise SettingError(f"discount is {self.discount}; it must lie within 0 to 1, 1 left out")

    def to_json(self) -> dict[str, float]:
        """All settings by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Trained:
    """A network, and its learning curve: (steps so far, mean reward of a turn in that rollout)."""

    network: PolicyNetwork
    curve: tuple[tuple[int, float], ...]
    seconds: float


def train(
    sessions: Sequence[Recorded],
    settings: TrainSettings | None = None,
    environment: EnvSettings | None = None,
    on_progress: Progress | None = None,
) -> Trained:
    """Train on `sessions`, which no report may use. The same seed gives the same network on one machine."""
    import time

    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    s, started = settings or TrainSettings(), time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        env = VecNormalize(
            DummyVecEnv([lambda: WindowEnv(sessions, environment)] * s.environments),
            norm_obs=False,
            gamma=s.discount,
        )
        model = MaskablePPO(
            "MlpPolicy",
            env,
            learning_rate=s.learning_rate,
            n_steps=s.rollout_steps,
            batch_size=s.batch_size,
            n_epochs=s.epochs,
            gamma=s.discount,
            ent_coef=s.entropy_weight,
            policy_kwargs={"net_arch": [s.hidden, s.hidden], "activation_fn": torch.nn.Tanh},
            seed=s.seed,
            device="cpu",
        )
        _favour_default(model.policy.action_net, s.default_bias)
        curve = _Curve(s.steps, on_progress)
        model.learn(s.steps, callback=curve)
        network = network_of(model.policy)
    finally:
        torch.set_num_threads(threads)
    return Trained(network, tuple(curve.points), time.perf_counter() - started)


def network_of(policy: object) -> PolicyNetwork:
    """The actor of a stable-baselines3 policy as numpy arrays."""
    layers = [policy.mlp_extractor.policy_net[i] for i in (0, 2)] + [policy.action_net]  # type: ignore[attr-defined]
    pairs = [(layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()) for layer in layers]
    return PolicyNetwork(tuple(w for w, _ in pairs), tuple(b for _, b in pairs))


def _favour_default(action_net: object, bias: float) -> None:
    import torch

    starts = np.cumsum((0, *ACTION_SIZES[:-1]))
    with torch.no_grad():
        action_net.bias[starts] += bias  # type: ignore[attr-defined]


class _Curve:
    """Notes the mean reward of a turn over each rollout; a callback of stable-baselines3 in its plain form."""

    def __init__(self, steps: int, on_progress: Progress | None) -> None:
        self.points: list[tuple[int, float]] = []
        self._steps, self._progress = steps, on_progress
        self._earned: list[float] = []

    def __call__(self, now: dict[str, object], _: dict[str, object]) -> bool:
        """After every step; `now` are the collector's local variables."""
        model = now["self"]
        self._earned += [info["reward"].total for info in now["infos"]]  # type: ignore[attr-defined]
        done = int(model.num_timesteps)  # type: ignore[attr-defined]
        if len(self._earned) >= model.n_steps * model.n_envs:  # type: ignore[attr-defined]
            self.points.append((done, float(np.mean(self._earned))))
            self._earned = []
            if self._progress is not None:
                self._progress(min(done, self._steps), self._steps)
        return True
