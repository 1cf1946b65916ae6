"""A turn on its way: what its client hears of it, from whatever thread and event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from zerolayer.server.conversation import Conversation
from zerolayer.server.turns import Failed, Finished, TurnEvent, TurnRequest


class RunningTurn:
    """One turn that was taken in. Events may be awaited from any event loop, by one reader."""

    def __init__(
        self, request: TurnRequest, conversation: Conversation, on_cancel: Callable[[], None]
    ) -> None:
        self.request, self.conversation = request, conversation
        self.taken_in = time.perf_counter()
        self._on_cancel = on_cancel
        self._session_id = ""
        self._events: deque[TurnEvent] = deque()
        self._lock = threading.Lock()
        self._cancelled = False
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.ended = False
        """Whether the last event has been told."""

    @property
    def session_id(self) -> str:
        """The conversation's session; empty until the turn has been matched to one."""
        return self._session_id

    @session_id.setter
    def session_id(self, value: str) -> None:
        self._session_id = value

    @property
    def cancelled(self) -> bool:
        """Whether the client has left."""
        return self._cancelled

    def cancel(self) -> None:
        """The client has left: the turn stops within one quantum. Safe from any thread, and more than once.

        A turn that has told its end is not cancelled: whoever leaves then has heard all of it.
        """
        with self._lock:
            if self.ended or self._cancelled:
                return
            self._cancelled = True
        self._on_cancel()

    def tell(self, event: TurnEvent) -> None:
        """The engine's side: add an event. Nothing is heard after the last one."""
        with self._lock:
            if self.ended:
                return
            self._events.append(event)
            self.ended = isinstance(event, Finished | Failed)
            reader = self._reader
        if reader is not None:
            loop, arrived = reader
            with suppress(RuntimeError):  # the loop was closed: nobody listens any more
                loop.call_soon_threadsafe(arrived.set)

    async def events(self) -> AsyncIterator[TurnEvent]:
        """Everything that happens to the turn, in order, up to Finished or Failed.

        Whoever stops listening before that cancels the turn.
        """
        arrived = asyncio.Event()
        with self._lock:
            self._reader = (asyncio.get_running_loop(), arrived)
        last = False
        try:
            while not last:
                arrived.clear()
                while self._events:
                    event = self._events.popleft()
                    last = isinstance(event, Finished | Failed)
                    yield event
                if not last:
                    await arrived.wait()
        finally:
            self._reader = None
            if not last:
                self.cancel()
