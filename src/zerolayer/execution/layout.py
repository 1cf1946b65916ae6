"""Where resident blocks lie: those in sight of the model first, the others behind the space for the tail.

    slot  0 … a-1         blocks in sight, read by attention as one dense prefix
          a … a+r-1       the open tail: a question and its answer
          a+r … slots-1   resident blocks out of sight, and free slots

A block that is resident but out of sight costs device memory and no attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import IntArray
from zerolayer.errors import BudgetError

FREE = -1
"""Occupant of a slot that holds no block."""


def arrange(occupant: IntArray, in_sight: Sequence[int], reserve: int) -> list[tuple[int, int]]:
    """Moves (source slot, free target slot), in order, that bring the blocks `in_sight` to the front.

    `occupant` is [slots], FREE where empty. The `reserve` slots behind them end up free. Raises BudgetError when
    the resident blocks and the reserve do not fit.
    """
    slots = occupant.copy()
    wanted = set(in_sight)
    front = len(wanted)
    resident = int((slots != FREE).sum())
    if resident + reserve > len(slots):
        raise BudgetError(
            f"{resident} resident blocks and {reserve} slots for the tail exceed {len(slots)} slots; "
            "evict first, or raise the device budget"
        )
    if resident == len(slots) and any(int(block) not in wanted for block in slots[:front]):
        raise BudgetError(
            f"all {len(slots)} slots are filled, so no block can change its place; evict one block first"
        )
    moves: list[tuple[int, int]] = []

    def move(source: int, target: int) -> None:
        moves.append((source, target))
        slots[target], slots[source] = slots[source], FREE

    behind = [s for s in range(len(slots) - 1, front - 1, -1) if int(slots[s]) in wanted]
    for slot in range(front):
        if int(slots[slot]) in wanted:
            continue
        if slots[slot] != FREE:
            move(slot, _last_free(slots))
        # What was pushed away is not wanted, so it never is one of these sources.
        move(behind.pop(0), slot)
    for slot in range(front, min(front + reserve, len(slots))):
        if slots[slot] != FREE:
            move(slot, _last_free(slots))
    return moves


def _last_free(slots: IntArray) -> int:
    return int(np.flatnonzero(slots == FREE)[-1])
