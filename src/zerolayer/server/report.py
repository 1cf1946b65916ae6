"""`rtls_metrics` of one turn: what it cost, what moved, and why. All fields are always there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zerolayer.core import KEY_FEATURES, Answer, Grade
from zerolayer.execution.isa import instruction_text
from zerolayer.scheduler import Scheduler, TurnResult
from zerolayer.server.counters import percentiles
from zerolayer.server.hints import HintReport

LOG_LINES = 256
"""Most instructions of a turn that are told."""

BINS = 10


@dataclass(frozen=True, slots=True)
class TurnAccount:
    """What the service knows of a turn beside its result."""

    session_id: str
    policy: str
    status: str
    reason: str
    hints: list[HintReport]
    ttft_s: float  # from taking the request in to its first token, waiting included
    prefill_s: float
    replayed_tokens: int


def rtls_metrics(
    account: TurnAccount, answer: Answer, result: TurnResult, own: Scheduler | None, width: int
) -> dict[str, Any]:
    """The response extension. `own` is the scheduler of the whole document, after the turn; None: it has none yet.

    Blocks are of `width` tokens.
    """
    metrics = answer.metrics
    access = percentiles(ns / 1000 for ns in result.p0_access_ns)
    status, reason = account.status, account.reason
    if status == "active" and metrics.status != "active":
        status, reason = metrics.status, metrics.reason
    return {
        "status": status,
        "reason": reason,
        "policy": account.policy,
        "session_id": account.session_id,
        "turn": metrics.turn,
        "effective_context_utilization_pct": round(100 * metrics.effective_context_utilization, 2),
        "p0_token_access_latency_us": asdict(access),
        "evicted_p3_tokens_count": metrics.evicted_blocks * width,
        "discarded_tokens_count": metrics.discarded_tokens,
        "wasted_load_tokens_count": result.loads.wasted * width,
        "recomputed_tokens_count": metrics.recomputed_tokens + account.replayed_tokens,
        "recalled_tokens_count": (metrics.recalled_blocks + metrics.fault_blocks) * width,
        "entropy_distribution": entropy_distribution(own),
        "grade_counts": metrics.grade_counts,
        "tier_tokens": metrics.tier_tokens,
        "hints": [report.to_json() for report in account.hints],
        "scheduling_log": [
            {
                "instruction": instruction_text(outcome.instruction),
                "outcome": outcome.status.value,
                "bytes": outcome.bytes,
                "ns": outcome.nanoseconds,
                "reason": outcome.reason,
            }
            for outcome in result.log[-LOG_LINES:]
        ],
        "calibration_drift": metrics.calibration_drift,
        "ttft_s": account.ttft_s,
        "recall_s": metrics.recall_s,
        "knit_s": metrics.knit_s,
        "prefill_s": account.prefill_s,
        "decode_s_per_token": metrics.decode_s_per_token,
        "device_bytes": metrics.device_bytes,
        "early": answer.early,
    }


def entropy_distribution(scheduler: Scheduler | None) -> dict[str, Any]:
    """Shares of blocks by grade, mean dispersion of key norms, and a histogram of persistence in ten bins."""
    if scheduler is None:
        shares_unknown: dict[str, Any] = {f"p{grade.value}": 0.0 for grade in Grade}
        return {**shares_unknown, "mean_key_norm_dispersion": None, "histogram": [0] * BINS}
    table = scheduler.table
    counts = np.bincount(table.grade, minlength=len(Grade))
    shares = counts / max(1, len(table))
    dispersion = table.features[:, KEY_FEATURES.index("dispersion")]
    known = dispersion[~np.isnan(dispersion)]
    grading = getattr(scheduler.policy, "grading", None)
    persistence = grading.persistence if grading is not None else np.zeros(0)
    histogram = np.histogram(persistence, bins=BINS, range=(0.0, 1.0))[0]
    return {
        **{f"p{grade.value}": round(float(shares[grade]), 4) for grade in Grade},
        "mean_key_norm_dispersion": float(known.mean()) if len(known) else None,
        "histogram": [int(count) for count in histogram],
    }
