"""Every metric declared once, as data: name, unit, kind, definition, and which way is better.

Reports, JSON output, dashboards and documentation take names and units from here. Definitions follow section
6 of the design; a name that is not declared here is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["ratio", "count", "bytes", "seconds", "label"]
Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured name. A label is text or a flag that says what a number belongs to."""

    name: str
    unit: str
    kind: Kind
    definition: str
    better: Better = "neither"


_DECLARED = (
    # What a schedule is judged by.
    Metric(
        "wasted_loads",
        "1",
        "ratio",
        "loads (demand or prefetch) of a block that no turn uses before it leaves the device or the "
        "session ends, over all loads; 0 where there was no load",
        "lower",
    ),
    Metric("wasted_load_count", "loads", "count", "the loads that wasted_loads counts", "lower"),
    Metric(
        "coverage",
        "1",
        "ratio",
        "used block-turns resident at first use, over all used block-turns",
        "higher",
    ),
    Metric(
        "waste_at_coverage",
        "1",
        "ratio",
        "wasted_loads where coverage is at least 0.95; null otherwise, since loading nothing wastes nothing",
        "lower",
    ),
    Metric(
        "discarded_tokens",
        "tokens",
        "count",
        "tokens whose KV can neither be read back nor recomputed: 0, always",
        "lower",
    ),
    Metric(
        "recomputed_tokens",
        "tokens",
        "count",
        "tokens prefilled again although they had been computed",
        "lower",
    ),
    Metric(
        "wrong_evictions",
        "evictions",
        "count",
        "evictions of a block used within 10 turns while a resident, unpinned block had a later next use",
        "lower",
    ),
    Metric("wrong_eviction_share", "1", "ratio", "wrong_evictions over evictions", "lower"),
    Metric(
        "effective_context_utilization",
        "1",
        "ratio",
        "document attention mass that fell on blocks resident when the answer began, over the "
        "reference run's",
        "higher",
    ),
    Metric(
        "p0_access_latency",
        "s",
        "seconds",
        "from asking for a P0 block to readable; reported as p50, p95 and p99",
        "lower",
    ),
    Metric(
        "evidence_coverage",
        "1",
        "ratio",
        "gold evidence whose block was resident when the answer began: characters, or blocks in a replay",
        "higher",
    ),
    Metric(
        "load_ratio", "1", "ratio", "loads over the loads of the optimal offline policy, same budget", "lower"
    ),
    Metric(
        "quality_kl",
        "nat",
        "ratio",
        "mean KL divergence of the next-token distribution to the full cache's, answer teacher-forced",
        "lower",
    ),
    Metric(
        "quality_top1",
        "1",
        "ratio",
        "share of answer tokens with the full cache's most likely token",
        "higher",
    ),
    Metric(
        "quality_f1", "1", "ratio", "token F1 of the answer against the labelled one", "higher"
    ),  # What a replay counts. A replayed number is simulated, and says so.
    Metric("simulated", "", "label", "whether the numbers come from a replay without a model"),
    Metric("turns", "turns", "count", "turns replayed"),
    Metric("used_block_turns", "blocks", "count", "sum over turns of the blocks that the turn uses"),
    Metric("capacity_blocks", "blocks", "count", "blocks that the device holds"),
    Metric("reserve_blocks", "blocks", "count", "slots kept free for the question and its answer"),
    Metric("peak_resident_blocks", "blocks", "count", "most document blocks on the device at once", "lower"),
    Metric("loads", "loads", "count", "blocks moved to the device, on demand or ahead of it", "lower"),
    Metric(
        "faults", "faults", "count", "uses of a block that was absent; one fault may load several", "lower"
    ),
    Metric("evictions", "evictions", "count", "blocks whose slot was freed", "lower"),
    # What one turn reports.
    Metric("status", "", "label", "active, degraded or disabled"),
    Metric("reason", "", "label", "why the status is not active"),
    Metric("policy", "", "label", "name of the policy that decided"),
    Metric("turn", "1", "count", "number of the turn, from 0"),
    Metric("question_tokens", "tokens", "count", "tokens of the question, template included"),
    Metric("answer_tokens", "tokens", "count", "tokens generated"),
    Metric("recalled_blocks", "blocks", "count", "blocks loaded before the answer started", "lower"),
    Metric("fault_blocks", "blocks", "count", "blocks loaded on demand while the answer ran", "lower"),
    Metric("evicted_blocks", "blocks", "count", "blocks whose slot was freed in the turn", "lower"),
    Metric(
        "prefetched_blocks", "blocks", "count", "blocks loaded ahead of the question, since the last turn"
    ),
    Metric(
        "wasted_prefetches",
        "blocks",
        "count",
        "blocks loaded ahead of a question that left the device in this turn and no turn had used",
        "lower",
    ),
    Metric("knit_tokens", "tokens", "count", "recalled tokens recomputed in each other's sight", "lower"),
    Metric("corrupt_blocks", "blocks", "count", "stored blocks with a wrong checksum, recomputed", "lower"),
    Metric(
        "prefilled_document_tokens",
        "tokens",
        "count",
        "document tokens computed instead of read back",
        "lower",
    ),
    Metric(
        "early_document_tokens",
        "tokens",
        "count",
        "document tokens computed out of order, for questions that came before the whole document was read",
        "lower",
    ),
    Metric(
        "first_answer_s", "s", "seconds", "from the command's start to the end of its first answer", "lower"
    ),
    Metric("device_bytes", "B", "bytes", "device memory that holds KV", "lower"),
    Metric("ttft_s", "s", "seconds", "from the question to the first token of its answer", "lower"),
    Metric("recall_s", "s", "seconds", "part of ttft_s spent choosing and loading blocks", "lower"),
    Metric("knit_s", "s", "seconds", "part of ttft_s spent knitting", "lower"),
    Metric("decode_s_per_token", "s", "seconds", "mean time of a decode step", "lower"),
    Metric(
        "calibration_drift",
        "1",
        "ratio",
        "mean predicted persistence minus the share of blocks used since, exponentially averaged over turns; "
        "above 0: use is overestimated",
    ),
    Metric("grade_counts", "blocks", "count", "blocks by grade, P0 to P3"),
    Metric("tier_tokens", "tokens", "count", "tokens by the fastest tier that holds them"),
    # What a service counts since its start, over all sessions, and what it holds now.
    Metric("requests", "requests", "count", "turns asked for, by outcome"),
    Metric("http_requests", "requests", "count", "HTTP requests, by route, method and status"),
    Metric("input_tokens", "tokens", "count", "prompt tokens computed for one turn and not kept"),
    Metric("cache_creation_input_tokens", "tokens", "count", "prompt tokens computed and kept"),
    Metric("cache_read_input_tokens", "tokens", "count", "prompt tokens taken from a tier"),
    Metric("output_tokens", "tokens", "count", "answer tokens generated"),
    Metric("used_loads", "loads", "count", "loads of a block that a turn used while it was there", "higher"),
    Metric("covered_block_turns", "blocks", "count", "used block-turns resident at first use", "higher"),
    Metric("recalled_tokens", "tokens", "count", "tokens loaded before answers started", "lower"),
    Metric("prefilled_tokens", "tokens", "count", "document tokens computed instead of read back", "lower"),
    Metric("evicted_p3_tokens", "tokens", "count", "tokens of grade P3 whose slot was freed"),
    Metric("window_loads", "loads", "count", "loads of the static window over the same demand (simulated)"),
    Metric("window_wasted_loads", "1", "ratio", "wasted_loads of the static window (simulated)"),
    Metric("window_coverage", "1", "ratio", "coverage of the static window (simulated)"),
    Metric(
        "window_cut_tokens",
        "tokens",
        "count",
        "used tokens that the static window had cut: what poor scheduling discards (simulated)",
    ),
    Metric("waiting_turns", "turns", "count", "turns in the queue", "lower"),
    Metric("running_turns", "turns", "count", "turns that are read or answered"),
    Metric("live_sessions", "sessions", "count", "conversations with device memory"),
    Metric("parked_sessions", "sessions", "count", "conversations at hand without device memory"),
    Metric("parks", "parks", "count", "arenas given up for other sessions", "lower"),
    Metric("resumes", "resumes", "count", "parked conversations that came back"),
    Metric("pinned_blocks", "blocks", "count", "blocks that hints hold on the device"),
    Metric("grade_tokens", "tokens", "count", "tokens by grade, P0 to P3"),
    Metric("tier_bytes", "B", "bytes", "bytes held, by tier"),
    Metric("tier_capacity_bytes", "B", "bytes", "bytes that a tier may hold"),
    Metric("host_available_bytes", "B", "bytes", "host memory that the system has left", "higher"),
    Metric("uptime_s", "s", "seconds", "since the service started"),
    Metric(
        "totals_age_s",
        "s",
        "seconds",
        "since the totals were taken: above 0 where the model's running step takes long",
        "lower",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _DECLARED}
"""Every metric by name."""
