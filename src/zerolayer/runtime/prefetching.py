"""Warms blocks ahead of a question: from disk to host memory, and to the device where slots are free.

A forecast may be wrong, so nothing leaves for it: no block is evicted, slots for the next question and its answer
stay free, and at most half of the host budget is filled. Every move is a program of the executor. What was loaded
and no turn used is waste, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import FloatArray, TurnMetrics
from zerolayer.decision import planner
from zerolayer.decision.policy import Policy
from zerolayer.errors import BlockMissingError
from zerolayer.execution.isa import Outcome
from zerolayer.runtime.working_set import WorkingSet

HOST_SHARE = 0.5
"""At most this share of the host budget is filled by one forecast."""


@dataclass(frozen=True, slots=True)
class PrefetchReport:
    """What a forecast moved. Block indices, likeliest first."""

    wanted: tuple[int, ...]  # blocks of the forecast that are stored
    resident: tuple[int, ...]  # of these, on the device before
    to_host: tuple[int, ...]  # copied from disk to host memory
    to_device: tuple[int, ...]  # loaded into free slots
    host_bytes: int  # of the copies, as stored
    device_bytes: int
    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class PrefetchTotals:
    """Blocks loaded to the device ahead of a question: all, used by a later turn, gone unused, not decided yet."""

    loaded: int = 0
    used: int = 0
    wasted: int = 0
    waiting: int = 0


class Prefetcher:
    """Carries out forecasts on one working set and keeps the books of their loads."""

    def __init__(self, working_set: WorkingSet) -> None:
        self._working_set = working_set
        self._waiting: set[int] = set()  # loaded ahead, not used since
        self._since_turn = 0
        self._totals = PrefetchTotals()

    @property
    def totals(self) -> PrefetchTotals:
        """The books of this session; at its end what is waiting is waste as well."""
        self._totals.waiting = len(self._waiting)
        return self._totals

    def prefetch(
        self, policy: Policy, forecast: FloatArray, blocks: Sequence[int], reserve: int
    ) -> PrefetchReport:
        """Warm `blocks`, likeliest first; `forecast` [blocks of the document] are their probabilities.

        The policy orders what goes to the device; `reserve` slots stay free. Raises StoreFullError.
        """
        ws = self._working_set
        table, ids, tiers = ws.table, ws.executor.ids, ws.executor.tiers
        wanted = [b for b in dict.fromkeys(blocks) if b < ws.done and ids[b] in tiers and forecast[b] > 0]
        table.forecast[:] = 0.0
        table.forecast[wanted] = forecast[wanted]
        resident = tuple(block for block in wanted if table.resident[block])
        ws.log = []
        sizes = self._to_host([block for block in wanted if not table.resident[block]])
        if sizes:
            ws.prefetch(list(sizes))
        copied = tuple(block for block in sizes if ws.executor.on_host(block))
        plan = planner.plan_warm(policy, table, reserve)
        if plan.load:
            in_sight = ws.arena.occupant[: ws.arena.in_sight].tolist()
            ws.bring(plan, in_sight, reserve, keep_positions=True)
        self._waiting.update(plan.load)
        self._totals.loaded += len(plan.load)
        self._since_turn += len(plan.load)
        return PrefetchReport(
            tuple(wanted),
            resident,
            copied,
            plan.load,
            sum(sizes[block] for block in copied),
            len(plan.load) * ws.arena.slot_bytes,
            tuple(ws.log),
        )

    def settle(self, used: Sequence[int], metrics: TurnMetrics) -> None:
        """A turn ended: which blocks loaded ahead it used, and which have left the device without any use."""
        hits = self._waiting.intersection(used)
        self._waiting -= hits
        gone = {block for block in self._waiting if not self._working_set.table.resident[block]}
        self._waiting -= gone
        self._totals.used += len(hits)
        self._totals.wasted += len(gone)
        metrics.prefetched_blocks, self._since_turn = self._since_turn, 0
        metrics.wasted_prefetches = len(gone)

    def _to_host(self, blocks: Sequence[int]) -> dict[int, int]:
        """Of `blocks`, those to be copied from disk, and their stored bytes: the likeliest that fit the share."""
        ws = self._working_set
        tiers, ids = ws.executor.tiers, ws.executor.ids
        away = [block for block in blocks if not ws.executor.on_host(block) and ids[block] in tiers.disk]
        sizes: dict[int, int] = {}
        for block in away:
            try:
                sizes[block] = tiers.disk.size_of(ids[block])
            except BlockMissingError:  # dropped meanwhile: a question that needs it has it computed again
                continue
        fits = np.cumsum(list(sizes.values())) <= HOST_SHARE * tiers.host.capacity_bytes
        return {block: size for (block, size), fit in zip(sizes.items(), fits, strict=True) if fit}
