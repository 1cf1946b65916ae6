"""From a question to blocks: what its words and what its attention point at, fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolayer.core import FloatArray


@dataclass(frozen=True, slots=True)
class RecallWeights:
    """Weights of the signals; each signal is scaled to 0..1 before."""

    words: float = 1.0
    attention: float = 0.5
    after: float = 0.7  # what a block passes on to the block after it: a sentence runs over the border
    before: float = 0.5  # … and to the block before it


def fuse(words: FloatArray, attention: FloatArray, weights: RecallWeights | None = None) -> FloatArray:
    """[n] match of every block with the question, 0 to 1, the best block 1."""
    weights = weights or RecallWeights()
    score = weights.words * unit(words) + weights.attention * _neighbours(unit(attention), weights)
    return unit(score)


def unit(score: FloatArray) -> FloatArray:
    """Scaled so that the largest is 1; zeros stay zeros."""
    top = float(score.max()) if len(score) else 0.0
    return (score / top).astype(np.float32) if top > 0 else np.zeros_like(score, dtype=np.float32)


def _neighbours(score: FloatArray, weights: RecallWeights) -> FloatArray:
    spread = score.copy()
    spread[1:] = np.maximum(spread[1:], weights.after * score[:-1])
    spread[:-1] = np.maximum(spread[:-1], weights.before * score[1:])
    return spread
