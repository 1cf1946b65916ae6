"""What the HTTP side and the service say to each other: one turn of a conversation, asked and answered.

Routes turn a request's body into a `TurnRequest` and what the service tells of it into a response; the service knows
no HTTP, the routes know no scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from zerolayer.decision.grading import Thresholds

StopReason = Literal["end_turn", "max_tokens", "stop_sequence"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message."""

    text: str
    cache_ttl_s: float | None = None
    """`cache_control`: the text's blocks are at least P1 that long."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A document in a message."""

    data: bytes  # the file as sent: a PDF, or UTF-8 text
    media_type: Literal["application/pdf", "text/plain"]
    title: str = ""
    citations: bool = False
    cache_ttl_s: float | None = None


Part = TextPart | DocumentPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, its parts in order."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer's tokens are chosen. Temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    stop_sequences: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ContextHint:
    """Text or characters that stay P0 while the hint lives.

    Either `text`, of which every occurrence in the conversation is meant, or `start` and `end`, characters of the
    documents' joined text.
    """

    text: str = ""
    start: int | None = None
    end: int | None = None
    grade: Literal["P0", "P1"] = "P0"
    ttl_s: float | None = None  # None: as long as the session


@dataclass(frozen=True, slots=True)
class RtlsOptions:
    """The request extension `rtls`."""

    enabled: bool = True
    policy: str | None = None  # a registered policy; None: the server's
    preset: str | None = None  # low_latency | balanced | memory_efficient
    thresholds: Thresholds | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn: a conversation whose last message asks. `tenant` keeps KV apart."""

    messages: tuple[Message, ...]
    sampling: Sampling
    system: tuple[TextPart, ...] = ()
    tenant: str = ""
    model: str = ""
    hints: tuple[ContextHint, ...] = ()
    rtls: RtlsOptions = RtlsOptions()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a turn. The three kinds of input tokens add up to the whole prompt."""

    input_tokens: int  # computed for this turn and not kept
    cache_creation_input_tokens: int  # computed and kept
    cache_read_input_tokens: int  # read back from a tier
    output_tokens: int = 0


# What the service tells of a running turn, in this order: Started, (TextDelta | Cited)…, Finished; or Failed at any
# time. Nothing follows Finished or Failed.


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt has been read: the first token is about to be computed."""

    session_id: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer that will not change, and the first token of it, counted from the answer's beginning."""

    text: str
    token_start: int
    token_end: int


@dataclass(frozen=True, slots=True)
class Cited:
    """A place that the answer rests on; told at its end, for documents with `citations`."""

    document_index: int  # among the documents of the conversation
    document_title: str
    cited_text: str
    page: int  # 1-based; 0 for plain text
    char_start: int
    char_end: int
    weight: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer's end."""

    stop_reason: StopReason
    stop_sequence: str | None
    usage: Usage
    rtls_metrics: dict[str, Any] = field(
        default_factory=dict
    )  # as the client gets it; see metrics in the client


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended without an answer. `error` is of errors.py."""

    error: Exception


TurnEvent = Started | TextDelta | Cited | Finished | Failed
