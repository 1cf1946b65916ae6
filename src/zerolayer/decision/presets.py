"""Presets: what a user prefers, as weights of the reward, a device budget and a window strategy.

| preset | for | device budget | strategy |
|---|---|---|---|
| low_latency | answers that start at once | 25 % | recalls deep, prefetches 8 blocks, 8-bit blocks decode fastest |
| balanced | the documented weights | 10 % | the graded policy as it is |
| memory_efficient | many sessions on one device | 5 % | recalls what is likely, empties the device to 40 % |

The weights are those that a policy is trained with and judged by under that preset.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.strategic import StrategicPolicy
from zerolayer.decision.reward import RewardWeights
from zerolayer.decision.strategy import NO_CHANGE, WindowStrategy, strategy_of
from zerolayer.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class Preset:
    """A named preference."""

    name: str
    weights: RewardWeights
    device_budget: str  # a share of all KV, as the setting of that name
    action: tuple[int, ...]  # the window strategy, as strategy.strategy_of reads it

    @property
    def strategy(self) -> WindowStrategy:
        """The window strategy."""
        return strategy_of(self.action)

    @property
    def device_share(self) -> float:
        """The device budget as a number, 0 to 1."""
        return float(self.device_budget.rstrip("%")) / 100.0

    def policy(self, model: PersistenceModel | None = None) -> StrategicPolicy:
        """A new policy for one session that decides by this preset."""
        return StrategicPolicy(self.strategy, model=model)


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "low_latency",
            RewardWeights(device_mb=-0.03, p0_latency_ms=1.0, over_prefetched_token=-0.02),
            "25%",
            (0, 1, 2, 3, 1),
        ),
        Preset("balanced", RewardWeights(), "10%", NO_CHANGE),
        Preset(
            "memory_efficient",
            RewardWeights(
                device_mb=-1.0, p0_latency_ms=0.05, wrong_eviction_token=-0.5, over_prefetched_token=-0.2
            ),
            "5%",
            (3, 2, 3, 0, 0),
        ),
    )
}


def get_preset(name: str) -> Preset:
    """The preset `name`. Raises UnknownNameError naming the known ones."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UnknownNameError("preset", name, PRESETS) from None
