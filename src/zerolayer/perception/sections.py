"""The sections of a document: clauses under their headings, joined and cut to like size: what a forecast is over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from zerolayer.documents.structure import Heading, find_headings

SECTIONS = 20
"""A document has about this many sections: few enough to forecast, small enough to load."""

LEAST_CHARS = 600
"""Shorter sections are joined with the next one: two blocks are not worth a forecast of their own."""

_TITLE_CHARS = 60
_PARAGRAPH = re.compile(r"\n")
_SPACE = re.compile(r"\s+")
_TITLE_END = re.compile(r"(?<=[^\d\s])[.:;。：；](?=\s|$)|\n|(?<=[。：；])")


@dataclass(frozen=True, slots=True)
class Section:
    """Characters `char_start` up to, not including, `char_end`; sections tile the text in order."""

    title: str
    char_start: int
    char_end: int


def find_sections(
    text: str, headings: Sequence[Heading] | None = None, count: int = SECTIONS
) -> list[Section]:
    """About `count` sections of `text`, none for white space alone. A section begins at a heading where there is one.

    Clauses shorter than half of an even share are joined, stretches of more than twice the share are cut at line
    ends. `headings` saves finding them again.
    """
    if not text.strip():
        return []
    share = max(LEAST_CHARS, len(text) // max(1, count))
    starts = [heading.start for heading in (find_headings(text) if headings is None else headings)]
    cuts = [0]
    for start in [*starts, len(text)]:
        while start - cuts[-1] > 2 * share:  # no heading for long: cut at the end of a line
            line = _PARAGRAPH.search(text, cuts[-1] + share, min(start, cuts[-1] + 2 * share))
            cuts.append(line.end() if line else cuts[-1] + share)
        if start < len(text) and start - cuts[-1] >= share // 2:
            cuts.append(start)
    if len(cuts) > 1 and len(text) - cuts[-1] < share // 2:
        cuts.pop()
    return [
        Section(_title(text, start, end), start, end)
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)
    ]


def _title(text: str, start: int, end: int) -> str:
    """The section's first line or sentence, on one line and cut to a readable length."""
    piece = text[start : min(end, start + 4 * _TITLE_CHARS)].lstrip(" \t\r\n#*\u3000")
    stop = _TITLE_END.search(piece, 3)
    title = _SPACE.sub(" ", piece[: stop.start()] if stop else piece).strip()
    if len(title) <= _TITLE_CHARS:
        return title
    return title[:_TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;:") + " …"
