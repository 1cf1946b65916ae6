"""The offline bounds against exhaustive search."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.decision.oracle import belady, schedule_turns
from zerolayer.errors import BudgetError

blocks = st.integers(0, 5)
turn_lists = st.lists(st.lists(blocks, unique=True, max_size=5), max_size=5)


def fewest_single(requests: tuple[int, ...], room: int, bypass: bool) -> int:
    @lru_cache(None)
    def search(at: int, held: frozenset[int]) -> int:
        if at == len(requests):
            return 0
        block = requests[at]
        if block in held:
            return search(at + 1, held)
        states = [held | {block}] if len(held) < room else [held - {v} | {block} for v in held]
        if bypass:
            states.append(held)
        return 1 + min(search(at + 1, state) for state in states)

    return search(0, frozenset())


def fewest_turns(turns: tuple[tuple[int, ...], ...], room: int, start: frozenset[int]) -> int:
    """All eviction choices: a turn that fits is held together, a larger one streamed."""

    @lru_cache(None)
    def search(turn: int, held: frozenset[int]) -> int:
        if turn == len(turns):
            return 0
        used = frozenset(turns[turn])
        if len(used) > room:
            return stream(turn, 0, held)
        spare = held - used
        keep = min(len(spare), room - len(used))
        return len(used - held) + min(
            search(turn + 1, used | frozenset(kept)) for kept in combinations(spare, keep)
        )

    @lru_cache(None)
    def stream(turn: int, at: int, held: frozenset[int]) -> int:
        if at == len(turns[turn]):
            return search(turn + 1, held)
        block = turns[turn][at]
        if block in held:
            return stream(turn, at + 1, held)
        states = [held | {block}] if len(held) < room else [held - {v} | {block} for v in held]
        return 1 + min(stream(turn, at + 1, state) for state in states)

    return search(0, start)


@settings(max_examples=150, deadline=None)
@given(st.lists(blocks, max_size=10), st.integers(1, 4), st.booleans())
def test_belady_is_optimal_for_single_references(requests, room, bypass):
    result = belady(requests, room, bypass=bypass)
    assert result.loads == fewest_single(tuple(requests), room, bypass)
    assert result.hits + result.loads == len(requests)


def test_belady_pins_hit_and_take_their_room():
    requests = [1, 2, 1, 3, 1, 2, 3]
    assert belady(requests, 2, pinned=[1]).loads == belady([2, 3, 2, 3], 1).loads == 3
    with pytest.raises(BudgetError, match="2 blocks with 2 pinned"):
        belady(requests, 2, pinned=[1, 2])


@settings(max_examples=200, deadline=None)
@given(turn_lists, st.integers(1, 4), st.sets(blocks, max_size=4))
def test_turn_schedule_is_optimal(turns, room, start):
    start = set(sorted(start)[:room])
    steps = schedule_turns(turns, room, start)
    assert sum(step.loads for step in steps) == fewest_turns(tuple(map(tuple, turns)), room, frozenset(start))


@settings(max_examples=150, deadline=None)
@given(turn_lists, st.integers(1, 4), st.sets(blocks, max_size=6), st.sets(blocks, max_size=2))
def test_turn_schedule_can_be_carried_out(turns, room, start, pinned):
    """Every step keeps to the room, evicts what is there, and serves every use."""
    held = set(start) - pinned
    for turn, step in zip(turns, schedule_turns(turns, room + len(pinned), start, pinned), strict=True):
        assert set(step.evict) <= held
        held -= set(step.evict)
        assert not held & set(step.load)
        held |= set(step.load)
        assert len(held) <= room
        victims = dict(step.faults)
        for block in turn:
            if block in victims:
                held -= {victims[block]}
                held.add(block)
                assert len(held) <= room
            assert block in held | pinned
