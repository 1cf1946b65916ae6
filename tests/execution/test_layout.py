"""Arranging: wanted blocks first, the reserve free, nothing lost, no slot overwritten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import BudgetError
from zerolayer.execution.layout import FREE, arrange

fast = settings(max_examples=300, deadline=None)


@st.composite
def occupancies(draw):
    slots = draw(st.integers(1, 16))
    resident = draw(st.integers(0, slots))
    order = draw(st.permutations([*range(resident), *[FREE] * (slots - resident)]))
    return np.asarray(order, dtype=np.int64)


def apply(occupant: np.ndarray, moves: list[tuple[int, int]]) -> np.ndarray:
    slots = occupant.copy()
    for source, target in moves:
        assert slots[source] != FREE and slots[target] == FREE
        slots[target], slots[source] = slots[source], FREE
    return slots


@fast
@given(occupant=occupancies(), data=st.data())
def test_wanted_blocks_come_first_and_the_reserve_is_free(occupant, data):
    resident = [int(block) for block in occupant if block != FREE]
    wanted = data.draw(st.lists(st.sampled_from(resident), unique=True)) if resident else []
    reserve = data.draw(st.integers(0, len(occupant) - len(resident)))
    before = occupant.copy()
    try:
        moves = arrange(occupant, wanted, reserve)
    except BudgetError:
        assert len(resident) == len(occupant)
        assert set(occupant[: len(wanted)].tolist()) != set(wanted)
        return
    assert np.array_equal(occupant, before)
    slots = apply(occupant, moves)
    assert sorted(slots.tolist()) == sorted(before.tolist())
    assert set(slots[: len(wanted)].tolist()) == set(wanted)
    assert (slots[len(wanted) : len(wanted) + reserve] == FREE).all()


@fast
@given(occupant=occupancies(), data=st.data())
def test_arranged_blocks_are_not_moved_again(occupant, data):
    resident = [int(block) for block in occupant if block != FREE]
    wanted = resident[: data.draw(st.integers(0, len(resident)))]
    free = len(occupant) - len(resident)
    if not free:
        return
    slots = apply(occupant, arrange(occupant, wanted, free))
    assert arrange(slots, wanted, free) == []


@fast
@given(occupant=occupancies(), extra=st.integers(1, 5))
def test_what_does_not_fit_is_refused(occupant, extra):
    free = int((occupant == FREE).sum())
    with pytest.raises(BudgetError, match="evict first"):
        arrange(occupant, [], free + extra)


def test_a_full_arena_that_needs_moves_is_refused():
    with pytest.raises(BudgetError, match="all 2 slots are filled"):
        arrange(np.array([5, 6]), [6], 0)
    assert arrange(np.array([5, 6]), [5], 0) == []
