"""Runs a turn for a request and tells it in the shape of one of the APIs, whole or in events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from zerolayer.errors import ZerolayerError
from zerolayer.server.http import errors
from zerolayer.server.http.auth import caller_of
from zerolayer.server.http.exposition import TurnTimes
from zerolayer.server.http.limits import TurnGate
from zerolayer.server.http.parsing import ParsedRequest, parse, resolve_model
from zerolayer.server.http.plain import plain
from zerolayer.server.http.schema import CountBody
from zerolayer.server.http.sse import TurnStream, until_gone, with_silence
from zerolayer.server.service import RunningTurn, Service
from zerolayer.server.turns import Cited, Failed, Finished, TextDelta, TurnEvent, Usage

CLIENT_GONE = 499
"""Status in the metrics of a request whose client left; nobody reads it."""


THREADS = 8
"""Requests that are parsed at once: documents are parsed one after another anyway."""


class Shape(Protocol):
    """How an API tells a turn."""

    ping: bytes  # what fills silence in a stream

    def whole(self, text: str, cited: Sequence[Cited], finished: Finished) -> dict[str, Any]:
        """The answer as one object."""

    def events(self, event: TurnEvent) -> Iterator[bytes]:
        """What a stream says for one event."""

    def failed(self, envelope: dict[str, Any]) -> bytes:
        """What a stream says when it cannot go on."""


def usage_of(usage: Usage) -> dict[str, int]:
    """Token counts under their Messages API names; the three kinds of input add up to the prompt."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
    }


def metrics_of(finished: Finished) -> dict[str, Any]:
    """`rtls_metrics`, which is never missing."""
    told: dict[str, Any] = plain(finished.rtls_metrics)
    return told or {"status": "degraded", "reason": "the service gave no metrics of this turn"}


@dataclass(frozen=True, slots=True)
class Turns:
    """What the routes of both APIs need to run a turn."""

    service: Service
    gate: TurnGate
    times: TurnTimes
    ping_s: float
    # Threads of their own: those of the routes that show something may all be waiting for the model's running step.
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))

    async def parsed(self, request: Request, body: CountBody) -> ParsedRequest:
        """The turn of a body, made off the event loop: a document may be large.

        Raises RequestError, UnknownNameError.
        """
        tenant, models = caller_of(request).tenant, self.service.models
        return await to_thread.run_sync(
            lambda: parse(body, tenant, resolve_model(body.model, models())), limiter=self.threads
        )

    async def count(self, parsed: ParsedRequest) -> int:
        """Tokens of the whole prompt. Raises as `Service.count_tokens`."""
        return await to_thread.run_sync(self.service.count_tokens, parsed.turn, limiter=self.threads)

    async def answer(self, request: Request, parsed: ParsedRequest, shape: Shape, stream: bool) -> Response:
        """Run the turn. Raises as `Service.submit`, and what the turn failed with before anything was sent."""
        with ExitStack() as cleanup:
            cleanup.enter_context(self.gate.place(parsed.turn.tenant))
            turn = await to_thread.run_sync(self.service.submit, parsed.turn, limiter=self.threads)
            cleanup.callback(turn.cancel)  # has no effect on a turn that has ended
            if not stream:
                return await self._whole(request, turn, shape)
            body = await self._opened(request, turn, shape)
            return TurnStream(body, cleanup.pop_all())

    async def _whole(self, request: Request, turn: RunningTurn, shape: Shape) -> Response:
        text: list[str] = []
        cited: list[Cited] = []
        async with aclosing(until_gone(request, turn)) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, TextDelta):
                    text.append(event.text)
                elif isinstance(event, Cited):
                    cited.append(event)
                elif isinstance(event, Finished):
                    self.times.observe(event)
                    return JSONResponse(shape.whole("".join(text), cited, event))
        return Response(status_code=CLIENT_GONE)

    async def _opened(self, request: Request, turn: RunningTurn, shape: Shape) -> AsyncIterator[bytes]:
        """The stream's body. A turn that fails within a ping's time fails here, with a status of its own."""
        ended: TurnEvent | None = Failed(ZerolayerError("the turn ended without a last event"))
        events = with_silence(turn.events(), self.ping_s)
        first = await anext(events, ended)
        if isinstance(first, Failed):
            raise first.error
        request_id = str(request.state.request_id)

        async def body() -> AsyncIterator[bytes]:
            async with aclosing(events):
                event: TurnEvent | None = first
                while not isinstance(event, (Finished, Failed)):
                    for sent in [shape.ping] if event is None else shape.events(event):
                        yield sent
                    event = await anext(events, ended)
                if isinstance(event, Failed):
                    errors.log_failure(event.error, request_id)
                    status, text = errors.status_of(event.error), errors.message_of(event.error)
                    yield shape.failed(errors.envelope(status, text, request_id))
                    return
                self.times.observe(event)
                for sent in shape.events(event):
                    yield sent

        return body()
