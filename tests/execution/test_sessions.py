"""Sessions: found again after any kill, evicted whole and in order of use, shared between processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zerolayer.core import Tier
from zerolayer.errors import (
    StoreError,
    StoreFullError,
    StoreModelError,
    StoreVersionError,
    UnknownNameError,
)
from zerolayer.execution.tiers import BlockRecord, HostTier, SessionInfo, SessionStore, TierHierarchy
from zerolayer.execution.tiers.files import exclusive

RECORD = BlockRecord(b"p" * 900, b"s" * 20, "K8V4")
SIZE = RECORD.nbytes


def info(name: str, **changes) -> SessionInfo:
    return replace(SessionInfo(name, f"{name}.pdf", "model-1", "K8V4", 64), **changes)


def keys(count: int) -> list[str]:
    return [f"{number:08x}" for number in range(count)]


def fill(store: SessionStore, name: str, blocks: int, close: bool = True) -> None:
    tier = store.open(info(name, block_ids=tuple(keys(blocks))))
    for key in keys(blocks):
        tier.put(key, RECORD)
    if close:
        store.close(name)


def names(store: SessionStore) -> list[str]:
    return [session.info.id for session in store.list()]


def test_a_session_is_there_again_in_another_process(tmp_path):
    fill(SessionStore(tmp_path, 100 * SIZE), "a", 3)
    store = SessionStore(tmp_path, 100 * SIZE)
    (listed,) = store.list()
    assert (listed.info.title, listed.info.grade, listed.in_use, listed.nbytes) == (
        "a.pdf",
        "P3",
        False,
        3 * SIZE,
    )
    tier = store.open(info("a"))
    assert tier.get(keys(1)[0]) == RECORD
    assert store.info("a").block_ids == tuple(keys(3))
    assert store.stored_prefix("a", [*keys(3), "ffff"]) == 3
    (listed,) = store.list()
    assert (listed.info.grade, listed.in_use) == ("P1", True)


def test_the_description_is_kept_and_renewed(tmp_path):
    store = SessionStore(tmp_path, 100 * SIZE)
    store.open(info("a"))
    first = store.info("a")
    assert first.created == first.last_used > 0
    store.save(replace(first, tokens_total=640, block_ids=("aaaa", "bbbb")))
    store.close("a")
    store.open(info("a", title="renamed.pdf"))
    again = store.info("a")
    assert (again.title, again.tokens_total, again.block_ids) == ("renamed.pdf", 640, ("aaaa", "bbbb"))
    assert again.created == first.created
    assert again.last_used >= first.last_used


def test_opening_twice_gives_one_tier_that_lives_until_the_last_close(tmp_path):
    store = SessionStore(tmp_path, 100 * SIZE)
    tier = store.open(info("a"))
    assert store.open(info("a")) is tier
    store.close("a")
    tier.put("aaaa", RECORD)
    store.close("a")
    with pytest.raises(StoreError, match="closed"):
        tier.put("bbbb", RECORD)
    for ask in (store.close, lambda name: store.save(info(name)), lambda name: store.stored_prefix(name, [])):
        with pytest.raises(UnknownNameError, match="open session"):
            ask("a")


def test_another_model_is_refused_and_nothing_is_lost(tmp_path):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 2)
    with pytest.raises(StoreModelError, match=r"written by model model-1, not by model-2.*use that model"):
        store.open(info("a", model_fingerprint="model-2"))
    assert store.list()[0].nbytes == 2 * SIZE
    store.open(info("a"))


@pytest.mark.parametrize("file", ["index.json", "sessions/a/manifest.json"])
def test_another_version_is_refused_and_nothing_is_lost(tmp_path, file):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 2)
    path = tmp_path / file
    sound = path.read_text()
    path.write_text(json.dumps({**json.loads(sound), "version": 99}))
    with pytest.raises(StoreVersionError, match="store version 99, this zerolayer reads 1"):
        store.open(info("a"))
    path.write_text(sound)
    assert store.open(info("a")).get("00000000") == RECORD


def test_a_session_of_another_version_is_left_out_of_the_list_with_a_message(tmp_path, caplog):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 1)
    fill(store, "b", 1)
    (tmp_path / "sessions/a/manifest.json").write_text('{"version": 99}')
    assert names(store) == ["b"]
    assert "session a is left out" in caplog.text
    assert store.reserve(100 * SIZE) == ["a", "b"]  # and can still be evicted


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "session": {"id": 3}}']
)
@pytest.mark.parametrize("file", ["index.json", "sessions/a/manifest.json"])
def test_damaged_descriptions_lose_no_block(tmp_path, file, content, caplog):
    fill(SessionStore(tmp_path, 100 * SIZE), "a", 2)
    (tmp_path / file).write_text(content)
    store = SessionStore(tmp_path, 100 * SIZE)
    assert store.claimed_bytes == 2 * SIZE
    tier = store.open(info("a"))
    assert tier.stored_prefix(keys(3)) == 2
    assert caplog.records


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "é", "a" * 129])
def test_names_that_are_no_directory_names_are_refused(tmp_path, name):
    store = SessionStore(tmp_path, 100)
    for ask in (lambda: store.open(info(name)), lambda: store.delete(name), lambda: store.info(name)):
        with pytest.raises(StoreError, match="session id"):
            ask()


def test_deleting_a_session(tmp_path):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 2)
    fill(store, "b", 2, close=False)
    store.delete("a")
    assert names(store) == ["b"]
    assert store.reserve(0) == []
    with pytest.raises(StoreError, match=f"session b is open in process {os.getpid()}"):
        store.delete("b")
    with pytest.raises(UnknownNameError, match="unknown session 'c'; known: b"):
        store.delete("c")


def test_a_deletion_that_was_killed_half_way_is_completed(tmp_path, monkeypatch):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 2)
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # killed between rename and removal
    store.delete("a")
    monkeypatch.undo()
    assert list((tmp_path / "trash").iterdir())
    assert names(store) == []
    SessionStore(tmp_path, 100 * SIZE)
    assert not list((tmp_path / "trash").iterdir())


def test_least_recently_used_sessions_go_first_whatever_the_clock_says(tmp_path, monkeypatch, caplog):
    store = SessionStore(tmp_path, 9 * SIZE)
    clock = iter(range(10**9, 0, -(10**6)))  # runs backwards
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    for name in "abc":
        fill(store, name, 3)
    store.open(info("a"))
    store.close("a")
    assert names(store) == ["a", "c", "b"]
    assert store.reserve(4 * SIZE) == ["b", "c"]
    assert names(store) == ["a"]
    assert "session b (b.pdf" in caplog.text and "session c (c.pdf" in caplog.text
    assert store.reserve(4 * SIZE) == []


def test_reserve_keeps_what_it_must_and_refuses_before_it_deletes(tmp_path):
    store = SessionStore(tmp_path, 9 * SIZE)
    for name in "abc":
        fill(store, name, 3, close=name != "b")
    with pytest.raises(
        StoreFullError, match=rf"needs {7 * SIZE} bytes, at most {3 * SIZE} of its {9 * SIZE}"
    ):
        store.reserve(7 * SIZE, keep={"a"})
    assert sorted(names(store)) == ["a", "b", "c"]
    assert store.reserve(3 * SIZE, keep={"a"}) == ["c"]


def test_a_disk_that_others_filled_evicts_too(tmp_path, monkeypatch):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 3)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 0))
    assert store.reserve(2 * SIZE) == ["a"]


def test_sessions_claim_the_budget_as_they_grow_and_give_back_the_rest(tmp_path):
    store = SessionStore(tmp_path, 64 * SIZE)
    tiers = [store.open(info(name)) for name in "ab"]
    for key in keys(30):
        for tier in tiers:
            tier.put(key, RECORD)
        assert sum(tier.capacity_bytes for tier in tiers) <= store.claimed_bytes <= 64 * SIZE
    with pytest.raises(StoreFullError):
        for key in keys(60):
            tiers[0].put(key, RECORD)
    assert sum(tier.used_bytes for tier in tiers) <= 64 * SIZE
    store.close("a")
    store.close("b")
    assert store.claimed_bytes == sum(tier.used_bytes for tier in tiers)


def test_a_smaller_budget_opens_what_is_there_and_accepts_no_more(tmp_path):
    fill(SessionStore(tmp_path, 100 * SIZE), "a", 5)
    store = SessionStore(tmp_path, 2 * SIZE)
    tier = store.open(info("a"))
    assert tier.stored_prefix(keys(5)) == 5
    with pytest.raises(StoreFullError):
        tier.put("ffff", RECORD)


def test_a_hierarchy_on_a_full_store_evicts_the_oldest_session(tmp_path):
    store = SessionStore(tmp_path, 10 * SIZE)
    fill(store, "old", 4)
    fill(store, "new", 4)
    disk = store.open(info("mine"))
    tiers = TierHierarchy(HostTier(2 * SIZE), disk, lambda nbytes: store.reserve(nbytes, keep={"mine"}))
    for key in keys(6):
        tiers.write_behind(key, RECORD)
    assert names(store) == ["mine", "new"]
    assert disk.stored_prefix(keys(6)) == 6
    for key in keys(12):
        with suppress(StoreFullError):  # 10 on disk, 2 only in host
            tiers.write_behind(key, RECORD)
    assert names(store) == ["mine"]
    assert sum(Tier.DISK in tiers.where(key) for key in keys(12)) == 10
    assert disk.used_bytes <= 10 * SIZE


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_still_opens_and_reads_what_is_there(tmp_path, monkeypatch, caplog):
    store = SessionStore(tmp_path, 100 * SIZE)
    fill(store, "a", 2)
    monkeypatch.setattr(os, "write", full_disk)
    tier = store.open(info("a"))
    assert tier.get("00000000") == RECORD
    assert "not renewed" in caplog.text
    with pytest.raises(StoreFullError, match="no space left"):
        store.open(info("b"))
    with pytest.raises(StoreFullError, match="no space left"):
        tier.put("ffff", RECORD)
    store.close("a")
    monkeypatch.undo()
    assert store.open(info("a")).stored_prefix(keys(3)) == 2


PRELUDE = """
import sys
from pathlib import Path
from zerolayer.execution.tiers import BlockRecord, SessionInfo, SessionStore
record = BlockRecord(b"p" * 900, b"s" * 20, "K8V4")
root, budget, name, count = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
info = SessionInfo(name, name + ".pdf", "model-1", "K8V4", 64)
"""

READER = """
store = SessionStore(root, budget)
tier = store.open(info)
for number in range(count):
    tier.put(f"{number:08x}", record)
    store.save(SessionInfo(name, name + ".pdf", "model-1", "K8V4", 64, number * 64))
    if number == 5:
        print("go", flush=True)
"""

HOLDER = (
    READER
    + """
print("open", flush=True)
sys.stdin.read()
"""
)

CHURN = """
for turn in range(count):
    store = SessionStore(root, budget)
    with store:
        tier = store.open(SessionInfo(f"{name}{turn % 3}", "x", "model-1", "K8V4", 64))
        for number in range(6):
            key = f"{number:08x}"
            try:
                tier.put(key, record)
            except StoreFullError:
                try:
                    store.reserve(record.nbytes)
                except StoreFullError:
                    pass
        for key in tier.keys():
            assert tier.get(key) == record
"""


def start(script: str, root: Path, budget: int, name: str, count: int) -> subprocess.Popen[bytes]:
    code = PRELUDE + "from zerolayer.errors import StoreFullError\n" + script
    command = [sys.executable, "-c", code, str(root), str(budget), name, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("delay", [0.0, 0.007, 0.02])
def test_a_read_that_was_killed_resumes_where_it_stopped(tmp_path, delay):
    with start(READER, tmp_path, 10**9, "a", 10**6) as reader:
        assert reader.stdout.readline() == b"go\n"
        time.sleep(delay)
        reader.kill()
    store = SessionStore(tmp_path, 10**9)
    tier = store.open(info("a"))
    found = len(list(tier.keys()))
    assert found >= 6
    assert store.stored_prefix("a", keys(found + 1)) == found
    assert store.info("a").tokens_total <= found * 64
    assert all(tier.get(key) == RECORD for key in keys(found))
    assert not list(tmp_path.rglob("*.kv.*.tmp"))
    store.close("a")
    assert store.claimed_bytes == found * SIZE  # what the killed process had claimed beyond is free again


def test_what_another_process_has_open_is_not_evicted(tmp_path):
    store = SessionStore(tmp_path, 40 * SIZE)
    with start(HOLDER, tmp_path, 40 * SIZE, "other", 8) as holder:
        assert [holder.stdout.readline(), holder.stdout.readline()] == [b"go\n", b"open\n"]
        with pytest.raises(StoreFullError):
            store.reserve(40 * SIZE)
        with pytest.raises(StoreError, match=f"open in process {holder.pid}"):
            store.delete("other")
        tier = store.open(info("other"))  # reading along is allowed
        assert tier.stored_prefix(keys(9)) == 8
        store.close("other")
        holder.kill()
    assert store.reserve(40 * SIZE) == ["other"]


def test_processes_and_threads_on_one_store_do_not_corrupt_each_other(tmp_path):
    budget = 20 * SIZE
    over: list[int] = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            with exclusive(tmp_path / "lock"):  # nothing is evicted meanwhile; blocks are still written
                total = sum(path.stat().st_size for path in (tmp_path / "sessions").glob("*/blocks/*/*.kv"))
            if total > budget:
                over.append(total)
            done.wait(0.002)

    watcher = threading.Thread(target=watch)
    complaints: list[bytes] = []
    with ExitStack() as stack:
        processes = [
            stack.enter_context(start(CHURN, tmp_path, budget, name, 15)) for name in ("a", "b", "a")
        ]
        watcher.start()
        try:
            for process in processes:
                complaints.append(process.communicate(timeout=60)[1])
        finally:
            done.set()
            watcher.join()
            for process in processes:
                process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], b"".join(complaints).decode()
    assert b"is evicted" in b"".join(complaints)  # by whichever process needed the room
    assert not over
    store = SessionStore(tmp_path, budget)
    assert store.claimed_bytes == sum(session.nbytes for session in store.list()) <= budget


class SessionMachine(RuleBasedStateMachine):
    """Opening, growing, closing, evicting and reopening against a model of the order of use."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.blocks: dict[str, set[str]] = {}
        self.order: list[str] = []
        self.tiers: dict[str, object] = {}

    @initialize(budget=st.integers(4, 20))
    def create(self, budget):
        self.budget = budget * SIZE
        self.store = SessionStore(Path(self.directory.name), self.budget)

    @rule(name=st.sampled_from("abcd"))
    def open(self, name):
        if name not in self.tiers:
            self.tiers[name] = self.store.open(info(name))
            self.blocks.setdefault(name, set())
            self.order = [other for other in self.order if other != name] + [name]

    @rule(name=st.sampled_from("abcd"))
    def close(self, name):
        if self.tiers.pop(name, None) is not None:
            self.store.close(name)

    @rule(name=st.sampled_from("abcd"), count=st.integers(1, 6))
    def grow(self, name, count):
        if name in self.tiers:
            for key in keys(count):
                with suppress(StoreFullError):
                    self.tiers[name].put(key, RECORD)
                    self.blocks[name].add(key)

    @rule(count=st.integers(0, 20))
    def reserve(self, count):
        before = self.store.claimed_bytes
        evictable = [name for name in self.order if name not in self.tiers]
        try:
            evicted = self.store.reserve(count * SIZE)
        except StoreFullError:
            assert before - sum(len(self.blocks[n]) for n in evictable) * SIZE + count * SIZE > self.budget
            return
        assert evicted == evictable[: len(evicted)]
        for name in evicted:
            del self.blocks[name]
            self.order.remove(name)
        assert self.store.claimed_bytes + count * SIZE <= self.budget

    @rule()
    def restart(self):
        with self.store:
            pass
        self.tiers.clear()
        self.store = SessionStore(Path(self.directory.name), self.budget)

    @invariant()
    def laws(self):
        if not hasattr(self, "store"):
            return
        assert names(self.store) == self.order[::-1]
        assert self.store.claimed_bytes <= self.budget
        for name, tier in self.tiers.items():
            assert set(tier.keys()) == self.blocks[name]
            assert tier.used_bytes + tier.free_bytes == tier.capacity_bytes
            assert tier.used_bytes == len(self.blocks[name]) * SIZE

    def teardown(self):
        if hasattr(self, "store"):
            with self.store:
                pass
        self.directory.cleanup()


TestSessionLaws = SessionMachine.TestCase
TestSessionLaws.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
