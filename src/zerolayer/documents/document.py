"""A document: its text, its pages, and which clause and sentence a character belongs to."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from zerolayer.documents.structure import Heading, find_headings, sentence_starts


@dataclass(frozen=True, slots=True)
class Page:
    """Page `number` (1-based) holds the characters `char_start` up to, not including, `char_end`."""

    number: int
    char_start: int
    char_end: int


@dataclass(frozen=True)
class Document:
    """Text with pages that tile it in order. `sha256` is of the file's bytes.

    All offsets are characters of `text`. Clauses and sentences are found at the first request and kept.
    """

    name: str
    text: str
    pages: tuple[Page, ...]
    sha256: str

    @cached_property
    def _page_starts(self) -> list[int]:
        return [page.char_start for page in self.pages]

    @cached_property
    def headings(self) -> list[Heading]:
        """Clause headings in document order."""
        return find_headings(self.text)

    @cached_property
    def _heading_starts(self) -> list[int]:
        return [heading.start for heading in self.headings]

    @cached_property
    def _sentence_starts(self) -> list[int]:
        return sentence_starts(self.text, self.headings)

    @property
    def pages_without_text(self) -> tuple[int, ...]:
        """Numbers of the pages that hold only white space (a scanned insert, a blank page)."""
        return tuple(p.number for p in self.pages if not self.text[p.char_start : p.char_end].strip())

    def page_at(self, char: int) -> int:
        """1-based number of the page that holds `char`; an offset outside the text means its nearest page."""
        return self.pages[max(0, bisect_right(self._page_starts, char) - 1)].number

    def pages_of(self, start: int, end: int) -> tuple[int, ...]:
        """Numbers of all pages that the characters `start` up to `end` touch, in order."""
        first, last = self.page_at(start), self.page_at(max(start, end - 1))
        return tuple(range(first, last + 1))

    def clause_at(self, char: int) -> str:
        """Label of the clause that holds `char`: `12.3`, `Article IV`, `Schedule 2`, `第四十二条`.

        The nearest heading at or before `char` decides; before the first one it is empty.
        """
        index = bisect_right(self._heading_starts, char) - 1
        return self.headings[index].label if index >= 0 else ""

    def sentence_at(self, char: int) -> tuple[int, int]:
        """(start, end) of the sentence around `char`, without the white space at its ends."""
        starts = self._sentence_starts
        index = max(0, bisect_right(starts, char) - 1)
        end = starts[index + 1] if index + 1 < len(starts) else len(self.text)
        return self._strip(starts[index], end)

    def sentences(self, start: int, end: int) -> list[tuple[int, int]]:
        """(start, end) of every sentence that overlaps the characters `start` up to `end`, in order."""
        starts = [*self._sentence_starts, len(self.text)]
        index = max(0, bisect_right(starts, start) - 1)
        found: list[tuple[int, int]] = []
        while index + 1 < len(starts) and starts[index] < end:
            span = self._strip(starts[index], starts[index + 1])
            if span[0] < span[1] and span[1] > start and span[0] < end:
                found.append(span)
            index += 1
        return found

    def _strip(self, start: int, end: int) -> tuple[int, int]:
        piece = self.text[start:end]
        return start + len(piece) - len(piece.lstrip()), start + len(
            piece.rstrip()
        ) if piece.strip() else start
