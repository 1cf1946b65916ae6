"""The service's counters as one record, and what of it is drawn over time. Only the engine thread calls it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.core import Grade, Tier
from zerolayer.execution.tiers.host import available_memory
from zerolayer.server.counters import Counters, percentiles
from zerolayer.server.pool import Live, Pool
from zerolayer.server.showing import scheduler_of, session_view
from zerolayer.server.views import Totals, TotalsSample

if TYPE_CHECKING:
    from zerolayer.server.worker import Worker

_SUMS = (
    "turns", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "faults",
    "recomputed_tokens", "recalled_tokens", "prefilled_tokens", "corrupt_blocks", "evicted_p3_tokens",
)  # fmt: skip
_OUTCOMES = ("finished", "failed", "cancelled", "refused")


def totals_of(worker: Worker) -> Totals:
    """Sums since the start, and what is there now."""
    told = _since_start(worker.counters)
    told = replace(told, queue_length=worker.waiting, running=worker.running)
    return told if worker.pool is None else _with_what_is_there(told, worker.pool)


def sample_of(counters: Counters, pool: Pool) -> TotalsSample:
    """What is drawn over time, as it is now. Unlike totals it looks at no block of a session: it is taken often.

    Raises StoreError or OSError where the store cannot be read.
    """
    grades: Counter[str] = Counter()
    for live in pool.live.values():
        scheduler = scheduler_of(live.session)
        if scheduler is not None:
            counts = np.bincount(scheduler.table.grade, minlength=len(Grade)) * pool.settings.block_tokens
            grades.update({grade.name: int(counts[grade]) for grade in Grade})
    return TotalsSample(tier_bytes=_tier_bytes(pool), grade_tokens=dict(grades), **_drawn(counters))


def _drawn(counters: Counters) -> dict[str, Any]:
    """Counters that are drawn over time."""
    loads, window = counters.loads, counters.window
    return {
        "discarded_tokens": counters.sums["discarded_tokens"],
        "window_cut_tokens": counters.sums["window_cut_tokens"],
        "loads_used": loads.used,
        "wasted_loads": loads.wasted,
        "wasted_share": _share(loads.wasted, loads.used + loads.wasted, 0.0),
        "used_block_turns": loads.used_blocks,
        "coverage": _share(loads.covered, loads.used_blocks, 1.0),
        "window_loads": window.loads,
        "window_wasted_share": _share(window.wasted, window.used + window.wasted, 0.0),
        "window_coverage": _share(window.covered, window.used_blocks, 1.0),
        "p0_access_latency_us": percentiles(counters.p0_us),
    }


def _since_start(counters: Counters) -> Totals:
    loads, window = counters.loads, counters.window
    decode = list(counters.decode_s)
    sums: dict[str, Any] = {name: counters.sums[name] for name in _SUMS}
    return Totals(
        started=counters.started,
        uptime_s=time.time() - counters.started,
        requests={name: counters.outcomes[name] for name in _OUTCOMES},
        **sums,
        **_drawn(counters),
        loads=loads.loads,
        evictions=loads.evictions,
        covered_block_turns=loads.covered,
        window_wasted_loads=window.wasted,
        ttft_s=percentiles(counters.ttft_s),
        decode_s_per_token=sum(decode) / len(decode) if decode else 0.0,
        host_available_bytes=available_memory(),
    )


def _with_what_is_there(told: Totals, pool: Pool) -> Totals:
    lives = list(pool.live.values())
    tokens: Counter[str] = Counter()
    grades: Counter[str] = Counter()
    for live in lives:
        view = session_view(live, "")
        tokens.update(view.tier_tokens)
        grades.update(view.grade_blocks)
    tier_bytes = _tier_bytes(pool)
    return replace(
        told,
        loads_waiting=sum(_waiting_loads(live) for live in lives),
        sessions_live=len(lives),
        sessions_parked=sum(not live.holds and live.turns > 0 for live in lives),
        device_bytes=tier_bytes[Tier.DEVICE.value],
        device_budget_bytes=pool.budget,
        tier_bytes=tier_bytes,
        tier_capacity_bytes={
            Tier.DEVICE.value: pool.budget,
            Tier.HOST.value: pool.host.tier.capacity_bytes,
            Tier.DISK.value: pool.store.disk_budget,
        },
        tier_tokens=dict(tokens),
        grade_blocks=dict(grades),
        grade_tokens={name: count * pool.settings.block_tokens for name, count in grades.items()},
        pinned_blocks=sum(len(live.pins.blocks) for live in lives),
        parks=pool.parks,
        resumes=pool.resumes,
    )


def _tier_bytes(pool: Pool) -> dict[str, int]:
    return {
        Tier.DEVICE.value: sum(live.session.device_bytes for live in pool.live.values()),
        Tier.HOST.value: pool.host.tier.used_bytes,
        Tier.DISK.value: _disk_bytes(pool),
    }


def _disk_bytes(pool: Pool) -> int:
    """Bytes of block files: what is claimed, less what open sessions have claimed and not written."""
    tiers = {id(live.session.tiers.disk): live.session.tiers.disk for live in pool.live.values()}
    return pool.store.claimed_bytes - sum(tier.free_bytes for tier in tiers.values())


def _share(part: int, whole: int, without: float) -> float:
    return part / whole if whole else without


def _waiting_loads(live: Live) -> int:
    return live.session.scheduler.working_set.loads.waiting if live.session.has_scheduler else 0
