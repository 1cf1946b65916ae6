"""The offline optimum for request streams: Belady with bypass and pins.

On a miss the block whose next use is furthest away is the one that stays outside, be it a resident or the block itself
(Belady 1966; bypass as in Michaud 2016). No policy that may bypass has more hits. Since a reference to a block is
always preceded by one to its prefix, a prefix's next use is never later than its descendant's: the chain rule holds.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from zerolayer.core import BoolArray, IntArray
from zerolayer.decision.request_policies.ranked import Ranking
from zerolayer.errors import BudgetError

NEVER = np.iinfo(np.int64).max


def next_uses(blocks: IntArray) -> IntArray:
    """[references] position of the next reference to the same block, NEVER where there is none."""
    order = np.argsort(blocks, kind="stable")
    following = np.full(len(blocks), NEVER, dtype=np.int64)
    again = blocks[order[1:]] == blocks[order[:-1]]
    following[order[:-1][again]] = order[1:][again]
    return following


def optimal_hits(blocks: IntArray, capacity: int, pinned: Collection[int] = ()) -> BoolArray:
    """[references] which references hit under the optimum with `capacity` blocks.

    `pinned` blocks hold a slot from the start and never leave; their first reference is a miss. Raises BudgetError if
    they do not fit.
    """
    room = capacity - len(pinned)
    if room < 0 or capacity < 1:
        raise BudgetError(
            f"capacity {capacity} blocks is too small for {len(pinned)} pinned; give at least one more"
        )
    hits = np.zeros(len(blocks), dtype=np.bool_)
    fixed, seen = set(pinned), set[int]()
    resident = Ranking()  # lowest score = latest next use
    following = next_uses(blocks).tolist()
    for position, block in enumerate(blocks.tolist()):
        upcoming = following[position]
        if block in fixed:
            hits[position] = block in seen
            seen.add(block)
        elif block in resident:
            hits[position] = True
            if upcoming == NEVER:
                resident.remove(block)
            else:
                resident.put(block, (-upcoming,))
        elif upcoming != NEVER and room:
            if len(resident) >= room and latest_use(resident) <= upcoming:
                continue
            if len(resident) >= room:
                resident.pop()
            resident.put(block, (-upcoming,))
    return hits


def latest_use(resident: Ranking) -> float:
    """The latest next use among the residents."""
    return -resident.score(resident.lowest())[0]
