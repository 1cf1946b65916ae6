"""`POST /v1/chat/completions`: the same turns for clients of OpenAI's API.

Field names are those of https://platform.openai.com/docs/api-reference/chat. A body becomes a Messages body, so that
both APIs mean the same by a conversation.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Discriminator, Field, Tag

from zerolayer.errors import RequestError
from zerolayer.server.http.extensions import HintField, RtlsField
from zerolayer.server.http.running import Turns, metrics_of
from zerolayer.server.http.schema import (
    Base64Source,
    Block,
    DocumentBlock,
    InputMessage,
    Loose,
    MessagesBody,
    TextBlock,
)
from zerolayer.server.http.sse import encode
from zerolayer.server.turns import Cited, Finished, Started, StopReason, TextDelta, TurnEvent, Usage

DEFAULT_MAX_TOKENS = 512
"""Longest answer where the request does not say; OpenAI's own default has no bound."""

FINISH_REASONS: dict[StopReason, str] = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
DONE = b"data: [DONE]\n\n"
PDF_URL = "data:application/pdf;base64,"


class TextItem(Loose):
    """Text of a message."""

    type: Literal["text"]
    text: str


class FileObject(Loose):
    """A PDF as a data URL."""

    file_data: str
    filename: str | None = None


class FileItem(Loose):
    """A document of a message."""

    type: Literal["file"]
    file: FileObject


Item = Annotated[TextItem | FileItem, Field(discriminator="type")]


def _content_kind(value: Any) -> str:
    return "string" if isinstance(value, str) else "blocks"


class ChatMessage(Loose):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: (
        Annotated[
            Annotated[str, Tag("string")] | Annotated[list[Item], Tag("blocks")],
            Discriminator(_content_kind),
        ]
        | None
    ) = None


class StreamOptions(Loose):
    """What the stream tells beside the answer."""

    include_usage: bool | None = None


class ChatBody(Loose):
    """Body of `POST /v1/chat/completions`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=100_000)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    n: int | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    context_hints: HintField = None
    rtls: RtlsField = None


def to_messages_body(body: ChatBody) -> MessagesBody:
    """The same request as a Messages body, but for its temperature, which may be higher here.

    Raises RequestError naming the field.
    """
    _refuse_unsupported(body)
    messages = [_message(message, f"messages.{i}") for i, message in enumerate(body.messages)]
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if not all(stop):
        raise RequestError("stop", "a stop sequence must hold at least one character")
    return MessagesBody(
        model=body.model,
        messages=messages,
        max_tokens=body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS,
        top_p=body.top_p,
        stop_sequences=stop,
        seed=None if body.seed is None else body.seed % (1 << 63),
        context_hints=body.context_hints,
        rtls=body.rtls,
    )


def _refuse_unsupported(body: ChatBody) -> None:
    if body.n is not None and body.n != 1:
        raise RequestError("n", f"{body.n} answers are asked for; this server gives 1")
    if body.logprobs:
        raise RequestError("logprobs", "this server tells no probabilities; leave the field out")
    for name in ("tools", "functions"):
        if getattr(body, name):
            raise RequestError(name, "this server does not call tools; leave the field out")
    kind = (body.response_format or {"type": "text"}).get("type")
    if kind != "text":
        raise RequestError("response_format", "answers are free text; leave the field out")


def _message(message: ChatMessage, name: str) -> InputMessage:
    role: Literal["user", "assistant", "system"]
    role = "system" if message.role in {"system", "developer"} else message.role  # type: ignore[assignment]
    if message.content is None:
        return InputMessage(role=role, content="")
    if isinstance(message.content, str):
        return InputMessage(role=role, content=message.content)
    blocks: list[Block] = []
    for i, item in enumerate(message.content):
        if isinstance(item, TextItem):
            blocks.append(TextBlock(type="text", text=item.text))
            continue
        data = item.file.file_data
        if not data.startswith(PDF_URL):
            raise RequestError(f"{name}.content.{i}.file.file_data", f"a file must begin with {PDF_URL}")
        source = Base64Source(type="base64", media_type="application/pdf", data=data.removeprefix(PDF_URL))
        blocks.append(DocumentBlock(type="document", source=source, title=item.file.filename))
    return InputMessage(role=role, content=blocks)


def usage_of(usage: Usage) -> dict[str, Any]:
    """Token counts under their OpenAI names: the prompt's include those read from a tier."""
    prompt = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
    }


@dataclass(slots=True)
class Completion:
    """An answer on its way out, in OpenAI's shape. `with_usage` adds the usage chunk that a stream may ask for."""

    model: str
    with_usage: bool = False
    ping: bytes = b": nothing yet\n"  # no empty line: the official client would take it for an event
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex[:24]}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, cited: Sequence[Cited], finished: Finished) -> dict[str, Any]:
        """The whole answer as one object. This API has no place for citations."""
        message = {"role": "assistant", "content": text, "refusal": None}
        reason = FINISH_REASONS[finished.stop_reason]
        return self._head("chat.completion") | {
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
            "usage": usage_of(finished.usage),
            "rtls_metrics": metrics_of(finished),
        }

    def events(self, event: TurnEvent) -> Iterator[bytes]:
        """What a client is sent for one event of the turn."""
        if isinstance(event, Started):
            yield encode(self._chunk({"role": "assistant", "content": ""}))
        elif isinstance(event, TextDelta):
            place = f"{self.id}:{event.token_start}-{event.token_end}"
            yield encode(self._chunk({"content": event.text}), event_id=place)
        elif isinstance(event, Finished):
            yield encode(
                self._chunk({}, FINISH_REASONS[event.stop_reason]) | {"rtls_metrics": metrics_of(event)}
            )
            if self.with_usage:
                last = {"choices": [], "usage": usage_of(event.usage)}
                yield encode(self._head("chat.completion.chunk") | last)
            yield DONE

    def failed(self, envelope: dict[str, Any]) -> bytes:
        """The event that ends a stream which cannot go on."""
        return encode(envelope)

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage: dict[str, Any] = {"usage": None} if self.with_usage else {}
        return self._head("chat.completion.chunk") | {"choices": [choice]} | usage

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def router(turns: Turns) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1/chat", tags=["completions"])

    @routes.post("/completions", response_model=None)
    async def create(request: Request, body: ChatBody) -> Response:
        """Answer a conversation, in one piece or as a stream of chunks."""
        parsed = await turns.parsed(request, to_messages_body(body))
        if body.temperature and body.top_p != 0:
            sampling = replace(parsed.turn.sampling, temperature=body.temperature)
            parsed = replace(parsed, turn=replace(parsed.turn, sampling=sampling))
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        completion = Completion(parsed.turn.model, with_usage)
        return await turns.answer(request, parsed, completion, stream=bool(body.stream))

    return routes
