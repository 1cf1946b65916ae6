"""The service: turns of many conversations, one model, one device budget and one host budget."""

from __future__ import annotations

import copy
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerolayer.config import Settings, parse_size
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import GradingPolicy
from zerolayer.decision.presets import get_preset
from zerolayer.decision.registry import create_policy
from zerolayer.documents.stream import build_stream, prompt_frame
from zerolayer.errors import OverloadedError, SettingError, UnknownNameError, UsageError
from zerolayer.execution.tiers.host import available_memory
from zerolayer.server.conversation import Conversation, DocumentReader, read_conversation
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.options import ServiceOptions
from zerolayer.server.pool import Live, Pool
from zerolayer.server.showing import (
    block_views,
    heat_view,
    need_view,
    policy_views,
    session_view,
    stored_view,
)
from zerolayer.server.totals import totals_of
from zerolayer.server.turns import TurnRequest
from zerolayer.server.views import (
    BlockView,
    HeatView,
    IntentView,
    ModelView,
    PolicyView,
    PrefetchView,
    Readiness,
    ServiceEvent,
    SessionView,
    Totals,
    TotalsHistory,
)
from zerolayer.server.worker import Worker

__all__ = ["RunningTurn", "Service"]

LEAST_DISK_BYTES = 64 << 20
"""With less than this free on the store's disk the service is not ready."""


class Service:
    """Answers turns of many conversations with one model, within one device and one host budget.

    All methods are safe from any thread. Those that show a session wait for the running quantum, less than two
    seconds on a slow machine: call them from a thread pool, not from an event loop.
    """

    def __init__(self, settings: Settings, options: ServiceOptions | None = None) -> None:
        """Cheap: loads nothing. Raises SettingError, UnknownNameError."""
        self.settings, self.options = settings, options or ServiceOptions()
        create_policy(settings.policy)
        parse_size(self.options.device_budget, "device budget")
        self._worker = Worker(settings, self.options)
        self._documents = DocumentReader()
        self._tokenizer: Any = None  # a copy: tokenizers are not safe to share between threads
        self._counting = threading.Lock()
        self._created = time.time()

    def start(self) -> None:
        """Start the engine thread: it loads the model, warms up, and is ready then."""
        self._worker.start()

    def close(self) -> None:
        """Stop: running turns fail, everything that was read and said is stored, threads have ended."""
        self._worker.close()

    def ready(self) -> Readiness:
        """Whether turns are answered without delay."""
        reasons = [self._worker.starting] if self._worker.starting else []
        available = available_memory()
        if available is not None and available < self.options.least_host_bytes:
            reasons.append(
                f"{available / 2**30:.1f} GiB of host memory are available; "
                f"{self.options.least_host_bytes / 2**30:.1f} GiB are needed"
            )
        if self._worker.pool is not None:
            free = shutil.disk_usage(self._worker.pool.store.root).free
            if free < LEAST_DISK_BYTES:
                reasons.append(f"{free / 2**20:.0f} MiB of disk are free; blocks can no longer be written")
        if self._worker.waiting >= self.options.max_waiting:
            reasons.append(f"{self._worker.waiting} turns wait; no further one is taken in")
        return Readiness(not reasons, tuple(reasons))

    def submit(self, request: TurnRequest) -> RunningTurn:
        """Take a turn in: it is parsed here (a PDF may take a second) and queued.

        Raises UsageError or DocumentError where the request is wrong, OverloadedError where too many wait.
        """
        _check(request)
        return self._worker.submit(request, read_conversation(request, self._documents))

    def count_tokens(self, request: TurnRequest) -> int:
        """Tokens of the whole prompt, as it would be computed without anything stored. Raises as `submit`."""
        conversation = read_conversation(request, self._documents)
        with self._counting:
            if self._tokenizer is None:
                pool = self._pool()
                self._tokenizer = self._worker.call(lambda: copy.deepcopy(pool.engine.tokenizer))
            return _prompt_tokens(conversation, self._tokenizer, self.settings.block_tokens)

    def models(self) -> list[ModelView]:
        """The model that answers."""
        name, pool = public_name(self.settings.model), self._worker.pool
        window, fingerprint, device = 0, "", self.settings.device
        if pool is not None:
            engine = pool.engine
            window, fingerprint, device = engine.window, engine.fingerprint, str(engine.device)
        most = self.options.max_output_tokens
        return [ModelView(name, name, self._created, window, most, fingerprint, device)]

    def sessions(self, tenant: str | None = None) -> list[SessionView]:
        """Live and stored sessions, the latest used first; of one tenant where one is given."""

        def look() -> list[SessionView]:
            pool = self._worker.pool
            if pool is None:
                return []
            live = sorted(pool.live.values(), key=lambda live: -live.used)
            views = [session_view(one, public_name(self.settings.model)) for one in live]
            opened = {view.stored_id for view in views}
            stored = [stored_view(one, public_name(self.settings.model)) for one in pool.store.list()]
            views += [view for view in stored if view.id not in opened]
            return [view for view in views if tenant is None or view.tenant == tenant]

        return self._worker.call(look)

    def blocks(self, session_id: str, tenant: str | None = None) -> list[BlockView]:
        """The blocks of a live session. Raises UnknownNameError."""
        return self._worker.call(lambda: block_views(self._live(session_id, tenant)))

    def events(self, since: int = 0, limit: int = 500, tenant: str | None = None) -> list[ServiceEvent]:
        """Events with an id above `since`, oldest first: at most `limit`, the latest of them."""
        return self._worker.events.since(since, limit, tenant)

    def heat(self, session_id: str, tenant: str | None = None) -> HeatView | None:
        """The heat map of a live session; None before its first turn. Raises UnknownNameError."""
        return self._worker.call(lambda: heat_view(self._live(session_id, tenant)))

    def totals(self) -> Totals:
        """Counters since the service started."""
        return self._worker.call(lambda: totals_of(self._worker))

    def history(self) -> TotalsHistory:
        """What the dashboard draws over time, since the service started. Waits for no quantum."""
        return self._worker.history.view(self._worker.counters.started)

    def set_thresholds(
        self, thresholds: Thresholds, session_id: str | None = None, tenant: str | None = None
    ) -> None:
        """Move the cuts of a session, or (None) of the tenant's sessions and of those to come.

        Raises SettingError where the session's policy does not grade, UnknownNameError.
        """

        def move() -> None:
            if session_id is not None:
                live = self._live(session_id, tenant)
                if not isinstance(live.session.policy, GradingPolicy):
                    raise SettingError(
                        f"session {session_id!r} is decided by {live.policy!r}, which does not grade; "
                        "ask with a policy that does, such as graded"
                    )
                live.session.set_entropy_thresholds(thresholds.p0_min, thresholds.p1_min, thresholds.p2_min)
                return
            turning, pool = self._worker.turning, self._pool()
            assert turning is not None
            turning.preparing.thresholds[tenant or ""] = thresholds
            for live in pool.live.values():
                if live.tenant == (tenant or "") and isinstance(live.session.policy, GradingPolicy):
                    live.session.set_entropy_thresholds(
                        thresholds.p0_min, thresholds.p1_min, thresholds.p2_min
                    )

        self._worker.call(move)

    def predict_intent(
        self, session_id: str, tenant: str | None = None, history: Sequence[str] | None = None
    ) -> IntentView:
        """Where the next question is likely to go. Raises UnknownNameError."""

        def forecast() -> IntentView:
            found = self._live(session_id, tenant).session.forecast_intent(history)
            return IntentView(
                session_id,
                tuple(map(need_view, found.needs)),
                found.other,
                found.entropy_bits,
                found.entropy,
                {str(act): chance for act, chance in found.acts.items()},
                dict(found.ways),
            )

        return self._worker.call(forecast)

    def prefetch_intent(
        self, session_id: str, tenant: str | None = None, history: Sequence[str] | None = None
    ) -> PrefetchView:
        """Warm the blocks of the likeliest needs. Nothing moves while the session answers, or has no device memory.

        Raises UnknownNameError, StoreFullError.
        """

        def prefetch() -> PrefetchView:
            live = self._live(session_id, tenant)
            needs = tuple(map(need_view, live.session.forecast_intent(history).needs))
            if live.busy or not live.holds or not live.session.is_read:
                return PrefetchView(session_id, needs, (), (), (), (), 0, 0)
            report = live.session.prefetch_intent(history)
            return PrefetchView(
                session_id,
                needs,
                report.wanted,
                report.resident,
                report.to_host,
                report.to_device,
                report.host_bytes,
                report.device_bytes,
            )

        return self._worker.call(prefetch)

    def policies(self) -> list[PolicyView]:
        """Policies and presets that a request may name."""
        pool = self._worker.pool
        used = Counter(live.policy for live in list(pool.live.values())) if pool is not None else Counter()
        return policy_views(self.settings.policy, used)

    def _pool(self) -> Pool:
        """The pool. Raises OverloadedError before the model is loaded."""
        if self._worker.pool is None:
            raise OverloadedError(f"{self._worker.starting}; send the request again later")
        return self._worker.pool

    def _live(self, session_id: str, tenant: str | None) -> Live:
        """A live session of this tenant (None: of any). Raises UnknownNameError, which names no other's."""
        live = self._pool().live
        found = live.get(session_id)
        if found is None or (tenant is not None and found.tenant != tenant):
            known = [one.id for one in live.values() if tenant is None or one.tenant == tenant]
            raise UnknownNameError("live session", session_id, known)
        return found


def _check(request: TurnRequest) -> None:
    """What a request names must exist. Raises UnknownNameError, SettingError, UsageError."""
    if request.sampling.max_tokens < 1:
        raise UsageError(f"max_tokens is {request.sampling.max_tokens}; it must be at least 1")
    if request.rtls.policy is not None:
        create_policy(request.rtls.policy)
    if request.rtls.preset is not None:
        get_preset(request.rtls.preset)


def _prompt_tokens(conversation: Conversation, tokenizer: Any, width: int) -> int:
    """Tokens of the documents in their frame, filled to whole blocks, of the turns so far, and of the question."""
    sources = conversation.sources
    frame = prompt_frame(tokenizer, conversation.system, bool(sources))
    documents = [source.document for source in sources]
    titled = [source.titled for source in sources]
    count = len(build_stream(documents, tokenizer, frame, width, "", titled).token_ids)
    asked = False
    for turn in (*conversation.turns, None):
        text = conversation.question if turn is None else turn.question
        said = frame.follow_up(text) if asked else frame.question(text)
        said += conversation.begun if turn is None else turn.answer
        count += len(tokenizer(said, add_special_tokens=False)["input_ids"])
        asked = True
    return count


def public_name(model: str) -> str:
    """What clients call a model: of one that was given as a directory or file they learn its last part only."""
    path = Path(model).expanduser()
    return path.name.removesuffix(".gguf") if path.is_absolute() or path.exists() else model
