"""ARC: adapts between recency and frequency by ghost hits (Megiddo and Modha, FAST 2003)."""

from __future__ import annotations

from collections import OrderedDict

from zerolayer.decision.request_policy import Request

_List = OrderedDict[int, None]


class ArcRequestPolicy:
    """Two resident lists (seen once, seen again) and a ghost list of each; a ghost hit moves the split."""

    name = "arc"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._once: _List = OrderedDict()
        self._again: _List = OrderedDict()
        self._ghost_once: _List = OrderedDict()
        self._ghost_again: _List = OrderedDict()
        self._target = 0.0  # blocks that the first list should have

    def begin(self, request: Request) -> None:
        """Nothing: ARC knows references only."""

    def hit(self, block: int) -> None:
        """Seen again."""
        self._once.pop(block, None)
        self._again[block] = None
        self._again.move_to_end(block)

    def miss(self, block: int) -> int | None:
        """Cases II to IV of the paper."""
        ghosts, full = (self._ghost_once, self._ghost_again), self.capacity
        if block in self._ghost_once:
            self._target = min(full, self._target + max(1.0, len(ghosts[1]) / len(ghosts[0])))
            victim = self._replace(False)
            del self._ghost_once[block]
            self._again[block] = None
            return victim
        if block in self._ghost_again:
            self._target = max(0.0, self._target - max(1.0, len(ghosts[0]) / len(ghosts[1])))
            victim = self._replace(True)
            del self._ghost_again[block]
            self._again[block] = None
            return victim
        victim = self._make_room()
        self._once[block] = None
        return victim

    def _make_room(self) -> int | None:
        full = self.capacity
        if len(self._once) + len(self._ghost_once) >= full:
            if len(self._once) < full:
                self._ghost_once.popitem(last=False)
                return self._replace(False)
            return self._once.popitem(last=False)[0]
        lists = (self._once, self._again, self._ghost_once, self._ghost_again)
        if sum(map(len, lists)) >= 2 * full:
            self._ghost_again.popitem(last=False)
        return self._replace(False)

    def _replace(self, ghost_again: bool) -> int | None:
        if len(self._once) + len(self._again) < self.capacity:
            return None
        over = len(self._once) > self._target or (ghost_again and len(self._once) == self._target)
        if self._once and (over or not self._again):
            victim, ghost = self._once.popitem(last=False)[0], self._ghost_once
        else:
            victim, ghost = self._again.popitem(last=False)[0], self._ghost_again
        ghost[victim] = None
        return victim
