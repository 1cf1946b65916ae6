"""From a Messages body to a turn. What the schema cannot say is checked here, and named by its field."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from zerolayer.errors import RequestError, UnknownNameError
from zerolayer.server.http.citing import CitedSource
from zerolayer.server.http.extensions import to_hints, to_rtls
from zerolayer.server.http.schema import (
    Base64Source,
    Block,
    CacheControl,
    CountBody,
    DocumentBlock,
    InputMessage,
    MessagesBody,
    TextBlock,
    ThinkingBlock,
)
from zerolayer.server.turns import DocumentPart, Message, Part, Sampling, TextPart, TurnRequest
from zerolayer.server.views import ModelView

PIECE_GAP = "\n\n"
"""Between the pieces of a document that comes in pieces."""

STAND_INS = ("claude-", "gpt-")
"""Names of the vendors' own models stand for the model that is served: an application changes its base URL only."""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A turn, and how places in its documents are named in citations: one source a document, in order."""

    turn: TurnRequest
    sources: tuple[CitedSource, ...]


def resolve_model(name: str, models: Sequence[ModelView]) -> ModelView:
    """The served model that `name` means. Raises UnknownNameError with the known ones."""
    for model in models:
        if model.id == name:
            return model
    if models and name.startswith(STAND_INS):
        return models[0]
    raise UnknownNameError("model", name, [model.id for model in models])


def parse(body: CountBody, tenant: str, model: ModelView) -> ParsedRequest:
    """The turn that `body` asks for. Raises RequestError naming the field."""
    refuse_unsupported(body)
    lead = next((i for i, m in enumerate(body.messages) if m.role != "system"), len(body.messages))
    system = [*system_parts(body), *leading_system(body.messages[:lead])]
    sources: list[CitedSource] = []
    messages: list[Message] = []
    for i, message in enumerate(body.messages[lead:], start=lead):
        parts = tuple(_parts(message, f"messages.{i}", sources))
        if message.role == "system":
            raise RequestError(
                f"messages.{i}.role", "a system message must stand before the first user message"
            )
        if messages and messages[-1].role == message.role:
            messages[-1] = Message(message.role, messages[-1].parts + parts)
        else:
            messages.append(Message(message.role, parts))
    check_turns(messages)
    if body.cache_control is not None:
        messages[-1] = _marked(messages[-1], body.cache_control)
    turn = TurnRequest(
        tuple(messages),
        sampling_of(body, model) if isinstance(body, MessagesBody) else Sampling(1),
        tuple(system),
        tenant,
        model.id,
        to_hints(body.context_hints),
        to_rtls(body.rtls),
    )
    return ParsedRequest(turn, tuple(sources))


def sampling_of(body: MessagesBody, model: ModelView) -> Sampling:
    """How tokens are chosen. Greedy unless a temperature is given; no longer than the model can."""
    temperature = body.temperature or 0.0
    if body.top_p == 0:
        temperature = 0.0  # only the likeliest token is left
    return Sampling(
        min(body.max_tokens, model.max_output_tokens),
        temperature,
        body.top_p or 1.0,
        body.top_k or 0,
        tuple(body.stop_sequences or ()),
        any_seed() if body.seed is None else body.seed,
    )


def any_seed() -> int:
    """A seed that no other request has: who asks twice at a temperature above 0 wants two answers."""
    return secrets.randbits(31)


def refuse_unsupported(body: CountBody) -> None:
    """What would change the answer and cannot be done is refused; what is harmless is not read.

    Raises RequestError.
    """
    choice = body.tool_choice.type if body.tool_choice is not None else "auto"
    if body.tools and choice != "none":
        raise RequestError(
            "tools",
            'this server does not call tools; leave the field out, or give tool_choice {"type": "none"}',
        )
    if choice in {"any", "tool"}:
        raise RequestError("tool_choice", "this server does not call tools; leave the field out")
    if body.mcp_servers:
        raise RequestError("mcp_servers", "this server does not call tools; leave the field out")
    if body.output_config and body.output_config.get("format") is not None:
        raise RequestError("output_config.format", "answers are free text; leave the field out")


def check_turns(messages: Sequence[Message]) -> None:
    """A conversation begins with the user, and ends with what is asked or with how the answer is to begin.

    Raises RequestError.
    """
    if not messages or messages[0].role != "user":
        raise RequestError("messages", "the first message after the system's must have the role user")
    last = messages[-1]
    if last.role == "assistant" and not any(isinstance(p, TextPart) and p.text.strip() for p in last.parts):
        raise RequestError(
            "messages", "the last message must have the role user, or begin the answer with a text"
        )


def system_parts(body: CountBody) -> Iterator[TextPart]:
    """Texts of the field `system`; empty ones are left out."""
    if isinstance(body.system, str):
        yield from [TextPart(body.system)] if body.system else []
    else:
        yield from (
            TextPart(block.text, _ttl(block.cache_control)) for block in body.system or () if block.text
        )


def leading_system(messages: Sequence[InputMessage]) -> Iterator[TextPart]:
    """Texts of system messages before the first user message."""
    for i, message in enumerate(messages):
        for part in _parts(message, f"messages.{i}", []):
            if isinstance(part, TextPart) and part.text:
                yield part


def _parts(message: InputMessage, field: str, sources: list[CitedSource]) -> Iterator[Part]:
    said, found = message.content, False
    blocks: Sequence[Block] = [TextBlock(type="text", text=said)] if isinstance(said, str) else said
    for i, block in enumerate(blocks):
        if isinstance(block, ThinkingBlock):
            continue
        where = f"{field}.content.{i}"
        if isinstance(block, DocumentBlock):
            if message.role != "user":
                raise RequestError(where, f"documents belong to the user, not to the {message.role}")
            if block.context:
                yield TextPart(block.context)
            yield _document(block, where, sources)
        elif message.role == "user" and not block.text.strip():
            where = f"{field}.content" if isinstance(said, str) else f"{where}.text"
            raise RequestError(where, "text must hold more than white space")
        else:
            yield TextPart(block.text, _ttl(block.cache_control))
        found = True
    if not found and message.role == "user":
        raise RequestError(f"{field}.content", "a user's message must hold text or a document")


def _document(block: DocumentBlock, field: str, sources: list[CitedSource]) -> DocumentPart:
    source, field = block.source, f"{field}.source"
    if isinstance(source, Base64Source):
        data = decode_base64(source.data, f"{field}.data")
        pdf = source.media_type == "application/pdf"
        cited = (
            CitedSource("page_location")
            if pdf
            else CitedSource("char_location", _text(data, f"{field}.data"))
        )
    elif source.type == "text":
        cited = CitedSource("char_location", source.data)
    else:
        content = source.content
        pieces = [content] if isinstance(content, str) else [piece.text for piece in content]
        cited = CitedSource.of_pieces(pieces, PIECE_GAP)
    if cited.kind != "page_location":
        data = cited.text.encode()
        if not cited.text.strip():
            raise RequestError(field, "the document holds no text")
    sources.append(replace(cited, title=block.title))
    return DocumentPart(
        data,
        "application/pdf" if cited.kind == "page_location" else "text/plain",
        block.title or "",
        block.citations is not None and block.citations.enabled,
        _ttl(block.cache_control),
    )


def decode_base64(data: str, field: str) -> bytes:
    """Bytes of base64 text, white space allowed. Raises RequestError where it is none, or of nothing."""
    try:
        decoded = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: characters beyond ASCII
        raise RequestError(field, "is not base64; give the file's bytes in standard base64") from error
    if not decoded:
        raise RequestError(field, "holds no bytes; give the file's bytes in standard base64")
    return decoded


def _text(data: bytes, field: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(field, "is not UTF-8 text") from error


def _ttl(control: CacheControl | None) -> float | None:
    return control.seconds if control is not None else None


def _marked(message: Message, control: CacheControl) -> Message:
    """The message with `cache_control` on its last part, unless that has one of its own."""
    last = message.parts[-1]
    if last.cache_ttl_s is not None:
        return message
    return Message(message.role, (*message.parts[:-1], replace(last, cache_ttl_s=control.seconds)))
