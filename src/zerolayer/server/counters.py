"""Counters of the whole service since it started, its last events, and the static window over the same demand."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zerolayer.core import BlockTable
from zerolayer.decision import planner
from zerolayer.decision.policies.static_window import StaticWindowPolicy
from zerolayer.runtime.books import LoadBook, LoadCounts
from zerolayer.server.views import Percentiles, ServiceEvent

LATEST = 4096
"""Latencies that percentiles are of."""

WINDOW_RESERVE_BLOCKS = 4
"""Slots of the static window for a question and its answer, as in replays."""


def percentiles(values: Iterable[float]) -> Percentiles:
    """p50, p95 and p99 of the values, and their number."""
    found = np.asarray(list(values), dtype=np.float64)
    if not len(found):
        return Percentiles()
    p50, p95, p99 = (float(value) for value in np.percentile(found, (50, 95, 99)))
    return Percentiles(p50, p95, p99, len(found))


class WindowShadow:
    """The static window, simulated on the blocks that a live session's turns use. It moves nothing."""

    def __init__(self, blocks: int, capacity: int, block_tokens: int, sink_blocks: int) -> None:
        self.table = BlockTable.create([block_tokens] * blocks, capacity, block_tokens)
        self.table.pinned[:sink_blocks] = self.table.resident[:sink_blocks] = True
        self.table.resident[max(sink_blocks, blocks - (capacity - sink_blocks)) :] = True
        self._policy, self._book = StaticWindowPolicy(), LoadBook()

    def turn(self, used: Sequence[int], blocks: int) -> tuple[LoadCounts, int]:
        """One turn over `blocks` blocks that used these; what it would have moved, and the used blocks it had cut."""
        table = self.table
        if blocks > len(table):
            first = len(table)
            table.grow(blocks - first)
            room = planner.plan_room(self._policy, table, min(blocks - first, table.capacity // 2))
            self._apply(room.evict, ())
            table.resident[max(first, blocks - table.free) :] = True
        plan = planner.plan_turn(self._policy, table, WINDOW_RESERVE_BLOCKS)
        self._apply(plan.evict, plan.load)
        there = table.resident.copy()
        for block in sorted(used):
            if not table.resident[block]:
                fault = planner.plan_fault(self._policy, table, block, WINDOW_RESERVE_BLOCKS)
                self._apply(fault.evict, fault.load)
        table.touch(sorted(used))
        planner.end_turn(self._policy, table, list(used), np.zeros(len(table), dtype=np.float32))
        return self._book.end_turn(used, there), int((~there[list(used)]).sum())

    def _apply(self, evict: Sequence[int], load: Sequence[int]) -> None:
        self._book.note(evict, load)
        self.table.resident[list(evict)] = False
        self.table.resident[list(load)] = True
        self.table.touch(list(load))


@dataclass
class Counters:
    """Sums that only grow, and the latest latencies."""

    started: float = field(default_factory=time.time)
    sums: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    loads: LoadCounts = field(default_factory=LoadCounts)
    window: LoadCounts = field(default_factory=LoadCounts)
    p0_us: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    ttft_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    decode_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))


class EventLog:
    """The last events. Any thread may read."""

    def __init__(self, most: int) -> None:
        self._events: deque[ServiceEvent] = deque(maxlen=most)
        self._last = 0
        self._lock = threading.Lock()

    def add(self, kind: str, text: str, session: str = "", tenant: str = "", **numbers: float) -> None:
        """One event, now."""
        with self._lock:
            self._last += 1
            self._events.append(
                ServiceEvent(self._last, time.time(), session, tenant, kind, text, dict(numbers))
            )

    def since(self, since: int, limit: int, tenant: str | None) -> list[ServiceEvent]:
        """Events with an id above `since`, oldest first; at most the `limit` latest."""
        with self._lock:
            found = [
                event
                for event in self._events
                if event.id > since
                and (tenant is None or event.tenant == tenant or not (event.session or event.tenant))
            ]
        return found[-limit:] if limit > 0 else []
