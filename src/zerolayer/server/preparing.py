"""Before a turn's answer: who decides, documents read, past turns taken over or replayed. In quanta."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.decision.presets import get_preset
from zerolayer.decision.registry import create_policy
from zerolayer.runtime.indexing import ENCODED_AT_A_TIME
from zerolayer.server.conversation import SaidTurn
from zerolayer.server.counters import Counters, EventLog
from zerolayer.server.hints import HintReport
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.pool import Live, Pool
from zerolayer.server.turns import Usage

Quantum = Literal["prefill", "decode", "wait"]
"""What the next step of a turn is: reading, answering, or waiting for another turn that reads the same."""

Quanta = Generator[Quantum, None, None]


@dataclass(slots=True)
class Progress:
    """What a turn has done so far."""

    status: str = "active"
    reason: str = ""
    prefilled_tokens: int = 0  # of the documents, computed now
    replayed_tokens: int = 0
    prefill_s: float = 0.0
    first_token: float | None = None
    hints: list[HintReport] = field(default_factory=list)
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0))


class Preparing:
    """Brings a session to where its question can be asked. Only the engine thread calls it."""

    def __init__(self, pool: Pool, counters: Counters, events: EventLog) -> None:
        self._pool, self._counters, self._events = pool, counters, events
        self.thresholds: dict[str, Thresholds] = {}  # by tenant, for sessions to come

    def configure(self, turn: RunningTurn, live: Live, progress: Progress) -> None:
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
        cuts = rtls.thresholds or self.thresholds.get(live.tenant)
        if cuts is None:
            return
        if isinstance(live.session.policy, GradingPolicy):
            live.session.set_entropy_thresholds(cuts.p0_min, cuts.p1_min, cuts.p2_min)
        elif rtls.thresholds is not None:
            progress.status = "degraded"
            progress.reason = f"policy {name!r} does not grade: the thresholds have no effect"

    def read(self, turn: RunningTurn, live: Live, progress: Progress) -> Quanta:
        """Read the documents, unless the question is answered early, from what it points at."""
        session = live.session
        new = len(turn.conversation.turns) <= len(
            live.kept.turns
        )  # nothing of the conversation has to be replayed
        if session.is_read or (session.answers_early and new):
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

    def catch_up(self, turn: RunningTurn, live: Live, progress: Progress) -> Quanta:
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
            keep(live, past)
            if turn.cancelled:
                return


def keep(live: Live, said: SaidTurn) -> None:
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


def policy_of(policy: str | None, preset: str | None) -> Policy:
    """A new policy by preset or name. Raises UnknownNameError, SettingError."""
    return get_preset(preset).policy() if preset is not None else create_policy(policy or "graded")


def read_chunk(live: Live) -> None:
    """One chunk of a session's documents; the last one makes it ready for questions."""
    chunks: Iterator[bool] = iter((False, True))
    live.session.read(until=lambda: next(chunks, True), encode=False)
