"""One host tier for many sessions: each sees its own blocks, and the least recently used of all make room.

Documents that begin alike have blocks with equal ids in several folders. A copy in host memory belongs to one folder:
it may go when that folder's disk holds the block, whatever the others hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zerolayer.core import Tier
from zerolayer.execution.tiers import BlockRecord, HostTier, TierStore

_NAME_DIGITS = 16
"""Digits of a session's id before each of its keys."""


class HostShare:
    """The blocks of one session's folder in a shared host tier; a TierStore."""

    def __init__(self, host: HostTier, name: str) -> None:
        self._host, self._name = host, name

    @property
    def tier(self) -> Tier:
        """Tier.HOST."""
        return Tier.HOST

    @property
    def capacity_bytes(self) -> int:
        """The budget of all sessions together."""
        return self._host.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """What all sessions use."""
        return self._host.used_bytes

    @property
    def free_bytes(self) -> int:
        """What still fits."""
        return self._host.free_bytes

    def put(self, key: str, record: BlockRecord) -> None:
        """See TierStore.put."""
        self._host.put(self._name + key, record)

    def get(self, key: str) -> BlockRecord:
        """See TierStore.get."""
        return self._host.get(self._name + key)

    def get_summary(self, key: str) -> bytes:
        """See TierStore.get_summary."""
        return self._host.get_summary(self._name + key)

    def size_of(self, key: str) -> int:
        """See TierStore.size_of."""
        return self._host.size_of(self._name + key)

    def delete(self, key: str) -> None:
        """See TierStore.delete."""
        self._host.delete(self._name + key)

    def keys(self) -> Iterator[str]:
        """Ids of this session's blocks, least recently used first."""
        held = list(self._host.keys())
        return (key.removeprefix(self._name) for key in held if key.startswith(self._name))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._name + key in self._host


class SharedHost:
    """A host tier of `capacity_bytes` for sessions of several folders."""

    def __init__(self, capacity_bytes: int) -> None:
        self.tier = HostTier(capacity_bytes)
        self._disks: dict[str, TierStore] = {}

    def share(self, session_id: str) -> HostShare:
        """This session's part."""
        return HostShare(self.tier, session_id[:_NAME_DIGITS])

    def open(self, session_id: str, disk: TierStore) -> Callable[[int, str], bool]:
        """A session's folder is open: its blocks on `disk` may leave host memory. Returns what makes room for it."""
        name = session_id[:_NAME_DIGITS]
        self._disks[name] = disk
        return lambda shortage, incoming: self._make_room(shortage, name + incoming)

    def close(self, session_id: str) -> None:
        """Nobody has the folder open any more: its copies go."""
        name = session_id[:_NAME_DIGITS]
        self._disks.pop(name, None)
        held = list(self.tier.keys())
        for key in held:
            if key.startswith(name):
                self.tier.delete(key)

    def _make_room(self, shortage: int, incoming: str) -> bool:
        """Drop copies of at least `shortage` bytes, or none: the least recently used first."""
        if shortage <= 0:
            return True
        victims, held = [], list(self.tier.keys())
        for key in held:
            disk = self._disks.get(key[:_NAME_DIGITS])
            if key != incoming and (disk is None or key[_NAME_DIGITS:] in disk):
                victims.append(key)
                shortage -= self.tier.size_of(key)
                if shortage <= 0:
                    for victim in victims:
                        self.tier.delete(victim)
                    return True
        return False
