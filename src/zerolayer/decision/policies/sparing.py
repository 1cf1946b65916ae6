"""The sparing policy: loads little, for devices behind slow tiers."""

from __future__ import annotations

from zerolayer.core import BlockTable
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.graded import GradedPolicy, GradedSettings

LIKELY = 0.7
"""Recall stops where a block is less likely used; chosen on contracts for training, at a load ratio of 1.3."""


class SparingPolicy(GradedPolicy):
    """As graded, but loads only what is probably used, and with a fault nothing else: few loads, less coverage."""

    name = "sparing"

    def __init__(self, model: PersistenceModel | None = None) -> None:
        super().__init__(GradedSettings(cut=LIKELY, adaptive=False), model)

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The block itself."""
        return [fault]
