"""Scores of blocks, [blocks] each: made comparable, and passed on to neighbours."""

from __future__ import annotations

import numpy as np

from zerolayer.core import FloatArray


def unit(score: FloatArray) -> FloatArray:
    """Without the negative part, scaled so that the largest is 1; zeros stay zeros."""
    score = np.maximum(score, 0)
    top = float(score.max(initial=0))
    return (score / top if top > 0 else score).astype(np.float32)


def standard(score: FloatArray) -> FloatArray:
    """In standard deviations from the mean; zeros where all are equal."""
    spread = float(score.std()) if len(score) else 0.0
    if spread <= 1e-9:
        return np.zeros_like(score, dtype=np.float32)
    result: FloatArray = ((score - score.mean()) / spread).astype(np.float32)
    return result


def smooth(values: FloatArray, sigma: float) -> FloatArray:
    """Gaussian smoothing over neighbouring blocks; `sigma` in blocks."""
    if len(values) == 0:
        return values.astype(np.float32)
    reach = int(4 * sigma) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    padded = np.pad(values, reach, mode="edge")
    return np.convolve(padded, kernel / kernel.sum(), mode="valid").astype(np.float32)
