"""Small networks that always choose what a test wants."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from zerolayer.decision.network import PolicyNetwork
from zerolayer.decision.observation import SIZE
from zerolayer.decision.strategy import ACTION_SIZES


def always_network(action) -> PolicyNetwork:
    """A network whose biases alone decide."""
    sizes = [SIZE, 4, 4, sum(ACTION_SIZES)]
    weights = tuple(np.zeros((a, b), np.float32) for a, b in pairwise(sizes))
    biases = [np.zeros(size, np.float32) for size in sizes[1:]]
    starts = np.cumsum((0, *ACTION_SIZES[:-1]))
    biases[-1][starts + np.asarray(action)] = 1.0
    return PolicyNetwork(weights, tuple(biases))


def random_network(seed) -> PolicyNetwork:
    """A network as training might leave it."""
    rng = np.random.default_rng(seed)
    sizes = [SIZE, 32, 32, sum(ACTION_SIZES)]
    weights = tuple(rng.standard_normal((a, b)).astype(np.float32) for a, b in pairwise(sizes))
    return PolicyNetwork(weights, tuple(np.zeros(size, np.float32) for size in sizes[1:]))
