"""Request traces in memory: chains, parents, parts, and arrays that contradict each other."""

from __future__ import annotations

import numpy as np
import pytest

from zerolayer.errors import SettingError, TraceError
from zerolayer.learning.requests import RequestTrace

CHAINS = [[0, 1, 2], [0, 1, 3], [], [4], [0, 1, 2, 5]]


def trace_of(chains=CHAINS, **more) -> RequestTrace:
    starts = np.cumsum([0, *map(len, chains)])
    more = {"times_s": list(range(len(chains))), "block_tokens": 16, "source": "test", **more}
    return RequestTrace.build([block for chain in chains for block in chain], starts, **more)


def test_what_is_left_out_is_unknown():
    trace = trace_of()
    assert (len(trace), trace.references, trace.num_blocks) == (5, 11, 6)
    assert [trace.chain(r).tolist() for r in range(5)] == CHAINS
    for name in ("sessions", "turns", "input_tokens", "output_tokens", "tiers"):
        assert set(getattr(trace, name).tolist()) == {-1}


def test_turns_count_within_sessions():
    trace = trace_of(sessions=[7, 0, 7, -1, 7])
    assert trace.turns.tolist() == [0, 0, 1, -1, 2]
    assert trace_of(sessions=[7] * 5, turns=[3, 4, 5, 6, 9]).turns.tolist() == [3, 4, 5, 6, 9]


def test_parents_are_the_blocks_before_and_never_form_a_circle():
    assert trace_of().parents.tolist() == [-1, 0, 1, 1, -1, 2]
    unchained = trace_of([[0, 1], [1, 0], [2, 2]], num_blocks=5)
    assert unchained.parents.tolist() == [-1, 0, -1, -1, -1]


def test_a_split_keeps_block_numbers_and_loses_nothing():
    trace = trace_of(sessions=[0, 1, 0, 1, 0])
    first, rest = trace.split(0.6)
    assert (len(first), len(rest)) == (3, 2)
    assert rest.chain(1).tolist() == [0, 1, 2, 5] and rest.num_blocks == first.num_blocks == 6
    assert rest.turns.tolist() == [1, 2] and rest.times_s.tolist() == [3, 4]
    assert np.array_equal(np.concatenate([first.blocks, rest.blocks]), trace.blocks)
    assert [len(part) for part in trace.split(0.0)] == [0, 5]
    assert [len(part) for part in trace.split(1.0)] == [5, 0]
    with pytest.raises(SettingError, match=r"fraction 1\.5 is out of range"):
        trace.split(1.5)


def test_an_empty_trace():
    trace = trace_of([])
    assert len(trace) == trace.num_blocks == len(trace.parents) == 0
    assert len(trace.split(0.6)[0]) == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"times_s": [0, 1, 3, 2, 4]}, "must not fall"),
        ({"times_s": [0, 1, 2, 3, float("nan")]}, "must be finite"),
        ({"times_s": [0, 1]}, "times_s has 2 elements for 5 requests"),
        ({"sessions": [0, 0, 0, 0, -2]}, "sessions has -2"),
        ({"output_tokens": [0]}, "output_tokens has 1 elements"),
        ({"tiers": [4] * 11}, "tiers has 4"),
        ({"tiers": [0]}, "tiers has 1 elements for 11 references"),
        ({"block_tokens": 0}, "block_tokens 0 must be positive"),
        ({"num_blocks": 5}, "block 5 is out of range 0 to 4"),
        ({"chains": [[-1]], "num_blocks": 2}, "block -1 is out of range 0 to 1"),
    ],
)
def test_arrays_that_contradict_each_other(more, message):
    with pytest.raises(TraceError, match=message):
        trace_of(**more)


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 1], [0, 2, 1, 2]])
def test_starts_that_do_not_cover_the_blocks(starts):
    with pytest.raises(TraceError, match="starts must"):
        RequestTrace.build([0, 1], starts, [0] * max(0, len(starts) - 1), block_tokens=16, source="test")
