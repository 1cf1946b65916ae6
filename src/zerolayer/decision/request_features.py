"""What is known of a request's blocks when it arrives: counts, ages, place in the chain, the conversation so far.

A chain falls into a few segments: runs of blocks with the same history, which return together if at all. One row of
features a segment keeps a decision cheap however long the chain is. Times are divided by `timescale_s`, a running
median of the time after which a chain is extended, so that a trace of people and a trace of agents look alike.
"""

from __future__ import annotations

from collections import OrderedDict
from math import exp, isnan, log2, sqrt
from typing import NamedTuple

import numpy as np

from zerolayer.core import BoolArray, FloatArray, IntArray
from zerolayer.decision.request_policy import Request

REQUEST_FEATURES = (
    # of the segment, taken at its deepest block
    "new", "last", "depth", "relative_depth", "count", "since", "age", "mean_gap", "rate", "gap_ratio",
    # of the chain and its leaf, the deepest block that was referenced before
    "length", "matched_share", "num_new", "leaf_count", "leaf_since", "leaf_age", "leaf_gap", "leaf_branches",
    # of the conversation, the requests that led to the leaf
    "turn", "log_gap", "log_gap_spread", "longest_gap", "mean_new", "cut",
)  # fmt: skip
"""Columns of `Segments.features`. Counts and times are logarithms to base 2."""

UNKNOWN = 12.0
"""In a column of logarithms of time: there is no such time. Beyond every real value."""

START_TIMESCALE_S = 120.0
KEPT_CONVERSATIONS = 100_000
"""Requests whose conversation is remembered; one that extends an older one starts anew."""

_QUANTILE_STEP = 0.05
_COUNT_GROUP = np.array([0, 1, 2, 3, 4, 4, 5, 5, 5, 5, *[6] * 11, 7])
"""Reference counts whose difference does not split a segment."""


class Segments(NamedTuple):
    """A chain's segments in order; block i lies in the first one with ends[s] > i."""

    ends: IntArray  # [segments] rising, the last is the chain's length
    features: FloatArray  # [segments, REQUEST_FEATURES]


class Conversation(NamedTuple):
    """What is kept of a request for the one that extends it."""

    turn: int = 0
    log_gap: float = 0.0  # sum over the turns of log2 seconds
    log_gap_squares: float = 0.0
    longest_gap_s: float = 0.0
    num_new: int = 0  # blocks, sum over the turns
    length: int = 0  # blocks


class BlockHistory:
    """Per block: references, first and last time, last gap, branches, last request. Arrays grow with block numbers."""

    def __init__(self) -> None:
        self.timescale_s = START_TIMESCALE_S
        self.count = np.zeros(1024, dtype=np.int64)
        self.branches = np.zeros(1024, dtype=np.int64)
        self.owner = np.full(1024, -1, dtype=np.int64)  # the last request
        self.first_s = np.zeros(1024)
        self.last_s = np.zeros(1024)
        self.gap_s = np.full(1024, np.nan)
        self._request = 0
        self._conversations: OrderedDict[int, Conversation] = OrderedDict()

    def observe(self, request: Request) -> Segments:
        """The segments of a request of one or more blocks, as seen at its arrival; then note it."""
        chain, now = np.asarray(request.blocks, dtype=np.int64), request.time_s
        self._grow(int(chain.max()) + 1)
        count, owner = self.count[chain], self.owner[chain]
        known = count > 0
        matched = len(chain) if known.all() else int(known.argmin())
        before = self._conversations.get(int(owner[matched - 1]) if matched > 1 else -1)
        leaf = int(chain[matched - 1]) if matched else -1
        talk = self._extend(before, leaf, matched, len(chain), now)
        shared = self._chain_row(leaf, matched, len(chain), now) + self._talk_row(talk, before, matched)
        ends = _segment_ends(count, owner)
        deepest = chain[ends - 1]
        rows = [
            self._block_row(end, len(chain), found, first_s, last_s, now) + shared
            for end, found, first_s, last_s in zip(
                ends.tolist(),
                count[ends - 1].tolist(),
                self.first_s[deepest].tolist(),
                self.last_s[deepest].tolist(),
                strict=True,
            )
        ]
        self._note(chain, known, matched, now, talk)
        return Segments(ends, np.array(rows, dtype=np.float32))

    def _block_row(
        self, end: int, length: int, count: int, first_s: float, last_s: float, now: float
    ) -> tuple[float, ...]:
        scale = self.timescale_s
        place = (float(count == 0), float(end == length), log2(end), end / length, log2(1 + count))
        if not count:
            return (*place, UNKNOWN, UNKNOWN, UNKNOWN, 0.0, UNKNOWN)
        since, age = now - last_s, now - first_s
        rate = log2(1 + count * scale / (age + scale / 4))
        if count == 1:
            return (*place, log_time(since / scale), log_time(age / scale), UNKNOWN, rate, UNKNOWN)
        gap = (last_s - first_s) / (count - 1)
        times = (log_time(since / scale), log_time(age / scale), log_time(gap / scale))
        return (*place, *times, rate, log_time(since / max(gap, 1e-3)))

    def _chain_row(self, leaf: int, matched: int, length: int, now: float) -> tuple[float, ...]:
        chain = (log2(length), matched / length, log2(1 + length - matched))
        if leaf < 0:
            return (*chain, 0.0, UNKNOWN, UNKNOWN, UNKNOWN, 0.0)
        scale, gap = self.timescale_s, float(self.gap_s[leaf])
        return (
            *chain,
            log2(1 + int(self.count[leaf])),
            log_time((now - float(self.last_s[leaf])) / scale),
            log_time((now - float(self.first_s[leaf])) / scale),
            UNKNOWN if isnan(gap) else log_time(gap / scale),
            log2(1 + int(self.branches[leaf])),
        )

    def _talk_row(self, talk: Conversation, before: Conversation | None, matched: int) -> tuple[float, ...]:
        if before is None:
            return (0.0, UNKNOWN, UNKNOWN, UNKNOWN, 0.0, 0.0)
        mean = talk.log_gap / talk.turn
        spread = sqrt(max(0.0, talk.log_gap_squares / talk.turn - mean * mean))
        return (
            float(talk.turn),
            mean - log2(self.timescale_s),
            spread if talk.turn > 1 else UNKNOWN,
            log_time(talk.longest_gap_s / self.timescale_s),
            log2(1 + talk.num_new / talk.turn),
            log2(1 + max(0, before.length - matched)),
        )

    def _extend(
        self, before: Conversation | None, leaf: int, matched: int, length: int, now: float
    ) -> Conversation:
        if before is None:
            return Conversation(length=length)
        gap_s = now - float(self.last_s[leaf])
        log_gap = log2(max(gap_s, self.timescale_s / 256))
        return Conversation(
            before.turn + 1,
            before.log_gap + log_gap,
            before.log_gap_squares + log_gap * log_gap,
            max(before.longest_gap_s, gap_s),
            before.num_new + length - matched,
            length,
        )

    def _note(self, chain: IntArray, known: BoolArray, matched: int, now: float, talk: Conversation) -> None:
        if matched:
            leaf = chain[matched - 1]
            if matched > 1 and now > self.last_s[leaf]:
                self._learn_timescale(now - float(self.last_s[leaf]))
            self.branches[leaf] += matched < len(chain)
        again, fresh = chain[known], chain[~known]
        self.gap_s[again] = now - self.last_s[again]
        self.first_s[fresh] = now
        self.last_s[chain] = now
        self.count[chain] += 1
        self.owner[chain] = self._request
        self._conversations[self._request] = talk
        if len(self._conversations) > KEPT_CONVERSATIONS:
            self._conversations.popitem(last=False)
        self._request += 1

    def _learn_timescale(self, gap_s: float) -> None:
        step = _QUANTILE_STEP if gap_s > self.timescale_s else -_QUANTILE_STEP
        self.timescale_s *= exp(step)

    def _grow(self, size: int) -> None:
        have = len(self.count)
        if size <= have:
            return
        more = max(size, 2 * have) - have
        for name, value in (
            ("count", 0), ("branches", 0), ("owner", -1), ("first_s", 0.0), ("last_s", 0.0), ("gap_s", np.nan),
        ):  # fmt: skip
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more, value, dtype=old.dtype)]))


def log_time(ratio: float) -> float:
    """log2 of a time in timescales, cut at -8 and 8."""
    if ratio <= 2.0**-8:
        return -8.0
    return 8.0 if ratio >= 2.0**8 else log2(ratio)


def _segment_ends(count: IntArray, owner: IntArray) -> IntArray:
    """Where the last request or the group of the count changes; the last block, rarely full, stands alone."""
    history = owner * 8 + _COUNT_GROUP[np.minimum(count, len(_COUNT_GROUP) - 1)]
    changes = history[1:] != history[:-1]
    changes[-1:] = True
    ends = np.flatnonzero(changes) + 1
    return np.append(ends, len(count))
