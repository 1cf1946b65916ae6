"""The arena gives back what was put in, and attention does not mind in which slot a block lies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tiny_models import make_engine, random_tokens
from zerolayer.execution.arena import Arena
from zerolayer.execution.codecs import BlockKV, get_codec
from zerolayer.execution.layout import FREE

WIDTH, SLOTS = 8, 6
ENGINE, _ = make_engine("llama", "yarn")


def make_arena() -> Arena:
    return Arena(ENGINE.geometry, SLOTS, WIDTH, ENGINE.rotary)


def content(block: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = ENGINE.geometry
    generator = torch.Generator().manual_seed(block)
    both = torch.randn(2, g.layers, g.kv_heads, WIDTH, g.head_dim, generator=generator)
    return both[0], both[1]


def check_holds(arena: Arena, slot: int, block: int) -> None:
    keys, values = arena.read(slot)
    torch.testing.assert_close(keys, content(block)[0], atol=1e-4, rtol=0)
    assert torch.equal(values, content(block)[1])


def test_bytes_are_those_of_the_geometry():
    arena = make_arena()
    g = ENGINE.geometry
    assert g.token_bytes == 2 * 2 * 2 * 8 * 4
    assert arena.nbytes == SLOTS * WIDTH * g.token_bytes and arena.slot_bytes == WIDTH * g.token_bytes
    ranges = arena.memory_ranges(3)
    assert sum(size for _, size in ranges) == arena.slot_bytes
    assert len(ranges) == 2 * g.layers * g.kv_heads
    assert all(arena.keys[0].data_ptr() <= at < arena.keys[0].data_ptr() + arena.nbytes for at, _ in ranges)


def test_layer_tensors_are_views_of_one_allocation():
    arena = make_arena()
    owners = {tensor.untyped_storage().data_ptr() for tensor in (*arena.keys, *arena.values)}
    assert len(owners) == 1
    assert arena.keys[0].shape == (2, SLOTS * WIDTH, 8)


@pytest.mark.parametrize("position", [0, 1, 300, 504])
def test_a_block_comes_back_as_it_was_put_in(position):
    arena = make_arena()
    arena.load(2, 9, position, *content(9))
    check_holds(arena, 2, 9)
    assert arena.slot_of(9) == 2 and arena.slot_of(8) == FREE and arena.blocks() == [9]
    assert arena.used_slots == 1


def test_move_frees_the_source_and_relocate_rotates_in_place():
    arena = make_arena()
    arena.load(5, 1, 40, *content(1))
    arena.move(5, 0)
    assert arena.occupant.tolist() == [1, FREE, FREE, FREE, FREE, FREE]
    assert arena.position[0] == 40
    check_holds(arena, 0, 1)
    arena.relocate(0, 400)
    check_holds(arena, 0, 1)
    fresh = make_arena()
    fresh.load(0, 1, 400, *content(1))
    torch.testing.assert_close(
        arena._storage[:, :, :, :WIDTH], fresh._storage[:, :, :, :WIDTH], atol=1e-4, rtol=0
    )


def test_claimed_blocks_follow_the_prefix_and_the_tail_is_forgotten():
    arena = make_arena()
    arena.rows = 2 * WIDTH + 3
    arena.claim(7, 0)
    arena.claim(8, WIDTH)
    assert arena.in_sight == 2 and arena.blocks() == [7, 8]
    assert arena.row_positions(50).tolist() == [*range(16), 50, 51, 52]
    arena.drop_tail()
    assert arena.rows == 16 and arena.row_positions(50).tolist() == list(range(16))


def test_row_numbers_and_document_order():
    arena = make_arena()
    for slot, block in enumerate([4, 2, 9]):
        arena.load(slot, block, 8 * slot, *content(block))
    arena.in_sight = 3
    assert arena.ordered_slots() == [1, 0, 2]
    assert arena.tokens_of([2, 0]).tolist() == [*range(16, 24), *range(8)]


class ArenaLaws(RuleBasedStateMachine):
    """Any history of loads, moves, turns of position and frees keeps every block whole and in one slot."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = make_arena()
        self.model: dict[int, int] = {}  # slot → block
        self.next = 0

    @precondition(lambda self: len(self.model) < SLOTS)
    @rule(data=st.data(), position=st.integers(0, 504))
    def load(self, data, position):
        slot = data.draw(st.sampled_from([s for s in range(SLOTS) if s not in self.model]))
        self.arena.load(slot, self.next, position, *content(self.next))
        self.model[slot] = self.next
        self.next += 1

    @precondition(lambda self: 0 < len(self.model) < SLOTS)
    @rule(data=st.data())
    def move(self, data):
        source = data.draw(st.sampled_from(sorted(self.model)))
        target = data.draw(st.sampled_from([s for s in range(SLOTS) if s not in self.model]))
        self.arena.move(source, target)
        self.model[target] = self.model.pop(source)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), position=st.integers(0, 504))
    def relocate(self, data, position):
        slot = data.draw(st.sampled_from(sorted(self.model)))
        self.arena.relocate(slot, position)
        assert self.arena.position[slot] == position

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data):
        slot = data.draw(st.sampled_from(sorted(self.model)))
        self.arena.free(slot)
        del self.model[slot]

    @invariant()
    def every_block_is_whole_and_in_one_slot(self):
        expected = [self.model.get(slot, FREE) for slot in range(SLOTS)]
        assert self.arena.occupant.tolist() == expected
        assert self.arena.used_slots == len(self.model)
        for slot, block in self.model.items():
            assert self.arena.slot_of(block) == slot
            check_holds(self.arena, slot, block)


ArenaLaws.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestArenaLaws = ArenaLaws.TestCase


def read_four_blocks(engine):
    tokens = random_tokens(4 * WIDTH + 5)
    arena = engine.make_arena(SLOTS, WIDTH)
    engine.append(tokens[: 4 * WIDTH], 0)
    for block in range(4):
        arena.claim(block, block * WIDTH)
    expected, _ = engine.append(tokens[4 * WIDTH :], 4 * WIDTH, logits=True)
    arena.drop_tail()
    return arena, tokens[4 * WIDTH :], expected


@pytest.mark.parametrize("rope", ["default", "yarn"])
def test_an_evicted_and_reloaded_block_gives_the_same_logits(rope):
    engine, _ = make_engine("qwen3", rope)
    arena, question, expected = read_four_blocks(engine)
    codec = get_codec("RAW")
    keys, values = arena.read(1)
    stored = codec.encode(BlockKV(keys.numpy(), values.numpy()))
    arena.free(1)
    arena._storage[:, :, :, WIDTH : 2 * WIDTH] = 50.0
    kv = codec.decode(stored)
    arena.load(1, 1, WIDTH, torch.from_numpy(kv.keys), torch.from_numpy(kv.values))
    logits, _ = engine.append(question, 4 * WIDTH, logits=True)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_slots_may_be_permuted(family, order):
    engine, _ = make_engine(family)
    arena, question, expected = read_four_blocks(engine)
    held = [arena.read(slot) for slot in range(4)]
    for slot, block in enumerate(order):
        arena.load(slot, block, block * WIDTH, *held[block])
    logits, _ = engine.append(question, 4 * WIDTH, logits=True)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    moved = np.argsort(order)
    assert arena.ordered_slots() == moved.tolist()
