"""One host tier for several folders: equal ids do not mix, and the least recently used of all make room."""

from __future__ import annotations

from zerolayer.errors import StoreFullError
from zerolayer.execution.tiers import BlockRecord, DiskTier, TierHierarchy
from zerolayer.server.sharing import SharedHost

SESSIONS = ("a" * 32, "b" * 32)
KEY = "0123456789abcdef" * 2


def keys(count: int) -> list[str]:
    return [f"{number:032x}" for number in range(1, count + 1)]


def full(nbytes: int) -> None:
    raise StoreFullError(f"{nbytes} bytes cannot be made free")


def opened(tmp_path, capacity: int, disks: tuple[int, ...] = (1 << 20, 1 << 20)):
    """A hierarchy of each session over one host tier."""
    host = SharedHost(capacity)
    tiers = []
    for session, disk_bytes in zip(SESSIONS, disks, strict=True):
        hierarchy = TierHierarchy(host.share(session), DiskTier(tmp_path / session, disk_bytes), full)
        hierarchy.make_room = host.open(session, hierarchy.disk)
        tiers.append(hierarchy)
    return host, *tiers


def test_equal_ids_of_two_folders_are_two_blocks(tmp_path):
    _, one, two = opened(tmp_path, 1 << 20)
    one.write_behind(KEY, BlockRecord(b"one"))
    assert KEY not in two
    two.write_behind(KEY, BlockRecord(b"two"))
    assert (one.read(KEY).payload, two.read(KEY).payload) == (b"one", b"two")
    one.delete(KEY)
    assert two.read(KEY).payload == b"two"


def test_the_least_recently_used_of_all_sessions_make_room(tmp_path):
    size = BlockRecord(b"x" * 1000).nbytes
    host, one, two = opened(tmp_path, 4 * size)
    for key in keys(4):
        one.write_behind(key, BlockRecord(b"x" * 1000))
    one.read(keys(4)[0])
    two.write_behind(KEY, BlockRecord(b"y" * 1000))
    assert KEY in two.host and keys(4)[0] in one.host and keys(4)[1] not in one.host
    assert host.tier.used_bytes <= host.tier.capacity_bytes
    assert [one.read(key).payload for key in keys(4)] == [b"x" * 1000] * 4


def test_what_only_host_memory_holds_stays_whatever_another_folder_has(tmp_path):
    size = BlockRecord(b"x" * 1000).nbytes
    _, one, two = opened(tmp_path, 2 * size, disks=(1 << 20, 10))
    one.write_behind(KEY, BlockRecord(b"x" * 1000))
    two.write_behind(KEY, BlockRecord(b"x" * 1000))  # its disk is full
    for key in keys(6):
        one.write_behind(key, BlockRecord(b"z" * 1000))
    assert two.read(KEY).payload == b"x" * 1000


def test_copies_go_with_their_folder(tmp_path):
    host, one, two = opened(tmp_path, 1 << 20)
    one.write_behind(KEY, BlockRecord(b"one"))
    two.write_behind(KEY, BlockRecord(b"two"))
    host.close(SESSIONS[0])
    assert KEY not in one.host and KEY in two.host
    assert one.read(KEY).payload == b"one", "from disk"
