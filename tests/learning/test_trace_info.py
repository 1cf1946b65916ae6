"""What a trace is said to hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from demand_traces import random_trace, trace_of
from test_requests import trace_of as requests_of

from zerolayer.core import Tier
from zerolayer.learning.trace_info import describe


def test_requests():
    found = describe(
        requests_of(sessions=[0, 1, 0, -1, 0], input_tokens=[40, 40, -1, 10, 60], tiers=[0, 0, -1, *[1] * 8]),
        2,
    )
    assert (found.kind, found.requests, found.sessions, found.duration_s) == ("requests", 5, 2, 4.0)
    assert (found.references, found.unique_blocks, found.num_blocks, found.blocks_used_once) == (11, 6, 6, 3)
    assert found.reused_references == pytest.approx(5 / 11) and found.references_per_block == pytest.approx(
        11 / 6
    )
    assert (found.max_blocks_per_request, found.input_tokens, found.output_tokens) == (4, 150, None)
    assert found.tiers == {"device": 2, "host": 8}
    first, second = found.windows
    assert (first.begin_s, first.end_s, first.requests, first.references) == (0.0, 2.0, 2, 6)
    assert (first.working_set_blocks, first.new_blocks, first.blocks_so_far) == (4, 4, 4)
    assert (second.requests, second.working_set_blocks, second.new_blocks, second.blocks_so_far) == (
        3,
        5,
        2,
        6,
    )


def test_windows_add_up_to_the_trace():
    rng = np.random.default_rng(1)
    chains = [rng.integers(0, 40, 5).tolist() for _ in range(60)]
    trace = requests_of(chains, times_s=np.sort(rng.random(60)).tolist(), num_blocks=50)
    found = describe(trace)
    assert sum(w.references for w in found.windows) == trace.references
    assert sum(w.new_blocks for w in found.windows) == found.unique_blocks == found.windows[-1].blocks_so_far
    assert all(w.new_blocks <= w.working_set_blocks <= w.references for w in found.windows)


def test_requests_of_one_moment_and_of_none():
    (window,) = describe(requests_of(times_s=[7] * 5)).windows
    assert (window.begin_s, window.end_s, window.references) == (0.0, 0.0, 11)
    empty = describe(requests_of([]))
    assert (empty.requests, empty.references, empty.duration_s, empty.windows) == (0, 0, None, ())


def test_demand():
    trace = trace_of([[3, 1], [1]], 9)
    found = describe(trace)
    assert (found.kind, found.requests, found.references, found.unique_blocks) == ("demand", 2, 3, 2)
    assert (found.num_blocks, found.sessions, found.duration_s) == (9, 1, None)
    timed = [
        dataclasses.replace(turn, time_s=5.0 + 2 * turn.turn, tiers=(Tier.HOST,) * len(turn.used))
        for turn in trace.turns
    ]
    found = describe(dataclasses.replace(trace, turns=tuple(timed)))
    assert found.duration_s == 2.0 and found.tiers == {"host": 3}
    assert describe(random_trace(0, turns=25)).windows[-1].requests == 2
