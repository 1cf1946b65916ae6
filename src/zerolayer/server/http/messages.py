"""`POST /v1/messages` and `/v1/messages/count_tokens`: a turn as the Messages API tells it, whole or in events."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from zerolayer.server.http.citing import CitedSource, citation
from zerolayer.server.http.running import Turns, metrics_of, usage_of
from zerolayer.server.http.schema import CountBody, MessagesBody
from zerolayer.server.http.sse import encode
from zerolayer.server.turns import Cited, Finished, Started, TextDelta, TurnEvent, Usage

PING = encode({"type": "ping"}, "ping")


@dataclass(slots=True)
class Answer:
    """An answer on its way out: which message it is, and how its documents are cited."""

    model: str
    sources: Sequence[CitedSource]
    ping: bytes = PING
    id: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex[:24]}")

    def whole(self, text: str, cited: Sequence[Cited], finished: Finished) -> dict[str, Any]:
        """The whole answer as one object."""
        block: dict[str, Any] = {"type": "text", "text": text}
        if cited:
            block["citations"] = [citation(place, self.sources) for place in cited]
        return self._head(finished.usage) | {
            "content": [block],
            "stop_reason": finished.stop_reason,
            "stop_sequence": finished.stop_sequence,
            "rtls_metrics": metrics_of(finished),
        }

    def events(self, event: TurnEvent) -> Iterator[bytes]:
        """What a client is sent for one event of the turn."""
        if isinstance(event, Started):
            message = self._head(event.usage) | {"content": [], "stop_reason": None, "stop_sequence": None}
            yield encode({"type": "message_start", "message": message}, "message_start")
            block = {"type": "text", "text": ""}
            start = {"type": "content_block_start", "index": 0, "content_block": block}
            yield encode(start, "content_block_start")
            yield PING
        elif isinstance(event, TextDelta):
            # Which tokens these are: whoever puts pieces together can tell one that comes twice.
            place = f"{self.id}:{event.token_start}-{event.token_end}"
            yield _delta({"type": "text_delta", "text": event.text}, place)
        elif isinstance(event, Cited):
            yield _delta({"type": "citations_delta", "citation": citation(event, self.sources)})
        elif isinstance(event, Finished):
            yield encode({"type": "content_block_stop", "index": 0}, "content_block_stop")
            end = {
                "type": "message_delta",
                "delta": {"stop_reason": event.stop_reason, "stop_sequence": event.stop_sequence},
                "usage": usage_of(event.usage),
                "rtls_metrics": metrics_of(event),
            }
            yield encode(end, "message_delta")
            yield encode({"type": "message_stop"}, "message_stop")

    def failed(self, envelope: dict[str, Any]) -> bytes:
        """The event that ends a stream which cannot go on."""
        return encode(envelope, "error")

    def _head(self, usage: Usage) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "usage": usage_of(usage),
        }


def _delta(delta: dict[str, Any], event_id: str | None = None) -> bytes:
    data = {"type": "content_block_delta", "index": 0, "delta": delta}
    return encode(data, "content_block_delta", event_id)


def router(turns: Turns) -> APIRouter:
    """The two routes."""
    routes = APIRouter(prefix="/v1/messages", tags=["messages"])

    @routes.post("", response_model=None)
    async def create(request: Request, body: MessagesBody) -> Response:
        """Answer a conversation, in one piece or as a stream of events."""
        parsed = await turns.parsed(request, body)
        answer = Answer(parsed.turn.model, parsed.sources)
        return await turns.answer(request, parsed, answer, stream=bool(body.stream))

    @routes.post("/count_tokens")
    async def count_tokens(request: Request, body: CountBody) -> dict[str, int]:
        """Tokens of a conversation's whole prompt, as they would be counted without anything stored."""
        return {"input_tokens": await turns.count(await turns.parsed(request, body))}

    return routes
