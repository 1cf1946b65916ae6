"""The optimal offline policies: bounds that know the future. No online policy appears here.

`belady` serves single references (request streams): L. A. Belady, A study of replacement algorithms, 1966,
with bypass (a block that is needed later than everything resident is served without being kept) and pins.

`schedule_turns` serves turns: all blocks of a turn must be resident together. It loads just before the turn
what is missing and evicts what is needed furthest away; Belady's exchange argument holds for sets as it does
for single references, since everything in the set is kept and the rest is interchangeable. A used set larger
than the device cannot be resident together: that turn is streamed one block at a time in order of first use,
each block taking a slot. The bound therefore counts loads of policies that hold a turn's blocks together, as
an answer needs; a policy that lets a used block go in the middle of a turn is outside it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zerolayer.errors import BudgetError

NEVER = 2**62
"""The next use of a block that is not used again."""


@dataclass(frozen=True, slots=True)
class BeladyResult:
    """Counts of references."""

    hits: int
    loads: int  # misses, bypassed ones included
    bypassed: int


def belady(
    requests: Sequence[int], capacity: int, pinned: Iterable[int] = (), bypass: bool = True
) -> BeladyResult:
    """Fewest loads for single references with `capacity` blocks, of which `pinned` are always resident.

    Raises BudgetError if the pins leave no block free.
    """
    pins = frozenset(pinned)
    room = _room(capacity, pins)
    following = _following(requests)
    resident: dict[int, int] = {}  # block → position of its next use
    furthest: list[tuple[int, int]] = []  # heap of (-next use, block); stale entries are skipped
    hits = bypassed = 0
    for position, block in enumerate(requests):
        upcoming = following[position]
        if block in pins:
            hits += 1
            continue
        if block in resident:
            hits += 1
        elif len(resident) >= room:
            while resident.get(furthest[0][1]) != -furthest[0][0]:
                heapq.heappop(furthest)
            if bypass and upcoming >= -furthest[0][0]:
                bypassed += 1
                continue
            del resident[heapq.heappop(furthest)[1]]
        resident[block] = upcoming
        heapq.heappush(furthest, (-upcoming, block))
    return BeladyResult(hits, len(requests) - hits, bypassed)


@dataclass(frozen=True, slots=True)
class TurnStep:
    """What the optimal policy does in one turn. `faults` are (block, its victim or None), in order."""

    evict: tuple[int, ...]
    load: tuple[int, ...]
    faults: tuple[tuple[int, int | None], ...] = ()

    @property
    def loads(self) -> int:
        """Loads of this turn."""
        return len(self.load) + len(self.faults)


def schedule_turns(
    turns: Sequence[Sequence[int]], capacity: int, resident: Iterable[int] = (), pinned: Iterable[int] = ()
) -> list[TurnStep]:
    """The fewest loads that serve `turns` (each the used blocks in order of first use, without duplicates).

    `capacity` counts blocks for the document (without the reserve), `pinned` blocks included; `resident` is
    the free initial state. Raises BudgetError if the pins leave no block free.
    """
    pins = frozenset(pinned)
    room = _room(capacity, pins)
    needed = [[block for block in turn if block not in pins] for turn in turns]
    uses = _uses(needed)
    now = set(resident) - pins
    steps = []
    for turn, blocks in enumerate(needed):
        serve = _hold if len(blocks) <= room else _stream
        steps.append(serve(now, blocks, room, uses, turn))
    return steps


Time = tuple[int, int]  # turn, position within the turn


def _hold(now: set[int], blocks: list[int], room: int, uses: dict[int, list[Time]], turn: int) -> TurnStep:
    """Make all `blocks` resident together; changes `now`."""
    missing = [block for block in blocks if block not in now]
    idle = now.difference(blocks)
    excess = max(0, len(now) + len(missing) - room)
    leaving = heapq.nlargest(excess, idle, key=lambda block: (_next(uses, block, (turn, -1)), block))
    now.difference_update(leaving)
    now.update(missing)
    return TurnStep(tuple(leaving), tuple(missing))


def _stream(now: set[int], blocks: list[int], room: int, uses: dict[int, list[Time]], turn: int) -> TurnStep:
    """Serve `blocks` one at a time, evicting the furthest next use; changes `now`."""
    excess = max(0, len(now) - room)
    leaving = heapq.nlargest(excess, now, key=lambda block: (_next(uses, block, (turn, -1)), block))
    now.difference_update(leaving)
    faults: list[tuple[int, int | None]] = []
    for position, block in enumerate(blocks):
        if block in now:
            continue
        victim = None
        if len(now) >= room:
            victim = max(now, key=lambda other: (_next(uses, other, (turn, position)), other))
            now.remove(victim)
        faults.append((block, victim))
        now.add(block)
    return TurnStep(tuple(leaving), (), tuple(faults))


def _uses(turns: Sequence[Sequence[int]]) -> dict[int, list[Time]]:
    uses: dict[int, list[Time]] = {}
    for turn, blocks in enumerate(turns):
        for position, block in enumerate(blocks):
            uses.setdefault(block, []).append((turn, position))
    return uses


def _next(uses: dict[int, list[Time]], block: int, after: Time) -> Time:
    times = uses.get(block, [])
    index = bisect_right(times, after)
    return times[index] if index < len(times) else (NEVER, 0)


def _following(requests: Sequence[int]) -> list[int]:
    """For each reference the position of the next one to the same block, NEVER if there is none."""
    following = [NEVER] * len(requests)
    last: dict[int, int] = {}
    for position in range(len(requests) - 1, -1, -1):
        following[position] = last.get(requests[position], NEVER)
        last[requests[position]] = position
    return following


def _room(capacity: int, pins: frozenset[int]) -> int:
    room = capacity - len(pins)
    if room < 1:
        raise BudgetError(
            f"a device of {capacity} blocks with {len(pins)} pinned has no block free; raise the budget"
        )
    return room
