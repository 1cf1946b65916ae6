"""A request's messages as a conversation: documents, turns so far, and the question that is asked now.

Clients send the whole conversation every time. The same messages give the same documents and the same turns, so a
conversation is found again by its content. No tokenizer is needed for that: a long text is told by its bytes.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xxhash import xxh3_128_hexdigest

from zerolayer.documents.document import Document
from zerolayer.documents.reader import parse_document
from zerolayer.errors import UsageError
from zerolayer.server.turns import DocumentPart, Message, Part, TextPart, TurnRequest

QUESTION_BYTES = 1600
"""Longest text that is taken for a question: about 400 tokens. What is longer holds a document."""

INSTRUCTION_BYTES = 400
"""Longest first paragraph that is taken for what to do with the text below it."""

SYSTEM_BYTES = 2000
"""Of a system text at most so much stands in the prompt's frame, always in sight; the rest is read as a document."""

_PARAGRAPHS = re.compile(r"\n[^\S\n]*\n\s*")
_KEPT_DOCUMENTS = 64


@dataclass(frozen=True, slots=True)
class Source:
    """A document of the conversation, or a long text in it."""

    document: Document
    titled: bool  # its name stands above it
    part: int | None = None  # among the document parts of the conversation
    has_pages: bool = False
    citations: bool = False
    cache_ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A question and its answer."""

    question: str
    answer: str

    @property
    def key(self) -> str:
        """Equal for equal turns, but for white space at the ends."""
        said = f"{self.question.strip()}\0{self.answer.strip()}"
        return xxh3_128_hexdigest(said.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request says."""

    system: str
    sources: tuple[Source, ...]
    turns: tuple[SaidTurn, ...]
    question: str
    begun: str = ""  # how the answer is to begin
    since: tuple[int, ...] = field(default=())  # for each source, the turns before it

    def key(self, salt: str, sources: int | None = None) -> str:
        """Names the first `sources` documents (None: all) within their frame; `salt` keeps tenants apart."""
        parts = [salt, self.system]
        for source in self.sources[:sources]:
            text = source.document.text.encode("utf-8", "surrogatepass")
            parts += [source.document.name if source.titled else "", xxh3_128_hexdigest(text)]
        return xxh3_128_hexdigest("\0".join(parts).encode("utf-8", "surrogatepass"))

    @property
    def title(self) -> str:
        """For people."""
        names = [source.document.name for source in self.sources]
        return ", ".join(names) if names else " ".join(self.question.split())[:60]


class DocumentReader:
    """Turns files into documents, and remembers the latest ones: a conversation sends them with every turn."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], Document] = OrderedDict()
        self._lock = threading.Lock()  # the PDF library may run in one thread at a time

    def read(self, data: bytes, name: str, media_type: str) -> Document:
        """Raises DocumentError."""
        key = (xxh3_128_hexdigest(data), name, media_type)
        with self._lock:
            document = self._known.get(key)
            if document is None:
                document = parse_document(data, name, pdf=media_type == "application/pdf")
                self._known[key] = document
                if len(self._known) > _KEPT_DOCUMENTS:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return document


def read_conversation(request: TurnRequest, reader: DocumentReader) -> Conversation:
    """What the request's messages say. Raises UsageError for messages that make no turn, DocumentError."""
    messages = _merged(request.messages)
    begun = ""
    if messages and messages[-1].role == "assistant":
        begun = _said(messages.pop().parts).rstrip()
    if not messages or messages[0].role != "user" or messages[-1].role != "user":
        raise UsageError(
            f"messages: {len(request.messages)} messages that do not start with one of role 'user' and end with a "
            "question; start with role 'user' and let its last message ask"
        )
    system, sources = _system(request.system, reader)
    since = [0] * len(sources)
    parts, names, turns = 0, {source.document.name for source in sources}, []
    question = ""
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turns.append(SaidTurn(question, _said(message.parts)))
            continue
        found, question = _split(message.parts, parts, reader)
        parts += sum(source.part is not None for source in found)
        alone = index == 0 and len(found) == 1 and not sources
        for source in found:
            document = _named(source.document, names)
            sources.append(replace(source, document=document, titled=not alone))
            since.append(len(turns))
    if not question.strip() and not sources:
        raise UsageError("messages: the last message is empty; give it a text part with a question")
    return Conversation(system, tuple(sources), tuple(turns), question, begun, tuple(since))


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Neighbouring messages of one role as one."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].parts, *message.parts))
        else:
            merged.append(message)
    return merged


def _text(parts: Sequence[Part]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def _said(parts: Sequence[Part]) -> str:
    """An answer, which comes back in pieces where it has citations."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _system(parts: Sequence[TextPart], reader: DocumentReader) -> tuple[str, list[Source]]:
    """What of a system text stands in the frame, and the rest of it as a document."""
    text = _text(parts).strip()
    if _size(text) <= SYSTEM_BYTES:
        return text, []
    head = text.encode("utf-8", "surrogatepass")[:SYSTEM_BYTES].decode("utf-8", "ignore")
    cut = max(head.rfind("\n\n"), head.rfind(". ") + 1, len(head) // 2)
    rest = text[cut:].strip()
    ttl = max((part.cache_ttl_s or 0.0 for part in parts), default=0.0) or None
    document = reader.read(rest.encode("utf-8", "surrogatepass"), "Instructions", "text/plain")
    return text[:cut].strip(), [Source(document, titled=True, cache_ttl_s=ttl)]


def _split(parts: Sequence[Part], first_part: int, reader: DocumentReader) -> tuple[list[Source], str]:
    """Documents and long texts of a message, and its question."""
    sources: list[Source] = []
    short: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, DocumentPart):
            index = first_part + sum(source.part is not None for source in sources)
            name = " ".join(part.title.split()) or f"Document {index + 1}"
            document = reader.read(part.data, name, part.media_type)
            pages = part.media_type == "application/pdf"
            sources.append(Source(document, True, index, pages, part.citations, part.cache_ttl_s))
        elif _size(part.text) <= QUESTION_BYTES:
            short.append(part.text)
        else:
            text = part.text
            if not any(isinstance(p, TextPart) and p.text.strip() for p in parts[number + 1 :]):
                text, question = split_question(part.text)
                short.append(question)
            if text.strip():
                document = reader.read(text.encode("utf-8", "surrogatepass"), "Text", "text/plain")
                sources.append(Source(document, True, cache_ttl_s=part.cache_ttl_s))
    return sources, "\n\n".join(filter(str.strip, short))


def split_question(text: str) -> tuple[str, str]:
    """A long text as what is to be read, and the question at its end: its last paragraph.

    A short first paragraph says what to do with the rest where the last one asks nothing: then it is part of the
    question as well. A last paragraph that is long itself is cut at its last line or sentence.
    """
    text = text.rstrip()
    breaks = [found.span() for found in _PARAGRAPHS.finditer(text)]
    start, end = breaks[-1] if breaks else (0, 0)
    if _size(text[end:]) > QUESTION_BYTES:
        tail = text.encode("utf-8", "surrogatepass")[-QUESTION_BYTES:].decode("utf-8", "ignore")
        first = len(text) - len(tail)
        line, sentence = text.rfind("\n", first), text.rfind(". ", first)
        start = end = line + 1 if line >= 0 else sentence + 2 if sentence >= 0 else first
    body, question = text[:start], text[end:]
    opening = body[: breaks[0][0]] if breaks and breaks[0][0] < start else ""
    if opening and _size(opening) <= INSTRUCTION_BYTES and not question.endswith(("?", "？")):
        question = f"{opening.strip()}\n\n{question}"
    return body, question


def _named(document: Document, names: set[str]) -> Document:
    """The document under a name that no other one has."""
    name, number = document.name, 1
    while name in names:
        number += 1
        name = f"{document.name} ({number})"
    names.add(name)
    return document if name == document.name else replace(document, name=name)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
