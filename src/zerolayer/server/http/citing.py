"""Citations as the Messages API names places: pages of a PDF, characters of a text, pieces of a piecewise document."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from zerolayer.server.turns import Cited

Kind = Literal["page_location", "char_location", "content_block_location"]


@dataclass(frozen=True, slots=True)
class CitedSource:
    """How places in one document are named. `text` is the document as the client sent it, where it is text."""

    kind: Kind
    text: str = ""
    starts: tuple[int, ...] = ()  # of the pieces, in `text`
    title: str | None = None

    @classmethod
    def of_pieces(cls, pieces: Sequence[str], gap: str) -> Self:
        """A document that came in pieces; `gap` stands between two of them."""
        starts, at = [], 0
        for piece in pieces:
            starts.append(at)
            at += len(piece) + len(gap)
        return cls("content_block_location", gap.join(pieces), tuple(starts))


def citation(cited: Cited, sources: Sequence[CitedSource]) -> dict[str, Any]:
    """The citation object of a place, by https://docs.anthropic.com/en/docs/build-with-claude/citations.

    Page numbers and ends are exclusive as there; `weight`, the share of the answer's attention, is ours.
    """
    source = (
        sources[cited.document_index] if cited.document_index < len(sources) else CitedSource("page_location")
    )
    place: dict[str, Any] = {
        "type": source.kind,
        "cited_text": cited.cited_text,
        "document_index": cited.document_index,
        "document_title": source.title,
        "file_id": None,
        "weight": round(cited.weight, 4),
    }
    if source.kind == "page_location":
        return place | {"start_page_number": cited.page, "end_page_number": cited.page + 1}
    start, end = as_sent(source.text, cited.char_start, cited.char_end)
    if source.kind == "char_location":
        place["cited_text"] = source.text[start:end]
        return place | {"start_char_index": start, "end_char_index": end}
    first = max(0, bisect_right(source.starts, start) - 1)
    last = max(first, bisect_right(source.starts, max(start, end - 1)) - 1)
    return place | {"start_block_index": first, "end_block_index": last + 1}


def as_sent(text: str, start: int, end: int) -> tuple[int, int]:
    """Characters of `text` from those of the same text with every `\\r\\n` read as one line end."""
    pairs = [found.start() - k for k, found in enumerate(re.finditer("\r\n", text))]
    first, last = (min(at + bisect_left(pairs, at), len(text)) for at in (start, end))
    return first, last
