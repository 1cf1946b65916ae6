"""Synthetic sessions for environment and training tests."""

from __future__ import annotations

import numpy as np
from demand_traces import random_trace

from zerolayer.core import BLOCK_FEATURES
from zerolayer.learning.calibrate_sessions import Recorded


def recorded(seed, **how) -> Recorded:
    """A session that returns to a few topics; nothing is known of its blocks' keys and text."""
    trace = random_trace(seed, **how)
    return Recorded(trace, np.full((len(trace.block_lengths), len(BLOCK_FEATURES)), np.nan, np.float32))
