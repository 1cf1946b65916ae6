"""How much at once: bytes of a body, turns of a tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zerolayer.server.http.errors import respond


class BodyLimit:
    """Refuses larger bodies (an ASGI middleware): by their announced length, or as soon as they prove to be larger.

    Starlette has one as well; its answer is plain text where clients expect the API's envelope.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app, self._most = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        text = f"The body is larger than this server takes ({self._most:,} bytes); see --max-request-bytes."
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._most:
            response = respond(Request(scope), 413, text, headers={"connection": "close"})
            await response(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(413, text)
            return message

        await self._app(scope, counted, send)


class TurnGate:
    """Bounds the turns of one tenant that run and wait, so that none takes all places. Used from one event loop."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Hold a place. Raises HTTPException 429 where the tenant has none left."""
        if self._most is not None and self._held[tenant] >= self._most:
            raise HTTPException(
                429,
                f"{self._most} of your requests are running or waiting already; send this one again later.",
            )
        self._held[tenant] += 1
        try:
            yield
        finally:
            self._held[tenant] -= 1
            if not self._held[tenant]:
                del self._held[tenant]
