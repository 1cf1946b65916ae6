"""The books of finished turns: sums of the service, its events, and the static window over the same demand."""

from __future__ import annotations

from dataclasses import dataclass

from zerolayer.core import Answer
from zerolayer.runtime.answering import Decoding
from zerolayer.scheduler import TurnResult
from zerolayer.server.counters import Counters, EventLog, WindowShadow
from zerolayer.server.pool import Live
from zerolayer.server.report import TurnAccount
from zerolayer.server.sampling import AnswerText
from zerolayer.server.turns import Usage

WINDOW_LEAST = 8
"""Least slots beside the sinks with which the static window is replayed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished answer."""

    decoding: Decoding
    text: AnswerText
    answer: Answer
    result: TurnResult
    early: bool


class Accounts:
    """Keeps the books. Only the engine thread calls it."""

    def __init__(self, counters: Counters, events: EventLog) -> None:
        self.counters, self.events = counters, events

    def count(self, live: Live, usage: Usage, account: TurnAccount, ended: Ended) -> None:
        counters, metrics, width = self.counters, ended.answer.metrics, live.session.settings.block_tokens
        sums = counters.sums
        sums["turns"] += 1
        sums["input_tokens"] += usage.input_tokens
        sums["cache_creation_input_tokens"] += usage.cache_creation_input_tokens
        sums["cache_read_input_tokens"] += usage.cache_read_input_tokens
        sums["output_tokens"] += usage.output_tokens
        sums["faults"] += metrics.fault_blocks
        sums["discarded_tokens"] += metrics.discarded_tokens
        sums["recomputed_tokens"] += metrics.recomputed_tokens + account.replayed_tokens
        sums["recalled_tokens"] += (metrics.recalled_blocks + metrics.fault_blocks) * width
        sums["prefilled_tokens"] += metrics.prefilled_document_tokens + account.replayed_tokens
        sums["corrupt_blocks"] += metrics.corrupt_blocks
        sums["evicted_p3_tokens"] += metrics.evicted_blocks * width
        counters.loads.add(ended.result.loads)
        counters.p0_us.extend(ns / 1000 for ns in ended.result.p0_access_ns)
        counters.ttft_s.append(account.ttft_s)
        if len(ended.result.token_ids) > 1:
            counters.decode_s.append(metrics.decode_s_per_token)
        if not ended.early:
            self._shadow(live, ended.result)
        text = (
            f"turn {metrics.turn} by {live.policy}: {usage.output_tokens} tokens, first after "
            f"{account.ttft_s:.2f} s"
        )
        self.events.add(
            "turn",
            text,
            live.id,
            live.tenant,
            ttft_s=account.ttft_s,
            output_tokens=usage.output_tokens,
            loads=ended.result.loads.loads,
            wasted_loads=ended.result.loads.wasted,
            evicted_blocks=metrics.evicted_blocks,
        )
        if account.status != "active":
            self.events.add("fallback", f"{account.status}: {account.reason}", live.id, live.tenant)

    def _shadow(self, live: Live, result: TurnResult) -> None:
        """What the static window would have done in this turn. A session too small for it has none."""
        session, table = live.session, live.session.scheduler.table
        sizes = session.sizes
        if sizes.slots < sizes.sink_blocks + WINDOW_LEAST:
            return
        if live.shadow is None:
            blocks = len(session.stream.blocks)
            live.shadow = WindowShadow(blocks, sizes.slots, sizes.block_tokens, sizes.sink_blocks)
        counts, cut = live.shadow.turn(result.used, len(table))
        self.counters.window.add(counts)
        self.counters.sums["window_cut_tokens"] += cut * sizes.block_tokens
