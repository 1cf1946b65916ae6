"""What is known of a block when a request references it: counts, ages and its place in the chain, all without scale.

Times are divided by `timescale_s`, a running median of the time after which a chain is extended, so that a trace of
people and a trace of agents look alike.
"""

from __future__ import annotations

from math import exp

import numpy as np
import numpy.typing as npt

from zerolayer.core import FloatArray, IntArray
from zerolayer.decision.request_policy import Request

REQUEST_FEATURES = (
    "count", "since", "matched_share", "last", "new", "depth", "relative_depth", "length", "num_new", "branches",
    "leaf_since", "leaf_count", "leaf_gap", "leaf_turn", "leaf_branches", "leaf_age", "mean_gap", "rate", "gap_ratio",
)  # fmt: skip
"""Columns of `BlockHistory.observe`. The leaf is the deepest block of the chain that was referenced before."""

UNKNOWN = 12.0
"""In a column of logarithms of time: there is no such time. Beyond every real value."""

START_TIMESCALE_S = 120.0
_QUANTILE_STEP = 0.05


class BlockHistory:
    """Per block: references, first and last time, last gap, branches, turn. Arrays grow with the block numbers."""

    def __init__(self) -> None:
        self.timescale_s = START_TIMESCALE_S
        self.count = np.zeros(1024, dtype=np.int64)
        self.branches = np.zeros(1024, dtype=np.int64)
        self.turn = np.zeros(1024, dtype=np.int64)
        self.first_s = np.zeros(1024)
        self.last_s = np.zeros(1024)
        self.gap_s = np.full(1024, np.nan)

    def observe(self, request: Request) -> FloatArray:
        """[blocks, REQUEST_FEATURES] of a request as seen at its arrival; then note it."""
        chain = np.asarray(request.blocks, dtype=np.int64)
        self._grow(int(chain.max()) + 1 if len(chain) else 0)
        known = self.count[chain] > 0
        matched = len(chain) if known.all() else int(known.argmin())
        features = self._features(chain, request.time_s, matched)
        self._note(chain, request.time_s, matched)
        return features

    def _features(self, chain: IntArray, now: float, matched: int) -> FloatArray:
        length, scale = len(chain), self.timescale_s
        depth = np.arange(length)
        count, first, last = self.count[chain], self.first_s[chain], self.last_s[chain]
        known = count > 0
        table = np.empty((length, len(REQUEST_FEATURES)), dtype=np.float32)
        table[:, 0] = np.log2(1 + count)
        table[:, 1] = np.where(known, _log_time((now - last) / scale), UNKNOWN)
        table[:, 2] = matched / length
        table[:, 3] = depth == length - 1
        table[:, 4] = ~known
        table[:, 5] = np.log2(1 + depth)
        table[:, 6] = depth / length
        table[:, 7] = np.log2(length)
        table[:, 8] = np.log2(1 + length - matched)
        table[:, 9] = np.log2(1 + self.branches[chain])
        table[:, 10:16] = self._leaf(int(chain[matched - 1]), now) if matched else _NO_LEAF
        mean_gap = (last - first) / np.maximum(count - 1, 1)
        table[:, 16] = np.where(count > 1, _log_time(mean_gap / scale), UNKNOWN)
        table[:, 17] = np.where(known, np.log2(1 + count * scale / (now - first + scale / 4)), 0)
        table[:, 18] = np.where(count > 1, _log_time((now - last) / np.maximum(mean_gap, 1e-3)), UNKNOWN)
        return table

    def _leaf(self, leaf: int, now: float) -> tuple[float, ...]:
        scale, gap = self.timescale_s, float(self.gap_s[leaf])
        return (
            float(_log_time((now - self.last_s[leaf]) / scale)),
            float(np.log2(1 + self.count[leaf])),
            UNKNOWN if np.isnan(gap) else float(_log_time(gap / scale)),
            float(self.turn[leaf]),
            float(np.log2(1 + self.branches[leaf])),
            float(_log_time((now - self.first_s[leaf]) / scale)),
        )

    def _note(self, chain: IntArray, now: float, matched: int) -> None:
        fresh, again = chain[matched:], chain[:matched]
        turn = 0
        if matched:
            leaf = int(chain[matched - 1])
            turn = int(self.turn[leaf]) + (matched > 1)
            if matched > 1 and now > self.last_s[leaf]:
                self._learn_timescale(now - float(self.last_s[leaf]))
            self.branches[leaf] += len(fresh) > 0
        self.gap_s[again] = now - self.last_s[again]
        new = fresh[self.count[fresh] == 0]
        self.first_s[new] = now
        self.turn[fresh] = turn
        if matched > 1:
            self.turn[chain[matched - 1]] = turn
        self.last_s[chain] = now
        self.count[chain] += 1

    def _learn_timescale(self, gap_s: float) -> None:
        step = _QUANTILE_STEP if gap_s > self.timescale_s else -_QUANTILE_STEP
        self.timescale_s *= exp(step)

    def _grow(self, size: int) -> None:
        have = len(self.count)
        if size <= have:
            return
        more = max(size, 2 * have) - have
        for name in ("count", "branches", "turn", "first_s", "last_s"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(more, dtype=old.dtype)]))
        self.gap_s = np.concatenate([self.gap_s, np.full(more, np.nan)])


_NO_LEAF = (UNKNOWN, 0.0, UNKNOWN, 0.0, 0.0, UNKNOWN)


def _log_time(ratio: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
    """log2 of times, cut at -8 and 8."""
    return np.clip(np.log2(np.maximum(ratio, 2.0**-8)), -8.0, 8.0)
