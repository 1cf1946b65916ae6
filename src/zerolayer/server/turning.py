"""One turn of the service, in quanta: documents read, past turns taken over or replayed, then the answer."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from zerolayer.answering import FAULT_ROOM, Decoding
from zerolayer.core import Answer
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.decision.presets import get_preset
from zerolayer.decision.registry import create_policy
from zerolayer.indexing import ENCODED_AT_A_TIME
from zerolayer.scheduler import TurnResult
from zerolayer.server.conversation import SaidTurn
from zerolayer.server.counters import Counters, EventLog, WindowShadow
from zerolayer.server.hints import HintReport
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.options import ServiceOptions
from zerolayer.server.pool import Live, Pool
from zerolayer.server.report import TurnAccount, rtls_metrics
from zerolayer.server.sampling import AnswerText, chooser
from zerolayer.server.turns import Cited, Finished, Started, StopReason, TextDelta, Usage

Quantum = Literal["prefill", "decode", "wait"]
"""What the next step of a turn is: reading, answering, or waiting for another turn that reads the same."""

Quanta = Generator[Quantum, None, None]


@dataclass(slots=True)
class _Progress:
    """What a turn has done so far."""

    status: str = "active"
    reason: str = ""
    prefilled_tokens: int = 0  # of the documents, computed now
    replayed_tokens: int = 0
    prefill_s: float = 0.0
    first_token: float | None = None
    hints: list[HintReport] = field(default_factory=list)
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0))


class Turning:
    """Makes turns of requests, one quantum at a time. Only the engine thread calls it."""

    def __init__(self, pool: Pool, options: ServiceOptions, counters: Counters, events: EventLog) -> None:
        self._pool, self._options = pool, options
        self._counters, self._events = counters, events
        self.thresholds: dict[str, Thresholds] = {}  # by tenant, for sessions to come
        self._shadows: dict[str, WindowShadow] = {}

    def quanta(self, turn: RunningTurn, live: Live) -> Quanta:
        """The whole turn of a conversation that holds device memory. Raises what the turn fails with."""
        turn.session_id = live.id
        live.conversation = turn.conversation
        progress = _Progress()
        try:
            self._configure(turn, live, progress)
            yield from self._read(turn, live, progress)
            if not turn.cancelled:
                yield from self._catch_up(turn, live, progress)
            if not turn.cancelled:
                yield from self._answer(turn, live, progress)
        finally:
            live.state = "idle"
            self._pool.touch(live)

    # Before the answer

    def _configure(self, turn: RunningTurn, live: Live, progress: _Progress) -> None:
        """Who decides, and where grades are cut: a session switches policies, and each keeps what it has learned."""
        rtls = turn.request.rtls
        if not rtls.enabled:
            progress.status = "disabled"
            progress.reason = (
                "the request asked for it: hints and options are ignored, and the answer is the same"
            )
            return
        name = rtls.preset or rtls.policy or self._pool.settings.policy
        if name != live.policy:
            if name not in live.policies:
                live.policies[name] = policy_of(rtls.policy, rtls.preset)
            live.session.use_policy(live.policies[name])
            live.policy = name
            self._events.add("policy", f"decided by {name} from now on", live.id, live.tenant)
        cuts = self.thresholds.get(live.tenant)
        if rtls.thresholds is not None:
            asked = rtls.thresholds
            cuts = Thresholds(asked.p0_min, asked.p1_min, asked.p2_min)
        policy = live.session.policy
        if cuts is None:
            return
        if isinstance(policy, GradingPolicy):
            policy.set_thresholds(live.session.scheduler.table, cuts)
        elif rtls.thresholds is not None:
            progress.status = "degraded"
            progress.reason = f"policy {name!r} does not grade: the thresholds have no effect"

    def _read(self, turn: RunningTurn, live: Live, progress: _Progress) -> Quanta:
        """Read the documents, unless the question is answered early, from what it points at."""
        session = live.session
        if session.is_read or session.answers_early:
            return
        while any(other is not live for other in self._pool.readers(live.key)):
            if turn.cancelled:
                return
            yield "wait"
        live.state = "reading"
        before = session.read_report
        while not session.is_read and not turn.cancelled:
            yield "prefill"
            started = time.perf_counter()
            read_chunk(live)
            progress.prefill_s += time.perf_counter() - started
        while not session.index.encoded and not turn.cancelled:
            yield "prefill"
            session.index.encode(ENCODED_AT_A_TIME)
        report = session.read_report
        progress.prefilled_tokens = report.tokens_prefilled - before.tokens_prefilled
        self._counters.sums["prefilled_tokens"] += progress.prefilled_tokens
        self._counters.sums["recomputed_tokens"] += report.recomputed_tokens - before.recomputed_tokens
        if progress.prefilled_tokens:
            text = f"read {progress.prefilled_tokens:,} of {report.tokens_total:,} tokens, the others were stored"
            self._events.add("read", text, live.id, live.tenant, seconds=progress.prefill_s)

    def _catch_up(self, turn: RunningTurn, live: Live, progress: _Progress) -> Quanta:
        """Have the session keep all turns of the conversation so far: stored ones are taken over, others replayed."""
        session, said = live.session, turn.conversation.turns
        if said and not live.kept.turns and session.is_read:
            stored = self._pool.stored_turns(live)
            if stored is not None:
                session.adopt(stored.token_ids, stored.block_ids)
                for past in said[: len(stored.turns)]:
                    session.note_asked(past.question, past.answer)
                live.kept = replace(
                    live.kept, turns=stored.turns, ends=stored.ends, token_ids=stored.token_ids
                )
        for past in said[len(live.kept.turns) :]:
            started = time.perf_counter()
            replay = session.replay_steps(past.question, past.answer)
            while True:
                yield "prefill"
                try:
                    next(replay)
                except StopIteration as end:
                    progress.replayed_tokens += end.value
                    break
            progress.prefill_s += time.perf_counter() - started
            self._keep(live, past)
            if turn.cancelled:
                return

    def _keep(self, live: Live, said: SaidTurn) -> None:
        """Note a turn that the session keeps from now on."""
        tokens, blocks = live.session.kept_turns()
        live.kept = replace(
            live.kept,
            turns=(*live.kept.turns, said.key),
            ends=(*live.kept.ends, len(tokens)),
            token_ids=tuple(tokens),
            block_ids=tuple(blocks),
            last_used=time.time(),
        )

    # The answer

    def _answer(self, turn: RunningTurn, live: Live, progress: _Progress) -> Quanta:
        session, conversation = live.session, turn.conversation
        self._hint(turn, live, progress)
        early = session.answers_early
        decoding = self._decoding(turn, live)
        kept = decoding.keep

        def give(delta: TextDelta) -> None:
            turn.tell(delta)

        text = AnswerText(session.engine.tokenizer, decoding, turn.request.sampling.stop_sequences, give)
        if not early:
            progress.usage = self._usage(turn, live, progress)
            turn.tell(Started(live.id, progress.usage))
        live.state = "answering"
        before = session.read_report
        steps = session.answer_steps(conversation.question, decoding, text, conversation.begun)
        try:
            while True:
                yield "decode" if text.tokens else "prefill"
                if turn.cancelled:
                    if not text.tokens:
                        return
                    decoding.ended, decoding.keep = True, False
                try:
                    token = next(steps)
                except StopIteration as end:
                    answer, result = end.value
                    break
                if token is None:
                    continue
                if progress.first_token is None:
                    progress.first_token = time.perf_counter()
                    if early:
                        progress.usage = self._early_usage(turn, live, before.tokens_early)
                        turn.tell(Started(live.id, progress.usage))
                text.add(token)
        finally:
            steps.close()
        if early and progress.first_token is None:
            progress.usage = self._early_usage(turn, live, before.tokens_early)
            turn.tell(Started(live.id, progress.usage))
        live.turns += 1
        if kept and decoding.keep:
            told = conversation.begun + text.whole
            self._keep(live, SaidTurn(conversation.question, told))
            if session.is_read:
                self._pool.note(live)
        self._finish(turn, live, progress, _Ended(decoding, text, answer, result, early))

    def _hint(self, turn: RunningTurn, live: Live, progress: _Progress) -> None:
        pins, request = live.pins, turn.request
        if request.rtls.enabled:
            progress.hints = pins.take(request.hints, self._pin_quota(live))
            for report in progress.hints:
                if report.status != "pinned" or report.blocks:
                    text = f"{report.status}: {report.hint.text[:60]!r} {report.reason}".rstrip()
                    self._events.add("pin", text, live.id, live.tenant, blocks=len(report.blocks))
            stream = live.session.stream
            for source, start in zip(turn.conversation.sources, stream.char_starts, strict=True):
                if source.cache_ttl_s is not None:
                    pins.floor(start, start + len(source.document.text), source.cache_ttl_s)
        pins.apply()

    def _pin_quota(self, live: Live) -> int:
        """Blocks that the tenant may pin yet."""
        slot_bytes = self._pool.settings.block_tokens * self._pool.engine.geometry.token_bytes
        most = int(self._options.tenant_pin_share * self._pool.budget) // slot_bytes
        others = self._pool.live.values()
        return most - sum(len(other.pins.blocks) for other in others if other.tenant == live.tenant)

    def _decoding(self, turn: RunningTurn, live: Live) -> Decoding:
        """Limits and choices of the answer. It is never longer than the session's memory allows."""
        sampling, sizes = turn.request.sampling, live.session.sizes
        asked = min(sampling.max_tokens, self._options.max_output_tokens)
        question = len(live.session.question_ids(turn.conversation.question))
        room = (sizes.slots - sizes.sink_blocks - 1 - FAULT_ROOM) * sizes.block_tokens
        return Decoding(
            limit=max(1, min(asked, room - question - sizes.block_tokens)),
            reserve=sizes.max_new_tokens,
            choose=chooser(sampling),
            keep=True,
        )

    def _usage(self, turn: RunningTurn, live: Live, progress: _Progress) -> Usage:
        """Of the whole prompt: what is read back, what is computed and kept, what is computed for this turn only."""
        session = live.session
        width, said = session.settings.block_tokens, len(session.kept_turns()[0])
        stored = said - said % width  # the rest fills no block, and is computed again
        tail = said - stored + len(session.question_ids(turn.conversation.question))
        kept = tail - tail % width
        replayed = min(progress.replayed_tokens, stored)
        created = progress.prefilled_tokens + replayed + kept
        documents = len(session.stream.token_ids)
        read = documents - progress.prefilled_tokens + stored - replayed
        return Usage(tail - kept, created, read)

    def _early_usage(self, turn: RunningTurn, live: Live, before: int) -> Usage:
        """Of an early answer: only what was selected was read; nothing of it is kept as it was computed."""
        session = live.session
        computed = session.read_report.tokens_early - before
        said = len(session.kept_turns()[0]) + len(session.question_ids(turn.conversation.question))
        return Usage(computed + said, 0, 0)

    # After the answer

    def _finish(self, turn: RunningTurn, live: Live, progress: _Progress, ended: _Ended) -> None:
        self._cite(turn, ended.answer)
        usage = replace(progress.usage, output_tokens=len(ended.result.token_ids))
        asked = min(turn.request.sampling.max_tokens, self._options.max_output_tokens)
        stop: StopReason = "end_turn"
        if ended.text.stop is not None:
            stop = "stop_sequence"
        elif ended.decoding.cut_short or len(ended.result.token_ids) >= ended.decoding.limit:
            stop = "max_tokens"
            if len(ended.result.token_ids) < asked and progress.status == "active":
                progress.status = "degraded"
                progress.reason = (
                    f"the session's device memory had room for {len(ended.result.token_ids)} answer tokens of the "
                    f"{asked} asked for; raise the device budget"
                )
        first = progress.first_token or time.perf_counter()
        account = TurnAccount(
            live.id,
            live.policy,
            progress.status,
            progress.reason,
            progress.hints,
            first - turn.taken_in,
            progress.prefill_s,
            progress.replayed_tokens,
        )
        own = None if ended.early else live.session.scheduler
        told = rtls_metrics(account, ended.answer, ended.result, own, live.session.settings.block_tokens)
        self._count(live, usage, account, ended)
        turn.tell(Finished(stop, ended.text.stop, usage, told))

    def _cite(self, turn: RunningTurn, answer: Answer) -> None:
        """Places that the answer rests on, in documents that ask for citations."""
        by_name = {source.document.name: source for source in turn.conversation.sources}
        for citation in answer.citations:
            source = by_name.get(citation.document)
            if source is None or source.part is None or not source.citations:
                continue
            turn.tell(
                Cited(
                    source.part,
                    source.document.name,
                    source.document.text[citation.char_start : citation.char_end],
                    citation.page if source.has_pages else 0,
                    citation.char_start,
                    citation.char_end,
                    citation.weight,
                )
            )

    def _count(self, live: Live, usage: Usage, account: TurnAccount, ended: _Ended) -> None:
        counters, metrics, width = self._counters, ended.answer.metrics, live.session.settings.block_tokens
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
        self._events.add(
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
            self._events.add("fallback", f"{account.status}: {account.reason}", live.id, live.tenant)

    def _shadow(self, live: Live, result: TurnResult) -> None:
        """What the static window would have done in this turn. A session too small for it has none."""
        session, table = live.session, live.session.scheduler.table
        sizes = session.sizes
        if sizes.slots < sizes.sink_blocks + WINDOW_LEAST:
            return
        shadow = self._shadows.get(live.id)
        if shadow is None:
            blocks = len(session.stream.blocks)
            shadow = WindowShadow(blocks, sizes.slots, sizes.block_tokens, sizes.sink_blocks)
            self._shadows[live.id] = shadow
        counts, cut = shadow.turn(result.used, len(table))
        self._counters.window.add(counts)
        self._counters.sums["window_cut_tokens"] += cut * sizes.block_tokens


WINDOW_LEAST = 8
"""Least slots beside the sinks with which the static window is replayed."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A finished answer."""

    decoding: Decoding
    text: AnswerText
    answer: Answer
    result: TurnResult
    early: bool


def policy_of(policy: str | None, preset: str | None) -> Policy:
    """A new policy by preset or name. Raises UnknownNameError, SettingError."""
    return get_preset(preset).policy() if preset is not None else create_policy(policy or "graded")


def read_chunk(live: Live) -> None:
    """One chunk of a session's documents; the last one makes it ready for questions."""
    chunks: Iterator[bool] = iter((False, True))
    live.session.read(until=lambda: next(chunks, True), encode=False)
