"""The learned policy: a small network, trained by PPO (learning.ppo_train), chooses strategies under guard."""

from __future__ import annotations

from functools import cache

from zerolayer.decision.guarded import Guarded
from zerolayer.decision.network import PolicyNetwork, read_policy
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.safety import Clock, SafetySettings


@cache
def _shipped() -> PolicyNetwork:
    return read_policy().network


class PpoPolicy(Guarded):
    """The graded policy under a strategy that PPO learned, guarded; SettingError if its file cannot be read."""

    name = "ppo"

    def __init__(
        self,
        network: PolicyNetwork | None = None,
        safety: SafetySettings | None = None,
        clock: Clock | None = None,
        codec: str = "K8V4",
        model: PersistenceModel | None = None,
    ) -> None:
        super().__init__(network or _shipped(), safety, clock, codec, model)
