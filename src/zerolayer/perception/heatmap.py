"""Heat of the arena's addresses: where attention falls, how lately, and whether neighbours share it.

The map divides the arena's address space, in rising order, into side × side cells of equal size. An access is one
query's attention, averaged over layers and heads, so a query brings one access in all, spread over what it reads.
Heat is the number of accesses, decayed once a turn:

    heat(t) = decay · heat(t - 1) + accesses in turn t

The last `end_turn` is at full weight. Heat belongs to addresses, not to blocks: a block that moves to another slot
leaves its heat behind, and one that moves in finds that of its predecessors. What follows a block is
`BlockTable.attention`, which decays at the same rate.

Attention is known per token, so heat is kept per token or per cell, whichever is coarser, and a cell that is finer
than a token has the token's heat in proportion. So an update costs as much as a few vectors of the arena's length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from zerolayer.core import SINK_TOKENS, BoolArray, IntArray
from zerolayer.errors import SettingError

Heat = npt.NDArray[np.float64]

DEFAULT_SIDE = 256
SMALL_SIDE = 4
LEAST_SIDE, LARGEST_SIDE = 2, 1024

HEAT_DECAY = 0.8
"""Share of a cell's heat that is carried from one turn to the next: half of it is gone after three."""

ACCESSED_MASS = 0.9
"""Last access: a token was accessed in a turn if it is in the smallest set that holds this share of the attention."""

LOCALITY_STRIDES = 8
"""Tokens on either side that count as neighbours."""

HOT_FACTOR = 2.0
COLD_FACTOR = 0.25
"""A slot is hot from this many times the mean of the filled slots on, and cold up to this share of it."""


@dataclass(frozen=True, slots=True)
class Region:
    """A run of neighbouring filled slots: a hot bank or a cold zone."""

    first_slot: int
    slots: int
    address: int  # of its first byte in the arena
    size: int  # bytes
    heat: float  # decayed accesses, sinks and tails left out
    share: float  # of the heat of all slots
    last_access: int  # turn, -1 never
    blocks: tuple[int, ...]  # that lie there now, by slot


def check_side(side: int) -> int:
    """`side`, if a map can have it. Raises SettingError unless it is a power of two from 2 to 1024."""
    if not LEAST_SIDE <= side <= LARGEST_SIDE or side & (side - 1):
        raise SettingError(
            f"heatmap_side is {side}; it must be a power of two from {LEAST_SIDE} to {LARGEST_SIDE}: "
            f"{DEFAULT_SIDE} is the default, {SMALL_SIDE} the small map"
        )
    return side


class HeatMap:
    """Heat of an arena of `slots` slots, each of `slot_tokens` tokens and `slot_bytes` bytes, from address 0 on.

    The first `sink_tokens` tokens draw attention whatever they say (arXiv:2309.17453), and the open tail, a question
    and its answer, is gone after its turn: the map shows both, but they make no bank hot. Raises SettingError for an
    impossible `side`.
    """

    def __init__(
        self,
        slots: int,
        slot_tokens: int,
        slot_bytes: int,
        side: int = DEFAULT_SIDE,
        decay: float = HEAT_DECAY,
        sink_tokens: int = SINK_TOKENS,
    ) -> None:
        self.slots, self.slot_tokens, self.slot_bytes = slots, slot_tokens, slot_bytes
        self.side, self.decay, self.sink_tokens = check_side(side), decay, sink_tokens
        self.turn = 0
        """Turns that have ended."""
        self._fresh = np.zeros(slots * slot_tokens)  # accesses of the running turn, per token
        self._fresh_aside = np.zeros(slots * slot_tokens)
        units = min(side * side, slots * slot_tokens)
        self._heat = np.zeros(units)  # of blocks
        self._aside = np.zeros(units)  # of the sinks and of open tails
        self._last: IntArray = np.full(units, -1, dtype=np.int64)

    # Updating

    def observe(self, accesses: npt.NDArray[np.floating[Any]], block_tokens: int | None = None) -> None:
        """Add the accesses of some queries, `[tokens]` from address 0 on, mean over layers and heads.

        The first `block_tokens` of them (None: all) lie in blocks, the others in the open tail.
        """
        sinks, end = self.sink_tokens, len(accesses) if block_tokens is None else block_tokens
        fresh, aside = self._fresh[: len(accesses)], self._fresh_aside[: len(accesses)]
        fresh[sinks:end] += accesses[sinks:end]
        aside[:sinks] += accesses[:sinks]
        aside[max(sinks, end) :] += accesses[max(sinks, end) :]

    def end_turn(self) -> None:
        """Decay, fold in what the turn has observed, and note what was accessed."""
        tokens, units = len(self._fresh), len(self._heat)
        self._heat = self.decay * self._heat + resample(self._fresh, units)
        self._aside = self.decay * self._aside + resample(self._fresh_aside, units)
        # Apart from each other: sinks and tail would else be all that carried the turn.
        accessed = np.concatenate([_accessed(self._fresh), _accessed(self._fresh_aside)])
        first, last = accessed * units // tokens, ((accessed + 1) * units - 1) // tokens
        self._last[first] = self._last[last] = self.turn
        self._fresh[:] = self._fresh_aside[:] = 0.0
        self.turn += 1

    # Cells

    @property
    def nbytes(self) -> int:
        """Bytes of the mapped address space."""
        return self.slots * self.slot_bytes

    @property
    def heat(self) -> Heat:
        """`[side, side]` decayed accesses of each cell, sinks and tails included, addresses rising along the rows."""
        return resample(self._heat + self._aside, self.side**2).reshape(self.side, self.side)

    @property
    def last_access(self) -> IntArray:
        """`[side, side]` the last turn that accessed each cell, -1 never."""
        first, last = self._units_of_cells()
        return np.maximum(self._last[first], self._last[last]).reshape(self.side, self.side)

    @property
    def locality(self) -> Heat:
        """`[side, side]` the share of each cell's heat that its neighbours' matches, 0 to 1; 0 where it is cold.

        Neighbours are the tokens (or cells, where these are coarser) at a stride s of 1 to LOCALITY_STRIDES on
        either side, weighed by 1/s as in the spatial locality score of Weinberg et al., "Quantifying Locality In
        The Memory Access Patterns of HPC Applications", SC 2005: min(1, weighed mean of the neighbours / own heat).
        A token that is hot alone scores near 0, one within a run of equals 1.
        """
        heat = self._heat + self._aside
        total, weights = np.zeros_like(heat), np.zeros_like(heat)
        for stride in range(1, min(LOCALITY_STRIDES, len(heat) - 1) + 1):
            above, below = slice(stride, None), slice(None, -stride)
            for here, there in ((above, below), (below, above)):
                total[here] += heat[there] / stride
                weights[here] += 1 / stride
        near = total / np.maximum(weights, 1e-9)
        score = np.divide(np.minimum(near, heat), heat, out=np.zeros_like(heat), where=heat > 0)
        return score[self._units_of_cells()[0]].reshape(self.side, self.side)

    def coarse(self, rows: int, columns: int) -> Heat:
        """`[rows, columns]` heat of as many cells of equal size, for a small display."""
        return resample(self._heat + self._aside, rows * columns).reshape(rows, columns)

    def _units_of_cells(self) -> tuple[IntArray, IntArray]:
        """First and last token or cell of what is kept that each cell overlaps, `[side²]`."""
        cells, units = np.arange(self.side**2), len(self._heat)
        return cells * units // self.side**2, ((cells + 1) * units - 1) // self.side**2

    # Slots

    @property
    def slot_heat(self) -> Heat:
        """`[slots]` decayed accesses of each slot, sinks and tails left out."""
        return resample(self._heat, self.slots)

    def hot_banks(self, occupant: IntArray) -> list[Region]:
        """Runs of slots with at least HOT_FACTOR times the mean heat, hottest first.

        `occupant` is [slots], the block in each slot, negative where it is free; a free slot is in no region.
        """
        heat, mean = self._over_filled(occupant)
        regions = self._regions((heat >= HOT_FACTOR * mean) & (mean > 0), occupant)
        return sorted(regions, key=lambda region: (-region.heat, region.address))

    def cold_zones(self, occupant: IntArray) -> list[Region]:
        """Runs of slots with at most COLD_FACTOR of the mean heat, coldest (heat per slot) first.

        Their blocks are the first to make room when the arena is compacted: nothing has looked at them lately.
        """
        heat, mean = self._over_filled(occupant)
        regions = self._regions((heat <= COLD_FACTOR * mean) & (mean > 0), occupant)
        return sorted(regions, key=lambda region: (region.heat / region.slots, region.address))

    def hottest_slots(self, occupant: IntArray, limit: int) -> list[int]:
        """At most `limit` neighbouring slots around the hottest of the hottest bank: what PIN_L2 is to keep near."""
        banks = self.hot_banks(occupant)
        if not banks or limit <= 0:
            return []
        heat, bank = self.slot_heat, banks[0]
        width = min(limit, bank.slots)
        sums = np.convolve(heat[bank.first_slot : bank.first_slot + bank.slots], np.ones(width), "valid")
        first = bank.first_slot + int(sums.argmax())
        return list(range(first, first + width))

    def _over_filled(self, occupant: IntArray) -> tuple[Heat, float]:
        """Heat of the slots, and its mean over those that are filled."""
        heat, filled = self.slot_heat, occupant >= 0
        return heat, float(heat[filled].mean()) if filled.any() else 0.0

    def _regions(self, chosen: BoolArray, occupant: IntArray) -> list[Region]:
        heat = self.slot_heat
        total = max(float(heat.sum()), 1e-12)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen & (occupant >= 0), [False]])))
        regions = []
        for first, end in edges.reshape(-1, 2).tolist():
            low, high = first * len(self._last) // self.slots, -(-end * len(self._last) // self.slots)
            inside = float(heat[first:end].sum())
            regions.append(
                Region(
                    first,
                    end - first,
                    first * self.slot_bytes,
                    (end - first) * self.slot_bytes,
                    inside,
                    inside / total,
                    int(self._last[low:high].max()),
                    tuple(occupant[first:end].tolist()),
                )
            )
        return regions

    # Keeping

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything but what the running turn has observed so far, as arrays."""
        sizes = [self.slots, self.slot_tokens, self.slot_bytes, self.side, self.sink_tokens, self.turn]
        return {
            "sizes": np.asarray(sizes, dtype=np.int64),
            "decay": np.asarray(self.decay),
            "heat": self._heat,
            "aside": self._aside,
            "last": self._last,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The map that `state` describes. Raises KeyError, ValueError or SettingError when it describes none."""
        slots, slot_tokens, slot_bytes, side, sink_tokens, turn = map(int, state["sizes"])
        if min(slots, slot_tokens, slot_bytes, sink_tokens + 1, turn + 1) < 1:
            raise ValueError("a heat map of nothing")
        units = min(check_side(side) ** 2, slots * slot_tokens)
        if not all(state[name].shape == (units,) for name in ("heat", "aside", "last")):
            raise ValueError(f"a heat map whose arrays do not have {units} elements")
        restored = cls(slots, slot_tokens, slot_bytes, side, float(state["decay"]), sink_tokens)
        restored.turn = turn
        restored._heat, restored._aside, restored._last = (state[n] for n in ("heat", "aside", "last"))
        return restored


def resample(values: Heat, count: int) -> Heat:
    """`values` of neighbouring ranges of equal size, over `count` ranges of equal size: the sum is kept."""
    if len(values) == count:
        return values.copy()
    if len(values) % count == 0:
        total: Heat = values.reshape(count, -1).sum(axis=1)
        return total
    below = np.concatenate([[0.0], np.cumsum(values)])
    edges = np.arange(count + 1) * (len(values) / count)
    parts: Heat = np.diff(np.interp(edges, np.arange(len(below)), below))
    return np.maximum(parts, 0.0, out=parts)


def _accessed(accesses: Heat) -> IntArray:
    """The smallest set of tokens that holds ACCESSED_MASS of the accesses, most accessed first; [] of none."""
    order = np.argsort(-accesses, kind="stable")
    mass = np.cumsum(accesses[order])
    if not mass[-1]:
        return order[:0]
    return order[: int(np.searchsorted(mass, ACCESSED_MASS * mass[-1])) + 1]
