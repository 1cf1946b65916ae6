"""The reference run: which blocks an answer uses when (almost) everything is in its sight.

Within the trained window that is the full cache. Beyond it no full cache exists: the label is the answer's attention
over the largest window that the model allows, filled by recall (DESIGN section 6). Its arena is an instrument, not
part of the session's device budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.core import BlockTable, BoolArray, FloatArray
from zerolayer.decision.policy import evictable, lowest, resident_blocks
from zerolayer.learning.traces import DemandTurn

if TYPE_CHECKING:
    from zerolayer.scheduler import TurnResult

MATCHES_KEPT = 256
"""Best matches that a trace keeps of every turn."""


class ReferencePolicy:
    """Fills the whole window with the best matches. No baseline: it exists to label use."""

    name = "reference"

    def victims(self, table: BlockTable, count: int, keep: BoolArray) -> list[int]:
        """The worst matches."""
        candidates = np.flatnonzero(evictable(table) & ~keep)
        return lowest(candidates, count, table.match[candidates])

    def recall(self, table: BlockTable, limit: int) -> list[int]:
        """The best matches that are absent, as far as they beat what is there."""
        best = np.argsort(-table.match, kind="stable")[:limit]
        return [int(block) for block in best if not table.resident[block] and not table.pinned[block]]

    def attend(self, table: BlockTable, limit: int) -> list[int]:
        """Everything on the device."""
        return resident_blocks(table, limit)

    def warm(self, table: BlockTable, limit: int) -> list[int]:
        """Nothing."""
        return []

    def expand(self, table: BlockTable, fault: int) -> list[int]:
        """The block itself."""
        return [fault]

    def knit(self, table: BlockTable, candidates: Sequence[int], limit: int) -> list[int]:
        """Nothing: a label must not depend on what the session knit."""
        return []

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Learns nothing and grades nothing."""


def demand_turn(
    number: int, question: str, match: FloatArray, reference: TurnResult, gold: Sequence[int] | None = None
) -> DemandTurn:
    """One line of a demand trace: what the session knew before the answer, and what the reference run used.

    `used` is in order of first use: an answer reads a block when its question does, so document order.
    """
    mass = reference.block_mass
    best = np.argsort(-match, kind="stable")[:MATCHES_KEPT]
    return DemandTurn(
        number,
        question,
        tuple((block, float(mass[block])) for block in sorted(reference.used)),
        tuple((int(block), float(match[block])) for block in best if match[block] > 0),
        None if gold is None else tuple(gold),
    )
