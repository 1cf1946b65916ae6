"""Server-sent events: how they are written, how silence is filled, and what happens when the client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import ExitStack, aclosing
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from zerolayer.server.service import RunningTurn
from zerolayer.server.turns import TurnEvent

Event = TypeVar("Event")

LOOK_S = 0.25
"""How often a response that is not streamed looks whether its client is still there, at least."""


def encode(data: Mapping[str, Any], event: str | None = None, event_id: str | None = None) -> bytes:
    """One event. JSON is ASCII: some clients take U+2028 for a line end."""
    head = f"event: {event}\n" if event else ""
    if event_id:
        head += f"id: {event_id}\n"
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def with_silence(events: AsyncIterator[Event], every_s: float) -> AsyncGenerator[Event | None, None]:
    """The events as they come, and None after every `every_s` seconds without one."""
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({coming}, timeout=every_s)
            if not done:
                yield None
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            finally:
                coming = None
            yield event
    finally:
        if coming is not None:
            coming.cancel()


class TurnStream(StreamingResponse):
    """A stream of a turn's events; `cleanup` is closed when it ends, however that comes about."""

    def __init__(self, body: AsyncIterator[bytes], cleanup: ExitStack) -> None:
        super().__init__(
            body,
            media_type="text/event-stream",
            # Proxies must neither keep nor collect what is to be read at once.
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        self._cleanup = cleanup

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        with self._cleanup:
            await super().__call__(scope, receive, send)


async def until_gone(request: Request, turn: RunningTurn) -> AsyncGenerator[TurnEvent, None]:
    """A turn's events as long as the client is there."""
    async with aclosing(with_silence(turn.events(), LOOK_S)) as events:
        async for event in events:
            if await request.is_disconnected():
                return
            if event is not None:
                yield event
