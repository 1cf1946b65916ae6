"""What a turn cost and moved, as the server reports it with the answer: `response.rtls_metrics`.

The models are lenient, as all of the SDK's are: a field that the server leaves out has its default here, one that is
new is kept as an extra. Names and definitions are those of `zerolayer.metrics`.
"""

from __future__ import annotations

from typing import Literal

from anthropic import BaseModel
from pydantic import Field

NOT_ZEROLAYER = (
    "the answer came without rtls_metrics: the server is not zerolayer, or something between drops the field"
)
REFUSED = "the server refused the extension fields, so the request was sent without them: it is not zerolayer"
SWITCHED_OFF = "enable_rtls=False"
STILL_STREAMING = "the stream has not ended; its metrics come with its last event"


class AccessLatency(BaseModel):
    """From asking for a P0 block to readable, microseconds."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    count: int = 0  # accesses measured


class EntropyDistribution(BaseModel):
    """How the session's blocks divide over grades and over persistence."""

    p0: float = 0.0  # share of blocks, 0 to 1
    p1: float = 0.0
    p2: float = 0.0
    p3: float = 0.0
    mean_key_norm_dispersion: float | None = None
    histogram: list[int] = Field(default=[])  # blocks by persistence, ten bins from 0 to 1


class HintReport(BaseModel):
    """What became of one of the request's `context_hints`."""

    text: str = ""
    start: int | None = None
    end: int | None = None
    status: str = ""  # pinned | not_found | over_budget | expired
    occurrences: int = 0
    blocks: list[int] = Field(default=[])
    reason: str = ""
    grade: str = ""  # P0 | P1


class ScheduledInstruction(BaseModel):
    """One instruction that the turn executed, and its outcome."""

    instruction: str = ""  # as assembled, such as `MOVE_P0 0x… 0x… 4096`
    outcome: str = ""  # done | deferred | refused
    bytes: int = 0
    ns: int = 0
    reason: str = ""


class RtlsMetrics(BaseModel):
    """What scheduling did for one turn. Never missing: `status` and `reason` say why there is nothing to report."""

    status: Literal["active", "degraded", "disabled"] = "disabled"
    reason: str = NOT_ZEROLAYER
    policy: str = ""
    session_id: str = ""
    turn: int = 0  # of the session, from 0
    effective_context_utilization_pct: float = 0.0
    p0_token_access_latency_us: AccessLatency = AccessLatency()
    evicted_p3_tokens_count: int = 0
    discarded_tokens_count: int = 0
    wasted_load_tokens_count: int = 0
    recomputed_tokens_count: int = 0
    recalled_tokens_count: int = 0
    entropy_distribution: EntropyDistribution = EntropyDistribution()
    grade_counts: dict[str, int] = Field(default={})  # blocks by grade
    tier_tokens: dict[str, int] = Field(default={})  # tokens by the tiers that hold them
    hints: list[HintReport] = Field(default=[])
    scheduling_log: list[ScheduledInstruction] = Field(default=[])
    calibration_drift: float | None = None
    ttft_s: float = 0.0  # from the question to the first token of its answer
    recall_s: float = 0.0
    knit_s: float = 0.0
    prefill_s: float = 0.0
    decode_s_per_token: float = 0.0
    device_bytes: int = 0
    early: bool = False  # answered before the document was read, from what the question points at

    @property
    def active(self) -> bool:
        """Whether scheduling served this turn, fully or in part."""
        return self.status != "disabled"
