"""Runs a policy over a request trace: hits, misses, evictions, wrong evictions and what a decision costs.

Simulated: every miss is assumed to be computed at once, and only block numbers move. DESIGN section 6 fixes the names.
A wrong eviction is one (a bypass counts as evicting the new block) of a block that is referenced within the next 10
requests while a resident, unpinned block had a later next use; `regretted_evictions` has no such limit of time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from time import thread_time_ns

import numpy as np

from zerolayer.core import BoolArray
from zerolayer.decision.request_oracle import NEVER, next_uses
from zerolayer.decision.request_policy import Request, RequestPolicy
from zerolayer.decision.request_registry import create_request_policy
from zerolayer.errors import BudgetError, TraceError
from zerolayer.learning.requests import RequestTrace

HORIZON_REQUESTS = 10


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Counts over the reported references; times are of this machine's processor, whatever else it runs."""

    policy: str
    capacity_blocks: int
    references: int
    hits: int
    usable_hits: int  # hits whose whole prefix was resident too
    evictions: int  # bypasses included
    bypasses: int
    wrong_evictions: int
    regretted_evictions: int
    decision_us_mean: float
    decision_us_p50: float  # a reference's share of the policy's processor time
    decision_us_p99: float
    hit: BoolArray  # [reported references]

    @property
    def misses(self) -> int:
        """References that found no block."""
        return self.references - self.hits

    @property
    def hit_rate(self) -> float:
        """Hits over references; 0 without references."""
        return self.hits / self.references if self.references else 0.0

    @property
    def wrong_eviction_share(self) -> float:
        """Wrong evictions over evictions; 0 without evictions."""
        return self.wrong_evictions / self.evictions if self.evictions else 0.0


def requests_of(trace: RequestTrace) -> list[Request]:
    """The requests, as policies see them."""
    blocks, starts = trace.blocks.tolist(), trace.starts.tolist()
    return [
        Request(blocks[starts[number] : starts[number + 1]], time_s)
        for number, time_s in enumerate(trace.times_s.tolist())
    ]


def simulate(
    trace: RequestTrace,
    policy: RequestPolicy | str,
    capacity_blocks: int,
    report_from: int = 0,
    pinned: Collection[int] = (),
) -> SimulationResult:
    """Run a policy (a new object, or a name) over the whole trace; count from request `report_from` on.

    `pinned` blocks hold slots from the start and never reach the policy. Raises BudgetError if no slot is left beside
    them, TraceError if the policy breaks the contract, UnknownNameError for an unknown name.
    """
    room = capacity_blocks - len(pinned)
    if room < 1:
        raise BudgetError(f"capacity {capacity_blocks} leaves no slot beside {len(pinned)} pinned blocks")
    chosen = create_request_policy(policy, room) if isinstance(policy, str) else policy
    run = _Run(trace, room, set(pinned), report_from)
    for number, request in enumerate(requests_of(trace)):
        run.serve(number, request, chosen)
    return run.result(chosen.name, capacity_blocks)


class _Run:
    """The cache of one simulation, and its counts."""

    def __init__(self, trace: RequestTrace, room: int, pinned: set[int], report_from: int) -> None:
        self.room, self.pinned, self.report_from = room, pinned, report_from
        self.following = next_uses(trace.blocks).tolist()
        self.request_of = np.repeat(np.arange(len(trace)), np.diff(trace.starts)).tolist()
        self.resident: dict[int, int] = {}  # block -> position of its next use
        self.farthest: list[tuple[int, int]] = []  # heap of (-next use, block), lazily deleted
        self.seen: set[int] = set()
        self.position = 0
        self.reported = int(trace.starts[min(report_from, len(trace))])
        self.hit = np.zeros(len(trace.blocks), dtype=np.bool_)
        self.usable = self.evictions = self.bypasses = self.wrong = self.regretted = 0
        self.times_ns: list[float] = []

    def serve(self, number: int, request: Request, policy: RequestPolicy) -> None:
        counted = number >= self.report_from
        started = thread_time_ns()
        policy.begin(request)
        share = (thread_time_ns() - started) / max(len(request.blocks), 1)
        whole = True
        for block in request.blocks:
            spent = share
            if block in self.pinned:
                found = block in self.seen
                self.seen.add(block)
            else:
                found = block in self.resident
                started = thread_time_ns()
                victim = policy.hit(block) if found else policy.miss(block)  # type: ignore[func-returns-value]
                spent += thread_time_ns() - started
                self._apply(number, block, found, victim, counted)
            whole = whole and found
            if counted:
                self.times_ns.append(spent)
                self.usable += whole
            self.hit[self.position] = found
            self.position += 1

    def _apply(self, number: int, block: int, found: bool, victim: int | None, counted: bool) -> None:
        """Check and carry out the policy's choice."""
        upcoming = self.following[self.position]
        if not found and victim is not None:
            self._evict(number, block, victim, upcoming, counted)
        if found or victim != block:
            self.resident[block] = upcoming
            heappush(self.farthest, (-upcoming, block))
        if len(self.resident) > self.room:
            raise TraceError(f"the policy holds {len(self.resident)} blocks; its capacity is {self.room}")

    def _evict(self, number: int, block: int, victim: int, upcoming: int, counted: bool) -> None:
        use = upcoming if victim == block else self.resident.get(victim, -1)
        if use < 0:
            raise TraceError(f"the policy evicted block {victim}, which is not resident")
        if counted:
            self.evictions += 1
            self.bypasses += victim == block
            if use != NEVER and max(self._farthest(), upcoming) > use:
                self.regretted += 1
                self.wrong += self.request_of[use] - number <= HORIZON_REQUESTS
        if victim != block:
            del self.resident[victim]

    def _farthest(self) -> int:
        """The latest next use among the residents."""
        while self.farthest and self.resident.get(self.farthest[0][1]) != -self.farthest[0][0]:
            heappop(self.farthest)
        return -self.farthest[0][0] if self.farthest else -1

    def result(self, policy: str, capacity: int) -> SimulationResult:
        hit = self.hit[self.reported :]
        p50, p99 = np.percentile(self.times_ns, [50, 99]) / 1000 if self.times_ns else (0.0, 0.0)
        return SimulationResult(
            policy, capacity, len(hit), int(hit.sum()), self.usable, self.evictions, self.bypasses, self.wrong,
            self.regretted, float(np.mean(self.times_ns or 0.0)) / 1000, float(p50), float(p99), hit,
        )  # fmt: skip
