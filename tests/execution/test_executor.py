"""Programs over a real arena, host and disk: what is stored comes back, what is refused changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tiny_models import make_engine, random_tokens
from zerolayer.core import BlockTable, Tier
from zerolayer.errors import StoreFullError, VerificationError
from zerolayer.execution.codecs import CODECS
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import (
    CompressP2,
    EvictP3,
    Knit,
    MoveP0,
    OutcomeStatus,
    PinL2,
    Prefetch,
    Program,
    Spill,
    Unpin,
)
from zerolayer.execution.layout import FREE
from zerolayer.execution.tiers import DiskTier, HostTier, TierHierarchy
from zerolayer.perception.key_bounds import KeyBounds

WIDTH, SLOTS, BLOCKS = 16, 8, 6
ERRORS = {"RAW": 1e-5, "LZ4": 0.01, "ZSTD": 1e-5, "BF16Z": 0.01, "INT8": 0.03, "K8V4": 0.25}
"""Largest error over the largest value, keys (plus the rotation's) and values."""

every_codec = pytest.mark.parametrize("codec", sorted(CODECS))


def no_room(nbytes: int) -> None:
    raise StoreFullError(f"{nbytes} bytes cannot be made free")


class Machine:
    """Six blocks of a tiny model, computed in full sight of each other, in slots 0 to 5."""

    def __init__(self, path, codec: str = "RAW", host: int = 1 << 20, disk: int = 1 << 22) -> None:
        self.engine, _ = make_engine("llama")
        self.tokens = random_tokens(BLOCKS * WIDTH)
        self.arena = self.engine.make_arena(SLOTS, WIDTH)
        self.engine.append(self.tokens, 0)
        for block in range(BLOCKS):
            self.arena.claim(block, block * WIDTH)
        geometry = self.engine.geometry
        self.bounds = KeyBounds(geometry.layers, geometry.kv_heads, geometry.head_dim, BLOCKS)
        self.ids = [f"{block:032x}" for block in range(BLOCKS)]
        self.tiers = TierHierarchy(HostTier(host), DiskTier(path / "blocks", disk), no_room)
        self.executor = Executor(self.arena, self.tiers, self.ids, codec, self)
        self.table = BlockTable.create([WIDTH] * BLOCKS, SLOTS, WIDTH)
        self.table.resident[:] = True
        self.knits: list[list[int]] = []
        self.original = [self.arena.read(slot) for slot in range(BLOCKS)]
        self.codec = codec

    def recompute(self, block):
        first = block * WIDTH
        return self.engine.compute_block(
            self.tokens[:first].tolist(), self.tokens[first : first + WIDTH].tolist()
        )

    def knit(self, slots):
        self.knits.append(list(slots))
        blocks = [int(self.arena.occupant[slot]) for slot in slots]
        ids = np.concatenate([self.tokens[b * WIDTH : (b + 1) * WIDTH] for b in blocks])
        self.engine.knit(ids, self.arena.tokens_of(slots), self.arena.row_positions(BLOCKS * WIDTH))

    def summarise(self, block, keys):
        return self.bounds.observe(block, keys)

    def at(self, slot: int) -> int:
        return self.executor.space.device(slot)

    @property
    def size(self) -> int:
        return self.arena.slot_bytes

    def run(self, *instructions, positions=None):
        outcomes = self.executor.run(Program(instructions), self.table, positions)
        for block in range(BLOCKS):
            self.table.resident[block] = self.arena.slot_of(block) != FREE
        return outcomes

    def store(self, *blocks: int):
        return self.run(*(CompressP2(self.at(self.arena.slot_of(b)), self.size, self.codec) for b in blocks))

    def error(self, slot: int, block: int) -> float:
        """Largest difference from what was computed, over the largest value."""
        pairs = zip(self.arena.read(slot), self.original[block], strict=True)
        return max(float((got - kept).abs().max() / kept.abs().max()) for got, kept in pairs)

    def damage(self, block: int, tier: Tier) -> None:
        if tier is Tier.DISK:
            path = self.tiers.disk.path_of(self.ids[block])
            data = bytearray(path.read_bytes())
            data[-9] ^= 1
            path.write_bytes(data)
        else:
            entry = self.tiers.host._entries[self.ids[block]]
            payload = bytearray(entry.record.payload)
            payload[40] ^= 1
            object.__setattr__(entry.record, "payload", bytes(payload))


def snapshot(machine: Machine):
    return (
        machine.arena._storage.clone(),
        machine.arena.occupant.copy(),
        machine.arena.position.copy(),
        machine.tiers.host.used_bytes,
        machine.tiers.disk.used_bytes,
    )


def check_unchanged(machine: Machine, before) -> None:
    for now, then in zip(snapshot(machine), before, strict=True):
        same = torch.equal if isinstance(now, torch.Tensor) else np.array_equal
        assert same(now, then)


def check_done(outcomes) -> None:
    for outcome in outcomes:
        assert outcome.status is OutcomeStatus.DONE, outcome
        assert outcome.bytes > 0 and outcome.nanoseconds > 0


@every_codec
@pytest.mark.parametrize("source", [Tier.HOST, Tier.DISK])
def test_what_is_compressed_and_evicted_comes_back(codec, source, tmp_path):
    m = Machine(tmp_path, codec)
    space = m.executor.space
    check_done(m.run(CompressP2(m.at(1), 2 * m.size, codec), EvictP3(m.at(1), 2 * m.size)))
    assert m.arena.occupant.tolist() == [0, FREE, FREE, 3, 4, 5, FREE, FREE]
    m.arena.slot_view(1).fill_(99.0)
    m.arena.slot_view(2).fill_(99.0)
    address = space.host(1) if source is Tier.HOST else space.disk(1)
    if source is Tier.DISK:
        check_done(m.run(Spill(space.host(1), 2 * m.size)))
    positions = {1: 300, 2: 16}  # block 1 goes to another position
    check_done(m.run(MoveP0(address, m.at(1), 2 * m.size), positions=positions))
    assert m.arena.position[1:3].tolist() == [300, 16]
    assert m.error(1, 1) <= ERRORS[codec] and m.error(2, 2) <= ERRORS[codec]
    assert m.executor.corrupt_blocks == m.executor.recomputed_tokens == 0
    m.arena.relocate(1, 16)
    assert m.error(1, 1) <= ERRORS[codec]


@every_codec
def test_a_stored_block_is_in_both_tiers_with_its_bounds(codec, tmp_path):
    m = Machine(tmp_path, codec)
    outcome = m.store(3)[0]
    assert m.tiers.where(m.ids[3]) == {Tier.HOST, Tier.DISK} and outcome.reason == ""
    record = m.tiers.disk.get(m.ids[3])
    assert outcome.bytes == len(record.payload) and record.codec == codec
    fresh = KeyBounds(2, 2, 8, BLOCKS)
    assert fresh.restore(3, record.summary)
    assert np.array_equal(fresh._low[..., 3], m.bounds._low[..., 3])


def test_a_move_on_the_device_keeps_the_block_and_frees_the_source(tmp_path):
    m = Machine(tmp_path)
    check_done(m.run(MoveP0(m.at(5), m.at(7), m.size)))
    assert m.arena.occupant.tolist() == [0, 1, 2, 3, 4, FREE, FREE, 5]
    assert m.error(7, 5) <= 1e-5


def test_a_refused_program_changes_nothing(tmp_path):
    m = Machine(tmp_path)
    m.store(0, 1)
    m.table.pinned[2] = True
    before = snapshot(m)
    space = m.executor.space
    lawful = (EvictP3(m.at(1), m.size), MoveP0(space.host(1), m.at(6), m.size))
    for unlawful in (
        EvictP3(m.at(2), m.size),  # pinned
        MoveP0(space.host(0), m.at(7), m.size),  # on the device already
        MoveP0(m.at(0), m.at(3), m.size),  # occupied
        MoveP0(space.host(4), m.at(7), m.size),  # stored nowhere
        CompressP2(m.at(7), m.size, "RAW"),  # empty
        CompressP2(m.at(0), m.size, "MP3"),
        Spill(space.host(5), m.size),
        Prefetch(space.disk(5), m.size),
        Knit(m.at(7), m.size),
    ):
        with pytest.raises(VerificationError):
            m.run(*lawful, unlawful)
        check_unchanged(m, before)
    assert m.knits == []


@pytest.mark.parametrize("codec", ["RAW", "K8V4"])
def test_a_block_damaged_in_one_tier_is_read_from_the_other(codec, tmp_path):
    m = Machine(tmp_path, codec)
    m.store(2)
    m.run(EvictP3(m.at(2), m.size))
    m.damage(2, Tier.HOST)
    outcome = m.run(MoveP0(m.executor.space.host(2), m.at(2), m.size), positions={2: 32})[0]
    assert outcome.reason == "" and m.executor.corrupt_blocks == 0
    assert m.tiers.counters[Tier.HOST].corrupt_blocks == 1
    assert m.error(2, 2) <= ERRORS[codec]


@pytest.mark.parametrize("codec", ["RAW", "K8V4"])
def test_a_block_damaged_in_both_tiers_is_computed_again_and_counted(codec, tmp_path):
    m = Machine(tmp_path, codec)
    m.store(2)
    m.run(EvictP3(m.at(2), m.size))
    m.damage(2, Tier.HOST)
    m.damage(2, Tier.DISK)
    outcome = m.run(MoveP0(m.executor.space.host(2), m.at(2), m.size), positions={2: 32})[0]
    assert outcome.status is OutcomeStatus.DONE and outcome.reason.startswith("recomputed: ")
    assert (m.executor.corrupt_blocks, m.executor.recomputed_tokens) == (1, WIDTH)
    assert m.error(2, 2) <= 1e-4
    assert m.tiers.where(m.ids[2]) == {Tier.HOST, Tier.DISK}  # and sound again
    m.run(EvictP3(m.at(2), m.size), MoveP0(m.executor.space.disk(2), m.at(2), m.size), positions={2: 32})
    assert m.executor.corrupt_blocks == 1 and m.error(2, 2) <= ERRORS[codec]


def test_a_deleted_file_is_computed_again(tmp_path):
    m = Machine(tmp_path)
    m.store(4)
    m.run(Spill(m.executor.space.host(4), m.size), EvictP3(m.at(4), m.size))
    m.tiers.disk.path_of(m.ids[4]).unlink()
    outcome = m.run(MoveP0(m.executor.space.disk(4), m.at(4), m.size), positions={4: 64})[0]
    assert "recomputed" in outcome.reason and m.executor.corrupt_blocks == 1
    assert m.error(4, 4) <= 1e-4 and m.ids[4] in m.tiers


def test_a_recomputed_block_that_no_tier_can_take_is_still_loaded(tmp_path):
    m = Machine(tmp_path, host=1, disk=1 << 20)
    m.store(4)
    m.run(EvictP3(m.at(4), m.size))
    m.tiers.disk.path_of(m.ids[4]).unlink()
    m.tiers.disk._capacity = 1
    outcome = m.run(MoveP0(m.executor.space.disk(4), m.at(4), m.size), positions={4: 64})[0]
    assert "not stored" in outcome.reason and m.error(4, 4) <= 1e-4


@pytest.mark.parametrize("damaged", [False, True])
def test_prefetch_brings_a_block_to_host(damaged, tmp_path):
    m = Machine(tmp_path)
    m.store(0, 1)
    space = m.executor.space
    m.run(Spill(space.host(0), 2 * m.size))
    assert not m.executor.on_host(0) and not m.executor.on_host(1)
    if damaged:
        m.damage(1, Tier.DISK)
    check_done(m.run(Prefetch(space.disk(0), 2 * m.size)))
    assert m.executor.on_host(0) and m.executor.on_host(1)
    assert m.executor.corrupt_blocks == int(damaged)
    assert m.tiers.where(m.ids[0]) == {Tier.HOST, Tier.DISK}


def test_prefetch_without_room_on_host_is_deferred(tmp_path):
    m = Machine(tmp_path, host=1)
    m.store(0)
    outcome = m.run(Prefetch(m.executor.space.disk(0), m.size))[0]
    assert outcome.status is OutcomeStatus.DEFERRED and "host tier" in outcome.reason and outcome.bytes == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_spill_frees_host_bytes_and_keeps_the_block(damaged, tmp_path):
    m = Machine(tmp_path)
    m.store(3)
    used = m.tiers.host.used_bytes
    if damaged:  # the only copy is damaged: it cannot be spilled as it is
        m.tiers.disk.delete(m.ids[3])
        m.damage(3, Tier.HOST)
    outcome = m.run(Spill(m.executor.space.host(3), m.size))[0]
    assert outcome.status is OutcomeStatus.DONE and outcome.bytes == used
    assert m.tiers.host.used_bytes == 0 and m.tiers.where(m.ids[3]) == {Tier.DISK}
    assert m.executor.corrupt_blocks == int(damaged)


def test_pin_and_unpin_say_what_became_of_them(tmp_path):
    m = Machine(tmp_path)
    pinned, unpinned = m.run(PinL2(m.at(1), 2 * m.size), Unpin(m.at(1), 2 * m.size))
    for outcome in (pinned, unpinned):
        assert outcome.nanoseconds > 0
        assert outcome.status is OutcomeStatus.DONE or (
            outcome.status is OutcomeStatus.DEFERRED and outcome.reason
        )
    if pinned.status is OutcomeStatus.DONE:
        assert pinned.bytes >= 2 * m.size


def test_knits_of_a_program_are_one_pass_that_changes_only_their_rows(tmp_path):
    m = Machine(tmp_path)
    m.arena.drop_tail()
    m.arena.slot_view(1).fill_(0.5)
    m.arena.slot_view(2).fill_(0.5)
    m.arena.slot_view(4).fill_(0.5)
    before = m.arena._storage.clone()
    outcomes = m.run(Knit(m.at(1), 2 * m.size), Knit(m.at(4), m.size))
    assert m.knits == [[1, 2, 4]]
    check_done(outcomes)
    assert [outcome.bytes for outcome in outcomes] == [2 * m.size, m.size]
    untouched = [slot for slot in range(SLOTS) if slot not in (1, 2, 4)]
    for slot in untouched:
        rows = m.arena.rows_of(slot)
        assert torch.equal(m.arena._storage[:, :, :, rows], before[:, :, :, rows])
    for slot in (1, 2, 4):  # computed again in full sight: what they were
        assert m.error(slot, slot) <= 1e-4


def test_knitting_blocks_that_saw_each_other_changes_nothing(tmp_path):
    m = Machine(tmp_path)
    m.arena.drop_tail()
    before = m.arena._storage.clone()
    m.run(Knit(m.at(0), BLOCKS * m.size))
    torch.testing.assert_close(m.arena._storage, before, atol=1e-4, rtol=1e-4)


def test_settle_rotates_only_blocks_in_sight_whose_position_changed(tmp_path):
    m = Machine(tmp_path)
    before = m.arena._storage.clone()
    m.arena.in_sight = 4
    m.executor.settle({0: 0, 1: 16, 2: 100, 3: 48})
    changed = [
        slot
        for slot in range(SLOTS)
        if not torch.equal(m.arena.slot_view(slot), before[:, :, :, m.arena.rows_of(slot)])
    ]
    assert changed == [2] and m.arena.position[2] == 100
    assert m.error(2, 2) <= 1e-5


def test_repair_writes_a_block_behind_without_loading_it(tmp_path):
    m = Machine(tmp_path)
    m.run(EvictP3(m.at(5), m.size))
    m.executor.repair(5)
    assert m.arena.slot_of(5) == FREE and m.ids[5] in m.tiers
    assert (m.executor.corrupt_blocks, m.executor.recomputed_tokens) == (1, WIDTH)
    m.run(MoveP0(m.executor.space.host(5), m.at(5), m.size), positions={5: 80})
    assert m.error(5, 5) <= 1e-4


def test_the_address_space_grows_with_the_conversation(tmp_path):
    m = Machine(tmp_path)
    m.ids.append("f" * 32)
    assert m.executor.space.blocks == BLOCKS + 1
