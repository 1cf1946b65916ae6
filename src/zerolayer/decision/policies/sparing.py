"""The sparing policy: loads little, for devices behind slow tiers."""

from __future__ import annotations

from zerolayer.core import BlockTable
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.graded import GradedPolicy, GradedSettings

LIKELY = 0.8
"""Recall stops where a block is less likely used: of 0.7, 0.75, 0.8 and 0.85 the lowest with loads under 1.3 times the
optimum's at 5, 10 and 25 % of the blocks, on contracts for training."""


class SparingPolicy(GradedPolicy):
    """As graded, but loads only what is probably used, and with a fault nothing else: few loads, less coverage."""

    name = "sparing"

    def __init__(self, model: PersistenceModel | None = None) -> None:
        super().__init__(GradedSettings(cut=LIKELY, adaptive=False), model)

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The block itself."""
        return [fault]
