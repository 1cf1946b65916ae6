"""Where a live session meets a policy that steers it: between two tokens, and at the end of a turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerolayer.decision.policy import ReleasingPolicy, SteeringPolicy

if TYPE_CHECKING:
    from zerolayer.core import TurnMetrics
    from zerolayer.scheduler import Scheduler


def between_tokens(scheduler: Scheduler) -> None:
    """Let the policy decide again where its last decision has grown old (200 ms)."""
    if isinstance(scheduler.policy, SteeringPolicy):
        scheduler.policy.tick(scheduler.table)


def after_turn(scheduler: Scheduler, metrics: TurnMetrics) -> None:
    """Carry out what the policy releases, tell it how full the tiers are, and report a fallback as `degraded`."""
    policy, ws = scheduler.policy, scheduler.working_set
    if isinstance(policy, ReleasingPolicy):
        plan = policy.release(ws.table)
        if plan.evict:
            leaving = set(plan.evict)
            in_sight = [b for b in ws.arena.occupant[: ws.arena.in_sight].tolist() if b not in leaving]
            # Positions are settled: reading on attends to what is in sight as it lies.
            ws.bring(replace(plan, load=()), in_sight, reserve=0)
            metrics.evicted_blocks += len(leaving)
    if isinstance(policy, SteeringPolicy):
        host, disk = ws.executor.tiers.host, ws.executor.tiers.disk
        policy.note_pressure(*(tier.used_bytes / max(tier.capacity_bytes, 1) for tier in (host, disk)))
        if policy.fallback:
            metrics.status, metrics.reason = "degraded", policy.why()
