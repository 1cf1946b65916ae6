"""Tiers: budgets are hard, damage is found, nothing stored is lost by a failure elsewhere."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zerolayer.core import Tier
from zerolayer.errors import (
    BlockCorruptError,
    BlockMissingError,
    StoreError,
    StoreFullError,
    StoreVersionError,
)
from zerolayer.execution.tiers import BlockRecord, DiskTier, HostTier, TierHierarchy
from zerolayer.execution.tiers import blockfile as layout

KEYS = [f"{number:04x}{'a' * 28}" for number in range(12)]


def record(size: int, fill: int = 1, summary: bytes = b"bounds") -> BlockRecord:
    return BlockRecord(bytes([fill]) * size, summary, "K8V4", {"tokens": 64})


OVERHEAD = record(0).nbytes


def make(kind: str, tmp_path: Path, capacity: int):
    return HostTier(capacity) if kind == "host" else DiskTier(tmp_path / "blocks", capacity)


def no_room(nbytes: int) -> None:
    raise StoreFullError(f"{nbytes} bytes cannot be made free")


both = pytest.mark.parametrize("kind", ["host", "disk"])


@both
def test_a_record_comes_back_whole(kind, tmp_path):
    store = make(kind, tmp_path, 10_000)
    stored = record(1000)
    store.put(KEYS[0], stored)
    assert store.get(KEYS[0]) == stored
    assert store.get_summary(KEYS[0]) == b"bounds"
    assert store.size_of(KEYS[0]) == stored.nbytes == store.used_bytes
    assert KEYS[0] in store and list(store.keys()) == [KEYS[0]]


@both
def test_an_empty_record_is_a_record(kind, tmp_path):
    store = make(kind, tmp_path, 10_000)
    store.put(KEYS[0], BlockRecord(b""))
    assert store.get(KEYS[0]) == BlockRecord(b"")


@both
def test_absent_blocks_are_missing(kind, tmp_path):
    store = make(kind, tmp_path, 10_000)
    for ask in (store.get, store.get_summary, store.size_of, store.delete):
        with pytest.raises(BlockMissingError, match=f"{KEYS[1]} is not in the {kind} tier"):
            ask(KEYS[1])


@both
def test_what_does_not_fit_changes_nothing(kind, tmp_path):
    store = make(kind, tmp_path, 2000)
    store.put(KEYS[0], record(1000, 1))
    with pytest.raises(StoreFullError, match=f"--{kind}-budget"):
        store.put(KEYS[1], record(1000))
    with pytest.raises(StoreFullError):
        store.put(KEYS[0], record(2000, 2))
    assert store.get(KEYS[0]) == record(1000, 1)
    assert list(store.keys()) == [KEYS[0]]
    store.put(KEYS[0], record(2000 - OVERHEAD, 3))  # a replacement needs only the difference
    assert store.free_bytes == 0


@both
@pytest.mark.parametrize("key", ["", "ab", "../../etc/passwd", "ABCDEF00", "abcg", "a" * 65])
def test_ids_that_are_not_hexadecimal_are_refused(kind, tmp_path, key):
    with pytest.raises(StoreError, match="hexadecimal"):
        make(kind, tmp_path, 10_000).put(key, record(1))


def test_damage_in_host_memory_is_found():
    store = HostTier(10_000)
    payload = bytearray(b"x" * 100)
    summary = bytearray(b"y" * 10)
    store.put(KEYS[0], BlockRecord(payload, summary))  # type: ignore[arg-type]  # mutable on purpose
    payload[50] ^= 1
    with pytest.raises(BlockCorruptError):
        store.get(KEYS[0])
    summary[5] ^= 1
    with pytest.raises(BlockCorruptError):
        store.get_summary(KEYS[0])


def test_every_flipped_bit_of_a_header_is_found(tmp_path):
    store = DiskTier(tmp_path, 10_000)
    store.put(KEYS[0], record(300))
    path = store.path_of(KEYS[0])
    sound = path.read_bytes()
    for position in range(layout.HEADER_BYTES):
        for bit in range(8):
            broken = bytearray(sound)
            broken[position] ^= 1 << bit
            path.write_bytes(broken)
            with pytest.raises(BlockCorruptError):
                store.get(KEYS[0])
            assert store.stored_prefix(KEYS[:1]) == 0
    path.write_bytes(sound)
    assert store.get(KEYS[0]) == record(300)


def test_flipped_bits_of_metadata_summary_and_payload_are_found(tmp_path):
    store = DiskTier(tmp_path, 100_000)
    store.put(KEYS[0], record(20_000))
    path = store.path_of(KEYS[0])
    sound = path.read_bytes()
    summary_start = layout.HEADER_BYTES + len(layout.encode_meta({"tokens": 64}))
    positions = [
        *range(layout.HEADER_BYTES, summary_start + 6),
        *random.Random(0).sample(range(200, 20_000), 100),
    ]
    for position in positions:
        broken = bytearray(sound)
        broken[position] ^= 1 << (position % 8)
        path.write_bytes(broken)
        with pytest.raises(BlockCorruptError, match="recomputed"):
            store.get(KEYS[0])
        if position >= summary_start + 6:
            assert store.get_summary(KEYS[0]) == b"bounds"


def test_truncated_and_lengthened_files_are_found(tmp_path):
    store = DiskTier(tmp_path, 10_000)
    store.put(KEYS[0], record(300))
    path = store.path_of(KEYS[0])
    sound = path.read_bytes()
    for broken in (*(sound[:n] for n in range(0, len(sound), 7)), sound + b"\0"):
        path.write_bytes(broken)
        with pytest.raises(BlockCorruptError):
            store.get(KEYS[0])
        assert store.stored_prefix(KEYS[:1]) == 0


def test_a_block_under_the_name_of_another_is_found(tmp_path):
    store = DiskTier(tmp_path, 10_000)
    store.put(KEYS[0], record(30))
    store.put(KEYS[1], record(40))
    store.path_of(KEYS[0]).replace(store.path_of(KEYS[1]))
    with pytest.raises(BlockCorruptError, match="another block"):
        store.get(KEYS[1])
    with pytest.raises(BlockMissingError):  # and the file that went away is accounted for
        store.get(KEYS[0])
    assert store.used_bytes == record(40).nbytes


def test_another_format_version_is_told_from_damage(tmp_path, monkeypatch):
    store = DiskTier(tmp_path, 10_000)
    monkeypatch.setattr(layout, "FORMAT_VERSION", 9)
    store.put(KEYS[0], record(30))
    monkeypatch.undo()
    with pytest.raises(StoreVersionError, match="block format 9, this zerolayer reads 1"):
        store.get(KEYS[0])


def test_reopening_finds_the_blocks_and_sweeps_leftovers(tmp_path):
    store = DiskTier(tmp_path, 10_000)
    for key in KEYS[:3]:
        store.put(key, record(100))
    leftover = store.path_of(KEYS[0]).parent / f".{KEYS[5]}.kv.{os.getpid()}.7.tmp"
    leftover.write_bytes(b"half a block")
    again = DiskTier(tmp_path, 10_000)
    assert sorted(again.keys()) == KEYS[:3]
    assert again.used_bytes == store.used_bytes
    assert not leftover.exists()
    assert again.stored_prefix([*KEYS[:3], KEYS[7], KEYS[0]]) == 3
    again.sync()


def test_a_smaller_budget_loses_nothing(tmp_path):
    DiskTier(tmp_path, 10_000).put(KEYS[0], record(1000))
    store = DiskTier(tmp_path, 10)
    assert store.get(KEYS[0]) == record(1000)
    assert store.free_bytes == 0
    with pytest.raises(StoreFullError):
        store.put(KEYS[1], record(1))


def fail_with(code: int, after: int = 0):
    """A system call that works `after` times and then fails."""
    state = {"left": after}

    def wrap(real):
        def call(*args, **kwargs):
            if state["left"] > 0:
                state["left"] -= 1
                return real(*args, **kwargs)
            raise OSError(code, os.strerror(code))

        return call

    return wrap


@pytest.mark.parametrize("call", ["replace", "write", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_device_is_said_and_loses_nothing(tmp_path, monkeypatch, call, code):
    store = DiskTier(tmp_path, 100_000)
    store.put(KEYS[0], record(1000, 1))
    monkeypatch.setattr(os, call, fail_with(code)(getattr(os, call)))
    for key in KEYS[:2]:  # replacing an old block and writing a new one
        with pytest.raises(StoreFullError, match=r"no space left while writing .*\.kv.*free disk space"):
            store.put(key, record(2000, 2))
    monkeypatch.undo()
    assert store.get(KEYS[0]) == record(1000, 1)
    assert KEYS[1] not in store
    assert store.used_bytes == record(1000).nbytes
    assert not list(tmp_path.rglob("*.tmp"))


def test_other_failures_of_the_system_are_not_called_full(tmp_path, monkeypatch):
    store = DiskTier(tmp_path, 100_000)
    monkeypatch.setattr(os, "replace", fail_with(errno.EACCES)(os.replace))
    with pytest.raises(StoreError, match="check that the directory") as caught:
        store.put(KEYS[0], record(10))
    assert not isinstance(caught.value, StoreFullError)


def test_a_write_that_the_kernel_cuts_short_leaves_no_trace(tmp_path):
    store = DiskTier(tmp_path, 1_000_000)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StoreFullError):
            store.put(KEYS[0], record(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    store.put(KEYS[0], record(10_000))


WRITER = """
import sys
from pathlib import Path
from zerolayer.execution.tiers import BlockRecord, DiskTier
store = DiskTier(Path(sys.argv[1]), 1 << 40)
for number in range(100_000):
    store.put(f"{number:08x}", BlockRecord(bytes([number % 256]) * 200_000, b"s" * 100))
    if number == 20:
        print("go", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.013, 0.031])
def test_a_killed_writer_leaves_only_whole_blocks(tmp_path, delay):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"go\n"
        time.sleep(delay)
        writer.kill()
    store = DiskTier(tmp_path, 1 << 40)
    found = sorted(store.keys())
    assert len(found) > 20
    assert found == [f"{number:08x}" for number in range(len(found))]
    for key in found:
        assert store.get(key).payload == bytes([int(key, 16) % 256]) * 200_000
    assert store.stored_prefix([*found, "ffffffff"]) == len(found)
    assert not list(tmp_path.rglob("*.tmp"))


class StoreMachine(RuleBasedStateMachine):
    """One tier against a dict."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.model: dict[str, BlockRecord] = {}

    @initialize(kind=st.sampled_from(["host", "disk"]), capacity=st.integers(0, 2000))
    def create(self, kind, capacity):
        self.kind = kind
        self.store = make(kind, Path(self.directory.name), capacity)

    @rule(key=st.sampled_from(KEYS[:5]), size=st.integers(0, 900), fill=st.integers(0, 255))
    def put(self, key, size, fill):
        stored = record(size, fill)
        others = sum(other.nbytes for name, other in self.model.items() if name != key)
        if others + stored.nbytes <= self.store.capacity_bytes:
            self.store.put(key, stored)
            self.model[key] = stored
        else:
            with pytest.raises(StoreFullError):
                self.store.put(key, stored)

    @rule(key=st.sampled_from(KEYS[:5]))
    def delete(self, key):
        if key in self.model:
            self.store.delete(key)
            del self.model[key]
        else:
            with pytest.raises(BlockMissingError):
                self.store.delete(key)

    @rule()
    def reopen(self):
        if self.kind == "disk":
            self.store = DiskTier(self.store.root, self.store.capacity_bytes)

    @invariant()
    def laws(self):
        if hasattr(self, "store"):
            assert self.store.used_bytes + self.store.free_bytes == self.store.capacity_bytes
            assert self.store.used_bytes == sum(stored.nbytes for stored in self.model.values())
            assert {key: self.store.get(key) for key in self.store.keys()} == self.model  # noqa: SIM118

    def teardown(self):
        self.directory.cleanup()


class HierarchyMachine(RuleBasedStateMachine):
    """Whatever is written is readable until it is deleted, with both budgets held."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.model: dict[str, BlockRecord] = {}

    @initialize(host=st.integers(0, 1500), disk=st.integers(0, 2500), grants=st.integers(0, 1500))
    def create(self, host, disk, grants):
        self.grants = grants
        self.host = HostTier(host)
        self.disk = DiskTier(Path(self.directory.name), disk, self.extend)
        self.budget = disk + grants
        self.tiers = TierHierarchy(self.host, self.disk, self.reserve)
        self.allowed = False

    def extend(self, nbytes):
        if not self.allowed or nbytes > self.grants:
            return 0
        self.grants -= nbytes
        return nbytes

    def reserve(self, nbytes):
        if nbytes > self.grants:
            no_room(nbytes)
        self.allowed = True

    @rule(key=st.sampled_from(KEYS[:6]), size=st.integers(0, 700), fill=st.integers(0, 255))
    def write(self, key, size, fill):
        stored = record(size, fill)
        try:
            where = self.tiers.write_behind(key, stored)
        except StoreFullError:
            return
        assert where == self.tiers.where(key) != frozenset()
        self.model[key] = stored

    @rule(key=st.sampled_from(KEYS[:6]))
    def spill(self, key):
        try:
            self.tiers.spill(key)
        except BlockMissingError:
            assert key not in self.model
        except StoreFullError:
            assert self.tiers.where(key) == {Tier.HOST}
        else:
            assert self.tiers.where(key) == {Tier.DISK}

    @rule(key=st.sampled_from(KEYS[:6]))
    def promote(self, key):
        try:
            assert self.tiers.promote(key) == (Tier.HOST in self.tiers.where(key))
        except BlockMissingError:
            assert key not in self.model

    @rule(key=st.sampled_from(KEYS[:6]))
    def delete(self, key):
        if key in self.model:
            self.tiers.delete(key)
            del self.model[key]
        assert not self.tiers.where(key)
        with pytest.raises(BlockMissingError):
            self.tiers.read(key)

    @rule(keys=st.sets(st.sampled_from(KEYS[:6])))
    def protect(self, keys):
        self.tiers.protected = keys

    @rule(key=st.sampled_from(KEYS[:6]), which=st.sampled_from(["host", "disk"]))
    def damage_one_of_two_copies(self, key, which):
        if self.tiers.where(key) != {Tier.HOST, Tier.DISK}:
            return
        if which == "disk":
            path = self.disk.path_of(key)
            broken = bytearray(path.read_bytes())
            broken[-1] ^= 1
            path.write_bytes(broken)
            self.host.get(key)
            self.disk.put(key, self.model[key])  # host still serves; heal, so that a later drop is legal
        else:
            entry = self.host._entries[key]
            self.host._entries[key] = type(entry)(
                entry.record, entry.nbytes, entry.check ^ 1, entry.summary_check
            )

    @invariant()
    def laws(self):
        if not hasattr(self, "tiers"):
            return
        for store in (self.host, self.disk):
            assert store.used_bytes + store.free_bytes == store.capacity_bytes
            assert store.used_bytes == sum(store.size_of(key) for key in store.keys())  # noqa: SIM118
        assert self.disk.used_bytes <= self.budget
        assert set(self.tiers.keys()) == set(self.model)
        for key, stored in self.model.items():
            assert self.tiers.read(key) == stored
            assert self.tiers.get_summary(key) == stored.summary

    def teardown(self):
        self.directory.cleanup()


TestStoreLaws = StoreMachine.TestCase
TestHierarchyLaws = HierarchyMachine.TestCase
TestStoreLaws.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestHierarchyLaws.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


def hierarchy(tmp_path, host: int, disk: int, reserve=no_room) -> TierHierarchy:
    return TierHierarchy(HostTier(host), DiskTier(tmp_path, disk), reserve)


SIZE = record(400).nbytes


def test_host_drops_the_least_recently_used_copy_and_protected_ones_last(tmp_path):
    tiers = hierarchy(tmp_path, 3 * SIZE, 100 * SIZE)
    for key in KEYS[:3]:
        tiers.write_behind(key, record(400))
    tiers.protected = {KEYS[0]}
    tiers.read(KEYS[1])
    tiers.write_behind(KEYS[3], record(400))  # KEYS[2]: least recently used of the unprotected
    assert list(tiers.host.keys()) == [KEYS[0], KEYS[1], KEYS[3]]
    tiers.protected = set(KEYS[:4])
    tiers.write_behind(KEYS[4], record(400))  # nothing else is left
    assert list(tiers.host.keys()) == [KEYS[1], KEYS[3], KEYS[4]]
    assert tiers.counters[Tier.HOST].dropped_bytes == 2 * SIZE
    assert all(tiers.read(key) == record(400) for key in KEYS[:5])


def test_a_block_too_large_for_host_costs_no_copies(tmp_path):
    tiers = hierarchy(tmp_path, 2 * SIZE, 100 * SIZE)
    tiers.write_behind(KEYS[0], record(400))
    assert tiers.write_behind(KEYS[1], record(5000)) == {Tier.DISK}
    assert list(tiers.host.keys()) == [KEYS[0]]


def test_reading_promotes_only_into_free_space_and_promote_makes_room(tmp_path):
    tiers = hierarchy(tmp_path, 2 * SIZE, 100 * SIZE)
    for key in KEYS[:3]:
        tiers.write_behind(key, record(400))
    tiers.read(KEYS[0])
    assert tiers.where(KEYS[0]) == {Tier.DISK}
    assert tiers.promote(KEYS[0])
    assert tiers.where(KEYS[1]) == {Tier.DISK}
    tiers.spill(KEYS[2])
    tiers.read(KEYS[1])
    assert tiers.where(KEYS[1]) == {Tier.HOST, Tier.DISK}


def test_a_full_disk_keeps_new_blocks_in_host_and_never_drops_them(tmp_path, caplog):
    tiers = hierarchy(tmp_path, 2 * SIZE, SIZE)
    assert tiers.write_behind(KEYS[0], record(400)) == {Tier.HOST, Tier.DISK}
    assert tiers.write_behind(KEYS[1], record(400)) == {Tier.HOST}
    assert "host memory only" in caplog.text
    assert tiers.write_behind(KEYS[2], record(400)) == {Tier.HOST}  # in place of the copy of KEYS[0]
    with pytest.raises(StoreFullError):
        tiers.write_behind(KEYS[3], record(400))
    assert [sorted(tiers.where(key)) for key in KEYS[:4]] == [["disk"], ["host"], ["host"], []]
    with pytest.raises(StoreFullError):
        tiers.spill(KEYS[1])
    assert all(tiers.read(key) == record(400) for key in KEYS[:3])
    assert tiers.counters[Tier.DISK].refused_writes == 4


def test_a_full_disk_asks_for_room_once_and_tries_again(tmp_path):
    asked: list[int] = []

    def reserve(nbytes):
        asked.append(nbytes)
        tiers.disk.delete(KEYS[0])

    tiers = hierarchy(tmp_path, 0, SIZE, reserve)
    tiers.write_behind(KEYS[0], record(400))
    assert tiers.write_behind(KEYS[1], record(400)) == {Tier.DISK}
    assert asked == [SIZE]


def test_a_device_without_space_keeps_blocks_in_host(tmp_path, monkeypatch):
    tiers = hierarchy(tmp_path, 10 * SIZE, 10 * SIZE, lambda nbytes: [])
    tiers.write_behind(KEYS[0], record(400))
    monkeypatch.setattr(os, "write", fail_with(errno.ENOSPC)(os.write))
    assert tiers.write_behind(KEYS[1], record(400)) == {Tier.HOST}
    monkeypatch.undo()
    assert tiers.spill(KEYS[1]) == SIZE
    assert tiers.read(KEYS[1]) == record(400)


def test_the_other_copy_is_read_when_one_is_damaged(tmp_path, caplog):
    tiers = hierarchy(tmp_path, 10 * SIZE, 10 * SIZE)
    payload = bytearray(b"x" * 400)
    tiers.write_behind(KEYS[0], BlockRecord(payload))  # type: ignore[arg-type]  # mutable on purpose
    payload[3] ^= 1
    assert tiers.read(KEYS[0]).payload == b"x" * 400
    assert tiers.counters[Tier.HOST].corrupt_blocks == 1
    assert tiers.host.get(KEYS[0]).payload == b"x" * 400  # healed from disk


def test_when_no_copy_is_sound_the_block_is_corrupt_then_gone_then_writable(tmp_path, caplog):
    tiers = hierarchy(tmp_path, 0, 10 * SIZE)
    tiers.write_behind(KEYS[0], record(400))
    path = tiers.disk.path_of(KEYS[0])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(BlockCorruptError):
        tiers.read(KEYS[0])
    with pytest.raises(BlockMissingError):
        tiers.read(KEYS[0])
    assert tiers.counters[Tier.DISK].corrupt_blocks == 1
    tiers.write_behind(KEYS[0], record(400))
    assert tiers.read(KEYS[0]) == record(400)


def test_counters_count_bytes(tmp_path):
    tiers = hierarchy(tmp_path, 10 * SIZE, 10 * SIZE)
    tiers.write_behind(KEYS[0], record(400))
    tiers.read(KEYS[0])
    tiers.spill(KEYS[0])
    tiers.read(KEYS[0])
    host, disk = tiers.counters[Tier.HOST], tiers.counters[Tier.DISK]
    assert (host.written_bytes, host.read_bytes, host.dropped_bytes) == (2 * SIZE, SIZE, SIZE)
    assert (disk.written_bytes, disk.read_bytes) == (SIZE, SIZE)
