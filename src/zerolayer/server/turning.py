"""One turn of the service, in quanta: documents read, past turns taken over or replayed, then the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace

from zerolayer.core import Answer
from zerolayer.runtime.answering import FAULT_ROOM, Decoding
from zerolayer.scheduler import TurnResult
from zerolayer.server.accounts import Accounts, Ended
from zerolayer.server.conversation import SaidTurn
from zerolayer.server.counters import Counters, EventLog
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.options import ServiceOptions
from zerolayer.server.pool import Live, Pool
from zerolayer.server.preparing import Preparing, Progress, Quanta, Quantum, keep
from zerolayer.server.report import TurnAccount, rtls_metrics
from zerolayer.server.sampling import AnswerText, chooser
from zerolayer.server.turns import Cited, Finished, Started, StopReason, Usage
from zerolayer.session import AnswerSteps


class Turning:
    """Makes turns of requests, one quantum at a time. Only the engine thread calls it."""

    def __init__(self, pool: Pool, options: ServiceOptions, counters: Counters, events: EventLog) -> None:
        self._pool, self._options, self._events = pool, options, events
        self.preparing = Preparing(pool, counters, events)
        self._accounts = Accounts(counters, events)

    def quanta(self, turn: RunningTurn, live: Live) -> Quanta:
        """The whole turn of a conversation that holds device memory. Raises what the turn fails with."""
        turn.session_id = live.id
        live.conversation = turn.conversation
        progress = Progress()
        try:
            self.preparing.configure(turn, live, progress)
            yield from self.preparing.read(turn, live, progress)
            if not turn.cancelled:
                yield from self.preparing.catch_up(turn, live, progress)
            if not turn.cancelled:
                yield from self._answer(turn, live, progress)
        finally:
            live.state = "idle"
            self._pool.touch(live)

    # The answer

    def _answer(self, turn: RunningTurn, live: Live, progress: Progress) -> Quanta:
        session, conversation = live.session, turn.conversation
        self._hint(turn, live, progress)
        early, computed = session.answers_early, session.read_report.tokens_early
        decoding = self._decoding(turn, live)
        text = AnswerText(session.engine.tokenizer, decoding, turn.request.sampling.stop_sequences, turn.tell)

        def begin() -> None:
            """The prompt is known; of an early answer only once what it points at has been selected."""
            if early:
                progress.usage = self._early_usage(turn, live, computed)
            else:
                progress.usage = self._usage(turn, live, progress)
            turn.tell(Started(live.id, progress.usage))

        if not early:
            begin()
        live.state = "answering"
        steps = session.answer_steps(conversation.question, decoding, text, conversation.begun)
        outcome = yield from self._take(steps, turn, text, decoding, progress, begin if early else None)
        if outcome is None:
            return
        live.turns += 1
        if decoding.keep:
            keep(live, SaidTurn(conversation.question, conversation.begun + text.whole))
            if session.is_read:
                self._pool.note(live)
        self._finish(turn, live, progress, Ended(decoding, text, *outcome, early))

    @staticmethod
    def _take(
        steps: AnswerSteps,
        turn: RunningTurn,
        text: AnswerText,
        decoding: Decoding,
        progress: Progress,
        on_first: Callable[[], None] | None,
    ) -> Generator[Quantum, None, tuple[Answer, TurnResult] | None]:
        """The steps of an answer; `on_first` is called before its first token, or at its end where there is none.

        None where the client left before the first token: the session is as if nobody had asked. When it leaves later,
        the answer ends, and the turn is not kept.
        """
        try:
            while True:
                yield "decode" if text.tokens else "prefill"
                if turn.cancelled:
                    if not text.tokens:
                        return None
                    decoding.ended, decoding.keep = True, False
                token = next(steps)
                if token is None:
                    continue
                if progress.first_token is None:
                    progress.first_token = time.perf_counter()
                    if on_first is not None:
                        on_first()
                text.add(token)
        except StopIteration as end:
            if progress.first_token is None and on_first is not None:
                on_first()
            outcome: tuple[Answer, TurnResult] = end.value
            return outcome
        finally:
            steps.close()

    def _hint(self, turn: RunningTurn, live: Live, progress: Progress) -> None:
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
        question = _asked_tokens(turn, live)
        room = (sizes.slots - sizes.sink_blocks - 1 - FAULT_ROOM) * sizes.block_tokens
        return Decoding(
            limit=max(1, min(asked, room - question - sizes.block_tokens)),
            reserve=sizes.max_new_tokens,
            choose=chooser(sampling),
            keep=True,
        )

    def _usage(self, turn: RunningTurn, live: Live, progress: Progress) -> Usage:
        """Of the whole prompt: what is read back, what is computed and kept, what is computed for this turn only."""
        session = live.session
        width, (said, blocks) = session.settings.block_tokens, session.kept_turns()
        stored, held = len(blocks) * width, session.held_tokens
        tail = len(said) - stored + _asked_tokens(turn, live)
        kept = max(0, tail - tail % width - held)
        replayed = min(progress.replayed_tokens, stored)
        created = progress.prefilled_tokens + replayed + kept
        documents = len(session.stream.token_ids)
        read = documents - progress.prefilled_tokens + stored - replayed + held
        return Usage(tail - held - kept, created, read)

    def _early_usage(self, turn: RunningTurn, live: Live, before: int) -> Usage:
        """Of an early answer: only what was selected was read; nothing of it is kept as it was computed."""
        session = live.session
        computed = session.read_report.tokens_early - before
        said = len(session.kept_turns()[0]) + _asked_tokens(turn, live)
        return Usage(computed + said, 0, 0)

    # After the answer

    def _finish(self, turn: RunningTurn, live: Live, progress: Progress, ended: Ended) -> None:
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
        self._accounts.count(live, usage, account, ended)
        turn.tell(Finished(stop, ended.text.stop, usage, told))

    def _cite(self, turn: RunningTurn, answer: Answer) -> None:
        """Places that the answer rests on, in documents that ask for citations."""
        by_name = {source.document.name: source for source in turn.conversation.sources}
        for citation in answer.citations:
            source = by_name.get(citation.document)
            if source is None or source.part is None or not source.citations:
                continue
            quoted = source.document.text[citation.char_start : citation.char_end]
            if not quoted.strip():
                continue
            turn.tell(
                Cited(
                    source.part,
                    source.document.name,
                    quoted,
                    citation.page if source.has_pages else 0,
                    citation.char_start,
                    citation.char_end,
                    citation.weight,
                )
            )


def _asked_tokens(turn: RunningTurn, live: Live) -> int:
    """Tokens of the question in its frame, and of how its answer begins."""
    return len(live.session.asked_ids(turn.conversation.question, turn.conversation.begun))
