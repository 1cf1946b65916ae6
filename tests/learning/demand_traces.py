"""Small synthetic demand for replay tests."""

from __future__ import annotations

import numpy as np

from zerolayer.learning.traces import DemandTrace, DemandTurn


def trace_of(demand, num_blocks, *, matches=None, gold=None, block_tokens=64, sink_blocks=1) -> DemandTrace:
    """A trace in which turn t uses `demand[t]` (equal mass) and perception gave `matches[t]`."""
    turns = tuple(
        DemandTurn(
            turn,
            f"question {turn}",
            tuple((block, 1.0 / len(used)) for block in used),
            tuple(matches[turn]) if matches else (),
            gold[turn] if gold else None,
        )
        for turn, used in enumerate(demand)
    )
    lengths = (block_tokens,) * num_blocks
    return DemandTrace("model", "document", block_tokens, lengths, sink_blocks, "synthetic", 0, turns)


def random_trace(seed, *, turns=25, num_blocks=120, used=6, noise=0.7) -> DemandTrace:
    """Demand that returns to a few topics, with a match that is perfect at noise 0."""
    rng = np.random.default_rng(seed)
    topics = [rng.choice(num_blocks, size=15, replace=False) for _ in range(4)]
    demand, matches = [], []
    for _ in range(turns):
        blocks = rng.choice(topics[rng.integers(4)], size=used, replace=False)
        score = rng.random(num_blocks) * noise
        score[blocks] += 1.0 - noise
        demand.append(blocks.tolist())
        matches.append([(int(b), float(score[b])) for b in np.flatnonzero(score)])
    return trace_of(demand, num_blocks, matches=matches)
