"""What a turn of a simulation led to, in the terms of the reward. Codec, bandwidths and decoding come from `costs`.

Two proxies stand for what a simulation cannot have: BLEU-4 of the answer is the share of the turn's attention mass
(or evidence) that was resident when the answer began, times 1 - the codec's relative error; latency of P0 access is
the mean wait for a used block, loads one after the other.
"""

from __future__ import annotations

import numpy as np

from zerolayer.decision.reward import TurnOutcome
from zerolayer.learning.costs import RESIDENT_MS, TierCosts
from zerolayer.learning.replay import SimulatedTurn, Simulation


class Meter:
    """Judges one turn of a simulation: made before its answer, asked after it."""

    def __init__(self, simulation: Simulation, costs: TierCosts, codec: str) -> None:
        self._simulation, self._costs, self._codec = simulation, costs, codec
        self._there = simulation.table.resident.copy()
        self._wrong, self._wasted = simulation.ledger.wrong, simulation.ledger.wasted

    def outcome(self, turn: SimulatedTurn) -> TurnOutcome:
        """What `turn` led to; whatever happened since counts as its doing."""
        table, ledger, costs = self._simulation.table, self._simulation.ledger, self._costs
        width = table.block_tokens
        load = costs.load_ms(len(table), width, self._codec)
        waits = {block: (place + 1) * load for place, block in enumerate(turn.recalled)}
        waits.update({block: count * load for block, count in turn.faults})
        latency = [RESIDENT_MS if self._there[block] else waits.get(block, load) for block in turn.blocks]
        return TurnOutcome(
            device_mb=costs.device_mb((turn.held + table.resident_count) / 2, width),
            answer_bleu4=turn.mass_share * (1.0 - costs.codecs[self._codec].error),
            p0_latency_ms=float(np.mean(latency)) if latency else RESIDENT_MS,
            wrong_eviction_tokens=(ledger.wrong - self._wrong) * width,
            over_prefetched_tokens=(ledger.wasted - self._wasted) * width,
        )
