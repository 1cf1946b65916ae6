"""The engine thread: the only one that touches the model. It takes turns in, and gives each a quantum at a time.

Reading and answering each get half of the time while both have work, whatever a quantum of either costs: a long
document does not starve the answers of others, nor they it. Within a kind the turns go round. What is left to do when
nobody waits (a document behind an early answer) is done then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from zerolayer.config import Settings
from zerolayer.errors import OverloadedError, StoreError, UsageError, ZerolayerError
from zerolayer.runtime.indexing import ENCODED_AT_A_TIME
from zerolayer.server.conversation import Conversation
from zerolayer.server.counters import Counters, EventLog
from zerolayer.server.history import History
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.options import ServiceOptions
from zerolayer.server.pool import Live, Pool
from zerolayer.server.preparing import Quanta, Quantum, read_chunk
from zerolayer.server.totals import sample_of
from zerolayer.server.turning import Turning
from zerolayer.server.turns import Failed, TurnRequest

Result = TypeVar("Result")

_LOOK_S = 1.0
"""Seconds between two looks at what has expired, when nothing happens."""

_BLOCKED_S = 0.005

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Active:
    """A turn that is worked on, and what its next step is."""

    turn: RunningTurn
    live: Live
    quanta: Quanta
    next: Quantum = "prefill"


class Worker:
    """Runs turns on a thread of its own."""

    def __init__(self, settings: Settings, options: ServiceOptions) -> None:
        self.settings, self.options = settings, options
        self.counters, self.events, self.history = Counters(), EventLog(options.events), History()
        self.pool: Pool | None = None
        self.turning: Turning | None = None
        self.starting = "not started"
        """Why it is not ready; empty once it is."""
        self._work = threading.Condition()
        self._waiting: deque[RunningTurn] = deque()
        self._calls: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._active: deque[_Active] = deque()
        self._spent = {"prefill": 0.0, "decode": 0.0}  # seconds while both kinds had work
        self._serving = self._closing = False
        self._thread: threading.Thread | None = None

    # From any thread

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None:
            self.starting = "the model is being loaded"
            self._thread = threading.Thread(target=self._run, name="zerolayer-engine", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread: turns that have not ended fail, sessions are stored."""
        with self._work:
            self._closing = True
            self._work.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Turns that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Turns that are worked on."""
        return len(self._active)

    def submit(self, request: TurnRequest, conversation: Conversation) -> RunningTurn:
        """Queue a turn. Raises OverloadedError."""
        turn = RunningTurn(request, conversation, self._wake)
        with self._work:
            if self._closing:
                raise OverloadedError("the service is being closed; send the request again later")
            if len(self._waiting) >= self.options.max_waiting:
                self.counters.outcomes["refused"] += 1
                raise OverloadedError(
                    f"{len(self._waiting)} turns wait and {len(self._active)} are being answered; at most "
                    f"{self.options.max_waiting} may wait; send the request again later"
                )
            self._waiting.append(turn)
            self._work.notify_all()
        return turn

    def call(self, act: Callable[[], Result]) -> Result:
        """Run `act` on the engine thread, between two quanta; here where that thread serves nothing."""
        if threading.current_thread() is self._thread:
            return act()
        future: Future[object] = Future()
        with self._work:
            serving = self._serving
            if serving:
                self._calls.append((act, future))
                self._work.notify_all()
        if not serving:
            return act()
        result: Result = future.result()  # type: ignore[assignment]
        return result

    def _wake(self) -> None:
        with self._work:
            self._work.notify_all()

    # On the engine thread

    def _run(self) -> None:
        """The thread. Whatever goes wrong here ends the service, and everybody who waits is told."""
        ending: Exception = OverloadedError("the service was closed; send the request again later")
        try:
            self._serve()
            self.starting = "the service is being closed"
        except Exception as error:  # noqa: BLE001 - the thread's edge: nobody would hear of it
            ending, why = error, f"the engine has stopped: {error}"
            known = isinstance(error, ZerolayerError)
            self.starting = why if known else "the engine has stopped by a defect; its log has more"
            _log.error(why, exc_info=None if known else error)
        with self._work:
            self._serving, self._closing = False, True
        self._answer_calls()
        self._fail_all(ending)
        if self.pool is not None:
            self.pool.close_all()

    def _serve(self) -> None:
        """Load the model, then turns until the end."""
        self.pool = self._load()
        self.turning = Turning(self.pool, self.options, self.counters, self.events)
        self.starting, self._serving = "", True
        self.events.add("start", f"ready: {self.settings.model}")
        while not self._closing:
            self._sample(self.pool)
            self._answer_calls()
            self._admit()
            if not self._step() and not self._behind():
                self._rest()

    def _sample(self, pool: Pool) -> None:
        """A point of the curves, where it is time for one. A store that cannot be read costs the point, no turn."""
        try:
            self.history.sample(lambda: sample_of(self.counters, pool))
        except (StoreError, OSError) as error:
            _log.debug("the curves miss a point: %s", error)

    def _load(self) -> Pool:
        """The model, loaded and warmed up: the first question pays for nothing that later ones do not."""
        from zerolayer.engines.hf.loading import load_encoder, load_engine

        engine = load_engine(self.settings)
        encoder = load_encoder(self.settings)
        self.starting = "the model is being warmed up"
        width = self.settings.block_tokens
        arena = engine.make_arena(4, width)
        ids = engine.tokenizer("Warming up.", add_special_tokens=False)["input_ids"]
        engine.isolated(ids)
        for count in (len(ids), 1):
            engine.append(ids[:count], arena.rows, observe=True, collect=True, logits=True)
        arena.release()
        if encoder is not None:
            encoder.encode(["Warming up."])
        return Pool(engine, encoder, self.settings, self.options, self._wake)

    def _rest(self) -> None:
        """Nothing to do: wait for a turn, a call or the end; blocked turns are looked at again soon."""
        with self._work:
            if not (self._closing or self._calls):
                self._work.wait(_BLOCKED_S if self._active or self._waiting else _LOOK_S)
        assert self.pool is not None
        for live in self.pool.live.values():
            if not live.busy:
                live.pins.expire()

    def _answer_calls(self) -> None:
        while self._calls:
            act, future = self._calls.popleft()
            try:
                future.set_result(act())
            except Exception as error:  # noqa: BLE001 - it goes to whoever asked, on another thread
                future.set_exception(error)

    def _admit(self) -> None:
        """Begin waiting turns, in order, as far as there is room: each needs a conversation and its device memory."""
        skipped: deque[RunningTurn] = deque()
        while self._waiting and len(self._active) < self.options.max_running:
            turn = self._waiting.popleft()
            if turn.cancelled:
                self.counters.outcomes["cancelled"] += 1
                turn.tell(Failed(_left()))
                continue
            try:
                live = self._conversation_of(turn)
            except Exception as error:  # noqa: BLE001 - one request's error must not end the service
                self._fail(turn, error)
                continue
            if live is None:
                skipped.append(turn)
                continue
            assert self.turning is not None
            live.busy, live.state = True, "queued"
            self._active.append(_Active(turn, live, self.turning.quanta(turn, live)))
        with self._work:
            self._waiting.extendleft(reversed(skipped))

    def _conversation_of(self, turn: RunningTurn) -> Live | None:
        """The conversation that this turn goes on with, holding device memory; None where that has to wait."""
        pool = self.pool
        assert pool is not None
        tenant = turn.request.tenant
        live = pool.match(turn.conversation, tenant)
        if live is None:
            documents = pool.documents(turn.conversation, tenant)
            if documents is None:
                return None
            live = pool.open(turn.conversation, tenant, documents)
        try:
            granted = pool.grant(live)
        except ZerolayerError:
            pool.close(live)
            raise
        for parked in pool.take_parked():
            self.events.add("park", "device memory given to another session", parked.id, parked.tenant)
        return live if granted else None

    def _step(self) -> bool:
        """One quantum of one turn; False where none can go on."""
        ready = [active for active in self._active if active.next != "wait"]
        blocked = len(ready) < len(self._active)
        kinds = {active.next for active in ready}
        if not ready:
            ready = list(self._active)  # waiting for another turn: look whether it still has to
        elif len(kinds) == 2:
            kind = min(self._spent, key=lambda kind: self._spent[kind])
            ready = [active for active in ready if active.next == kind]
        else:
            self._spent = dict.fromkeys(self._spent, 0.0)
        if not ready:
            return False
        chosen = ready[0]
        was = chosen.next
        self._active.remove(chosen)
        self._active.append(chosen)  # the next one's turn
        started = time.perf_counter()
        self._advance(chosen)
        if was in self._spent:
            self._spent[was] += time.perf_counter() - started
        if blocked:
            for active in self._active:
                if active.next == "wait":
                    active.next = "prefill"
        return was != "wait"

    def _advance(self, active: _Active) -> None:
        """Steps of one turn: one, or some tokens of an answer."""
        count = self.options.decode_tokens if active.next == "decode" else 1
        try:
            for _ in range(count):
                active.next = next(active.quanta)
                if active.next != "decode":
                    return
        except StopIteration:
            self._end(active, None)
        except Exception as error:  # noqa: BLE001 - nor one turn's: its session goes instead
            self._end(active, error)

    def _end(self, active: _Active, error: Exception | None) -> None:
        self._active.remove(active)
        turn, live = active.turn, active.live
        live.busy, live.state = False, "idle"
        if error is not None:
            self._fail(turn, error)
            if not isinstance(error, UsageError) and self.pool is not None:
                self.pool.drop(live)
        elif turn.ended and not turn.cancelled:
            self.counters.outcomes["finished"] += 1
        else:
            self.counters.outcomes["cancelled"] += 1
            turn.tell(Failed(_left()))

    def _fail(self, turn: RunningTurn, error: Exception) -> None:
        self.counters.outcomes["failed"] += 1
        if not isinstance(error, ZerolayerError):
            _log.error("a turn failed", exc_info=error)
        self.events.add("error", type(error).__name__, turn.session_id, turn.request.tenant)
        turn.tell(Failed(error))

    def _fail_all(self, error: Exception) -> None:
        """The end: nobody is left waiting."""
        with self._work:
            waiting = list(self._waiting)
            self._waiting.clear()
        for active in list(self._active):
            active.quanta.close()
            active.live.busy = False
            waiting.append(active.turn)
        self._active.clear()
        for turn in waiting:
            self._fail(turn, error)

    def _behind(self) -> bool:
        """One quantum of what is left to do behind the answers; False where nothing is."""
        assert self.pool is not None
        for live in self._idle():
            try:
                if self._read_behind(live):
                    return True
            except ZerolayerError as error:  # what nobody waits for may fail: the next question says why
                self.events.add("error", f"reading behind: {error}", live.id, live.tenant)
                self.pool.drop(live)
                return True
        return False

    def _read_behind(self, live: Live) -> bool:
        """One quantum for a session that has no turn; False where nothing is left to do."""
        session = live.session
        if session.is_read:
            if not session.index.encoded:
                session.index.encode(ENCODED_AT_A_TIME)
                return True
            return False
        live.state = "reading"
        read_chunk(live)
        live.state = "idle"
        if session.is_read and live.kept.turns and self.pool is not None:
            self.pool.refresh(live)
        return True

    def _idle(self) -> Iterator[Live]:
        """Sessions that hold memory and have no turn, the latest used first."""
        assert self.pool is not None
        lives = [live for live in self.pool.live.values() if live.holds and not live.busy]
        return iter(sorted(lives, key=lambda live: -live.used))


def _left() -> OverloadedError:
    return OverloadedError("the client left before the answer's end")
