"""Compiled programs keep every law, and leave the layout that the plan asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.core import Plan
from zerolayer.errors import BudgetError
from zerolayer.execution.addresses import DISK_BASE, HOST_BASE, AddressSpace
from zerolayer.execution.compiler import compile_compress, compile_knit, compile_moves, runs
from zerolayer.execution.isa import CompressP2, EvictP3, Knit, MoveP0
from zerolayer.execution.layout import FREE
from zerolayer.execution.verifier import MachineState, verify

BYTES, BLOCKS = 4096, 40
fast = settings(max_examples=300, deadline=None)


@given(st.sets(st.integers(0, 30)))
def test_runs_cover_each_number_once(numbers):
    found = runs(numbers)
    assert [n for first, count in found for n in range(first, first + count)] == sorted(numbers)
    assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(found))


@st.composite
def situations(draw):
    """An occupancy, a plan that fits, and what is to be in sight."""
    slots = draw(st.integers(2, 14))
    held = draw(st.lists(st.integers(0, BLOCKS - 1), unique=True, max_size=slots))
    occupant = np.asarray(draw(st.permutations([*held, *[FREE] * (slots - len(held))])), dtype=np.int64)
    evict = draw(st.lists(st.sampled_from(held), unique=True)) if held else []
    stay = [block for block in held if block not in evict]
    reserve = draw(st.integers(0, slots - len(stay)))
    absent = [block for block in range(BLOCKS) if block not in held]
    load = draw(st.lists(st.sampled_from(absent), unique=True, max_size=slots - len(stay) - reserve))
    after = [*stay, *load]
    seen = draw(st.lists(st.sampled_from(after), unique=True)) if after else []
    return occupant, Plan(evict=tuple(evict), load=tuple(load)), seen, reserve


def apply(program, occupant: np.ndarray) -> np.ndarray:
    slots = occupant.copy()
    for instruction in program:
        if isinstance(instruction, EvictP3):
            first = instruction.addr // BYTES
            slots[first : first + instruction.size // BYTES] = FREE
        else:
            target = instruction.dst // BYTES
            assert isinstance(instruction, MoveP0) and slots[target] == FREE
            if instruction.src >= HOST_BASE:
                base = DISK_BASE if instruction.src >= DISK_BASE else HOST_BASE
                slots[target] = (instruction.src - base) // BYTES
            else:
                source = instruction.src // BYTES
                slots[target], slots[source] = slots[source], FREE
    return slots


@fast
@given(situation=situations())
def test_a_plan_is_carried_out_and_lawful(situation):
    occupant, plan, seen, reserve = situation
    space = AddressSpace(BYTES, len(occupant), BLOCKS)
    try:
        program = compile_moves(plan, occupant, seen, reserve, space, lambda block: block % 2 == 0)
    except BudgetError:
        resident = int((occupant != FREE).sum()) - len(plan.evict) + len(plan.load)
        assert resident == len(occupant)  # full: no block can change its place
        return
    on_host, on_disk = set(range(0, BLOCKS, 2)), set(range(BLOCKS))
    verify(program, MachineState(len(occupant), occupant, on_host=on_host, on_disk=on_disk), space)
    slots = apply(program, occupant)
    expected = (set(occupant.tolist()) - {FREE} - set(plan.evict)) | set(plan.load)
    assert sorted(block for block in slots.tolist() if block != FREE) == sorted(expected)
    assert set(slots[: len(seen)].tolist()) == set(seen)
    assert (slots[len(seen) : len(seen) + reserve] == FREE).all()


def test_neighbouring_slots_are_one_instruction():
    space = AddressSpace(BYTES, 8, BLOCKS)
    assert compile_compress([3, 1, 2, 6], space, "K8V4").instructions == (
        CompressP2(BYTES, 3 * BYTES, "K8V4"),
        CompressP2(6 * BYTES, BYTES, "K8V4"),
    )
    assert compile_knit([0, 1], space).instructions == (Knit(0, 2 * BYTES),)


def test_blocks_in_sight_are_loaded_straight_into_their_place():
    space = AddressSpace(BYTES, 6, BLOCKS)
    program = compile_moves(Plan(load=(7, 8, 9)), np.full(6, FREE), [9], 2, space, lambda _: True)
    assert program[0] == MoveP0(space.host(9), 0, BYTES)


def test_a_plan_that_does_not_fit_is_refused():
    space = AddressSpace(BYTES, 2, BLOCKS)
    with pytest.raises(BudgetError):
        compile_moves(Plan(load=(7, 8)), np.full(2, FREE), [7], 1, space, lambda _: True)
    with pytest.raises(BudgetError):
        compile_moves(Plan(load=(7, 8)), np.array([1, FREE]), [7], 0, space, lambda _: True)
