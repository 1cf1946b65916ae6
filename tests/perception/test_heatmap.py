"""Heat is conserved, decays once a turn, and means the same at every size of the map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import SettingError
from zerolayer.perception.heatmap import COLD_FACTOR, HOT_FACTOR, HeatMap, resample

fast = settings(max_examples=60, deadline=None)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 64))  # slots, tokens in a slot
sides = st.sampled_from([2, 4, 16, 256])


def turns_of(data, tokens: int, most: int = 6):
    """Turns of accesses: each a prefix of the arena's tokens, as a question or an answer observes it."""
    one = st.integers(0, tokens).flatmap(
        lambda n: st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).pareto(1.0, n))
    )
    return data.draw(st.lists(st.lists(one, max_size=3), max_size=most))


def play(heat: HeatMap, turns) -> HeatMap:
    for turn in turns:
        for accesses in turn:
            heat.observe(accesses)
        heat.end_turn()
    return heat


@fast
@given(data=st.data(), size=sizes, side=sides, decay=st.floats(0.0, 1.0))
def test_total_heat_is_the_decayed_total_of_accesses(data, size, side, decay):
    turns = turns_of(data, size[0] * size[1])
    heat = play(HeatMap(*size, slot_bytes=64, side=side, decay=decay), turns)
    expected = sum(
        decay ** (len(turns) - 1 - number) * sum(float(accesses.sum()) for accesses in turn)
        for number, turn in enumerate(turns)
    )
    assert heat.heat.shape == (side, side)
    assert heat.heat.min() >= 0
    np.testing.assert_allclose(heat.heat.sum(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(heat.coarse(7, 5).sum(), expected, rtol=1e-9, atol=1e-12)


@fast
@given(data=st.data(), size=sizes)
def test_the_small_map_is_the_large_one_added_up(data, size):
    turns = turns_of(data, size[0] * size[1])
    large, small = (play(HeatMap(*size, slot_bytes=64, side=side), turns) for side in (256, 4))
    np.testing.assert_allclose(
        small.heat.ravel(), large.heat.reshape(16, -1).sum(axis=1), rtol=1e-9, atol=1e-9
    )
    assert (small.last_access.ravel() == large.last_access.reshape(16, -1).max(axis=1)).all()


@fast
@given(data=st.data(), size=sizes, side=sides)
def test_two_runs_are_identical_and_a_state_restores_the_map(data, size, side):
    turns = turns_of(data, size[0] * size[1])
    one, two = (play(HeatMap(*size, slot_bytes=64, side=side), turns) for _ in range(2))
    restored = HeatMap.from_state({name: array.copy() for name, array in one.state().items()})
    more = turns_of(data, size[0] * size[1], most=2)
    for heat in (two, restored):
        assert (heat.heat == one.heat).all()
        assert (heat.locality == one.locality).all()
        assert (heat.last_access == one.last_access).all()
    assert (play(restored, more).heat == play(two, more).heat).all()


@fast
@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=200), count=st.integers(1, 300))
def test_resampling_keeps_the_sum_and_the_place(values, count):
    values = np.asarray(values)
    parts = resample(values, count)
    assert parts.shape == (count,) and parts.min() >= 0
    np.testing.assert_allclose(parts.sum(), values.sum(), rtol=1e-9, atol=1e-9)
    for part in (0.25, 0.5, 0.75):  # what lies below an address stays below it
        if not (len(values) * part % 1 or count * part % 1):
            np.testing.assert_allclose(
                parts[: int(count * part)].sum(), values[: int(len(values) * part)].sum(), atol=1e-6
            )


def test_cells_lie_in_address_order():
    heat = HeatMap(slots=4, slot_tokens=16, slot_bytes=4096, side=4)
    accesses = np.zeros(64)
    accesses[37] = 1.0  # cells are of four tokens: cell 9, the second of the third row
    heat.observe(accesses)
    heat.end_turn()
    assert np.argwhere(heat.heat).tolist() == [[2, 1]]
    assert heat.last_access[2, 1] == 0 and (heat.last_access == -1).sum() == 15
    assert heat.nbytes == 4 * 4096


def test_last_access_is_of_what_carried_the_turn_not_of_what_was_only_in_sight():
    heat = HeatMap(slots=4, slot_tokens=16, slot_bytes=64, side=8, sink_tokens=0)
    first = np.full(64, 0.001)
    first[20] = 1.0
    second = np.full(64, 0.001)
    second[50] = 1.0
    play(heat, [[first], [], [second]])
    last = heat.last_access.ravel()  # a cell a token
    assert last[20] == 0 and last[50] == 2
    assert (np.delete(last, [20, 50]) == -1).all()


def test_the_running_turn_counts_when_it_has_ended():
    heat = HeatMap(slots=2, slot_tokens=8, slot_bytes=64)
    heat.observe(np.ones(16, np.float32))
    assert not heat.heat.any()
    heat.end_turn()
    assert heat.heat.sum() == pytest.approx(16)


def test_locality_is_low_for_a_needle_and_one_for_a_run():
    heat = HeatMap(slots=8, slot_tokens=32, slot_bytes=64, side=16, sink_tokens=0)
    accesses = np.full(256, 0.01)
    accesses[40] = 5.0
    accesses[128:192] = 5.0
    heat.observe(accesses)
    heat.end_turn()
    locality = heat.locality.ravel()
    assert locality.min() >= 0 and locality.max() <= 1
    assert locality[40] < 0.01
    assert locality[140:180].min() == pytest.approx(1)
    assert locality[128] == pytest.approx(0.5, abs=0.01)  # at the edge of a run one side matches


def test_nothing_seen_means_no_heat_no_bank_and_no_zone():
    heat = HeatMap(slots=4, slot_tokens=8, slot_bytes=64)
    heat.end_turn()
    occupant = np.arange(4)
    assert not heat.heat.any() and not heat.locality.any() and (heat.last_access == -1).all()
    assert heat.hot_banks(occupant) == heat.cold_zones(occupant) == heat.hottest_slots(occupant, 2) == []


@pytest.mark.parametrize("side", [256, 16, 4])
def test_banks_and_zones_have_addresses_and_blocks(side):
    heat = HeatMap(slots=16, slot_tokens=64, slot_bytes=0x1000, side=side)
    accesses = np.ones(16 * 64)
    accesses[: heat.sink_tokens] = 1e4
    accesses[5 * 64 : 7 * 64] = 6.0
    accesses[10 * 64 : 12 * 64] = 0.01
    accesses[12 * 64 :] = 3.0
    heat.observe(accesses)
    heat.end_turn()
    occupant = np.arange(100, 116)
    occupant[12:] = -1  # free slots are hot by their past, but nothing lies there
    (bank,), (zone,) = heat.hot_banks(occupant), heat.cold_zones(occupant)
    assert (bank.first_slot, bank.slots, bank.address, bank.size) == (5, 2, 0x5000, 0x2000)
    assert bank.blocks == (105, 106) and bank.last_access == 0
    assert bank.heat == pytest.approx(2 * 64 * 6.0)
    assert (zone.address, zone.blocks) == (0xA000, (110, 111))
    filled = heat.slot_heat[:12].mean()
    assert zone.heat / zone.slots <= COLD_FACTOR * filled < HOT_FACTOR * filled <= bank.heat / bank.slots
    assert heat.heat.ravel()[0] > 100  # the map shows the sinks all the same


def test_the_open_tail_is_in_the_map_but_makes_no_bank_hot():
    heat = HeatMap(slots=8, slot_tokens=8, slot_bytes=64)
    accesses = np.ones(48)
    accesses[40:] = 100.0
    heat.observe(accesses, block_tokens=40)
    heat.end_turn()
    assert heat.heat.sum() == pytest.approx(accesses.sum())
    assert heat.slot_heat.tolist() == pytest.approx([4, 8, 8, 8, 8, 0, 0, 0])
    assert heat.hot_banks(np.arange(8)) == []
    assert heat.last_access.ravel()[-256 * 96 : -256 * 64].tolist() == [0] * (256 * 32)


def test_even_heat_names_nothing():
    heat = HeatMap(slots=16, slot_tokens=8, slot_bytes=64)
    heat.observe(np.ones(128))
    heat.end_turn()
    assert heat.hot_banks(np.arange(16)) == heat.cold_zones(np.arange(16)) == []


def test_regions_are_in_order():
    heat = HeatMap(slots=12, slot_tokens=8, slot_bytes=64, sink_tokens=0)
    per_slot = np.array([1, 9, 1, 20, 1, 1, 0.2, 1, 0.1, 1, 1, 1.0])
    heat.observe(np.repeat(per_slot, 8))
    heat.end_turn()
    assert [region.first_slot for region in heat.hot_banks(np.arange(12))] == [3, 1]
    assert [region.first_slot for region in heat.cold_zones(np.arange(12))] == [8, 6]


def test_hottest_slots_keep_to_the_limit():
    heat = HeatMap(slots=16, slot_tokens=8, slot_bytes=64, sink_tokens=0)
    per_slot = np.full(16, 0.1)
    per_slot[4:8] = 5, 9, 8, 4
    heat.observe(np.repeat(per_slot, 8))
    heat.end_turn()
    occupant = np.arange(16)
    assert heat.hottest_slots(occupant, 2) == [5, 6]
    assert heat.hottest_slots(occupant, 9) == [4, 5, 6, 7]
    assert heat.hottest_slots(occupant, 0) == []


@pytest.mark.parametrize("side", [-4, 0, 1, 3, 100, 2048])
def test_impossible_sides_are_refused(side):
    with pytest.raises(SettingError, match=r"heatmap_side is .*power of two from 2 to 1024"):
        HeatMap(slots=4, slot_tokens=8, slot_bytes=64, side=side)


@pytest.mark.parametrize(
    "change", [{"sizes": [4, 8, 64, 4, 4]}, {"sizes": [0, 8, 64, 4, 4, 0]}, {"heat": [1.0]}]
)
def test_a_state_that_describes_no_map_is_refused(change):
    state = HeatMap(slots=4, slot_tokens=8, slot_bytes=64, side=4).state()
    state.update({name: np.asarray(value) for name, value in change.items()})
    with pytest.raises(ValueError, match=r"heat map|unpack"):
        HeatMap.from_state(state)
