"""Bodies of the Messages API as they arrive. What a field may be is said here; what it means, in messages.py.

Fields that are not listed are accepted and not read: a newer client works. Field names are those of
https://docs.anthropic.com/en/api/messages; `context_hints` and `rtls` are ours (extensions.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from zerolayer.server.http.extensions import HintField, RtlsField


class Loose(BaseModel):
    """Wrong types are refused (no text for a number), unknown fields are not."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class CacheControl(Loose):
    """Keep what stands before this point at hand."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None

    @property
    def seconds(self) -> float:
        """How long; five minutes unless told otherwise."""
        return 3600.0 if self.ttl == "1h" else 300.0


class TextBlock(Loose):
    """Text. `citations` of an answer that is sent back are accepted and not read."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None


def _content_kind(value: Any) -> str:
    return "string" if isinstance(value, str) else "blocks"


TextContent = Annotated[
    Annotated[str, Tag("string")] | Annotated[list[TextBlock], Tag("blocks")], Discriminator(_content_kind)
]
"""Text, as one string or in blocks."""


class ThinkingBlock(Loose):
    """Thoughts of another model in a conversation that is carried on here: accepted and not read."""

    type: Literal["thinking", "redacted_thinking"]


class Base64Source(Loose):
    """A PDF. `data` may hold line ends, as base64 tools write them."""

    type: Literal["base64"]
    media_type: Literal["application/pdf", "text/plain"]
    data: str


class TextSource(Loose):
    """Plain text."""

    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class ContentSource(Loose):
    """Text in pieces; a citation names the pieces."""

    type: Literal["content"]
    content: TextContent


class CitationsConfig(Loose):
    """Whether answers name the places in a document that they rest on."""

    enabled: bool = False


class DocumentBlock(Loose):
    """A document."""

    type: Literal["document"]
    source: Annotated[Base64Source | TextSource | ContentSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: CitationsConfig | None = None
    cache_control: CacheControl | None = None


Block = Annotated[TextBlock | DocumentBlock | ThinkingBlock, Field(discriminator="type")]


Content = Annotated[
    Annotated[str, Tag("string")] | Annotated[list[Block], Tag("blocks")], Discriminator(_content_kind)
]


class InputMessage(Loose):
    """One message. Messages of one role in a row are one message."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Metadata(Loose):
    """Who asks, for the client's own records."""

    user_id: Annotated[str, Field(max_length=256)] | None = None


class ToolChoice(Loose):
    """`none` is the only choice where there are no tools."""

    type: str


class CountBody(Loose):
    """Body of `POST /v1/messages/count_tokens`, and what `POST /v1/messages` shares with it."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=100_000)]
    system: TextContent | None = None
    cache_control: CacheControl | None = None
    tools: list[Any] | None = None
    tool_choice: ToolChoice | None = None
    mcp_servers: list[Any] | None = None
    output_config: dict[str, Any] | None = None
    context_hints: HintField = None
    rtls: RtlsField = None


class MessagesBody(CountBody):
    """Body of `POST /v1/messages`."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=8191)] | None = None
    metadata: Metadata | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = (
        None  # ours: the same answer again at any temperature
    )
