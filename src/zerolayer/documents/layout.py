"""What a page's layout adds to its text: running headers and footers, and line breaks inside Chinese words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from zerolayer.documents.normalise import join_pages, normalise, vocabulary

_EDGE_LINES = 3
"""Lines at the top and at the bottom of a page among which headers and footers are looked for."""
_LEAST_SHARE = 0.45
"""Of the pages with text; below a half, since left and right pages may have headers of their own."""
_LEAST_PAGES = 3
_LONGEST_LINE = 160
_STEADY = 0.8

_DIGITS = re.compile(r"\d{1,9}")
_ROMAN = re.compile(r"[ivxlc]{1,8}|[IVXLC]{1,8}")
_NUMBERED_HEADING = re.compile(
    r"(?:article|section|clause|schedule|exhibit|annex|appendix|attachment|chapter|part)\b|第", re.IGNORECASE
)
_CJK = r"[\u3400-\u4dbf\u4e00-\u9fff]"
_CJK_CHARACTER = re.compile(_CJK)
_CUT = re.compile(rf"(?:{_CJK}|\d)\Z")
_GOES_ON = re.compile(
    rf"(?!第[^条章节编\n]{{1,12}}(?:[章节编]|分编|条(?![的、至和或第规与及]))|\d{{1,3}}[.、．])(?:{_CJK}|\d)"
)
_FULL_LINE = 0.8


def normalise_pages(pages: Sequence[str]) -> list[str]:
    """Clean text of a PDF's pages: repeats of running lines gone, cut words whole."""
    words = vocabulary(pages)
    plain = without_running_lines([normalise(page, words) for page in pages])
    return [unwrap(page) for page in join_pages(plain, words)]


@dataclass(frozen=True, slots=True)
class _Line:
    """Characters `start` up to `end` of the page `page` (from 0), near its top or bottom."""

    page: int
    side: str
    start: int
    end: int
    shape: str  # the text with numbers as `#`
    numbers: tuple[int, ...]


def without_running_lines(pages: Sequence[str], keep_length: bool = False) -> list[str]:
    """The pages without the repeats of their headers and footers; what a line says stays where it stands first.

    A line runs if it stands near the top, or near the bottom, of at least 45 % of the pages, and of three. It
    may hold numbers that stay or that count with the pages. With `keep_length` spaces stand for what goes.
    """
    lines: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for number, page in enumerate(pages):
        for line in _edge_lines(page, number):
            lines[line.side, line.shape].append(line)
    least = max(_LEAST_PAGES, _LEAST_SHARE * sum(bool(page.strip()) for page in pages))
    repeats: list[list[_Line]] = [[] for _ in pages]
    for found in lines.values():
        if len({line.page for line in found}) >= least and _runs(found):
            says_something = any(c.isalpha() for c in found[0].shape)
            for line in found[says_something:]:
                repeats[line.page].append(line)
    return [_without(page, gone, keep_length) for page, gone in zip(pages, repeats, strict=True)]


def _without(page: str, lines: list[_Line], keep_length: bool) -> str:
    for line in sorted(lines, key=lambda line: -line.start):
        if keep_length:
            page = page[: line.start] + " " * (line.end - line.start) + page[line.end :]
        else:
            page = page[: line.start] + page[line.end + 1 :]
    return page


def _edge_lines(page: str, number: int) -> list[_Line]:
    """The first and the last lines of a page that are not blank; no line is both."""
    spans, at = [], 0
    for text in page.split("\n"):
        if text.strip():
            spans.append((at, at + len(text)))
        at += len(text) + 1
    top = spans[: max(1, min(_EDGE_LINES, len(spans) - 1))]
    sides = [("top", span) for span in top]
    sides += [("bottom", span) for span in spans[max(len(top), len(spans) - _EDGE_LINES) :]]
    return [
        _line(page[start:end], number, side, start, end)
        for side, (start, end) in sides
        if end - start <= _LONGEST_LINE
    ]


def _line(text: str, page: int, side: str, start: int, end: int) -> _Line:
    plain = " ".join(text.split())
    if _ROMAN.fullmatch(plain.strip("-–— ")):
        return _Line(page, side, start, end, "#", ())
    numbers = tuple(int(found) for found in _DIGITS.findall(plain))
    return _Line(page, side, start, end, _DIGITS.sub("#", plain), numbers)


def _runs(lines: Sequence[_Line]) -> bool:
    """True if every number of lines of one shape stays, or counts with the pages, from most pages to the next."""
    counted = [line for line in lines if line.numbers]
    pairs = list(pairwise(counted))
    if not pairs:
        return True
    moves = False
    for place in range(len(counted[0].numbers)):
        steps = [(b.numbers[place] - a.numbers[place], b.page - a.page) for a, b in pairs]
        if sum(step in (0, pages) for step, pages in steps) < _STEADY * len(steps):
            return False
        moves = moves or any(step for step, _ in steps)
    # One article or exhibit a page counts with the pages too, but it is what the page is about.
    return not (moves and _NUMBERED_HEADING.match(lines[0].shape))


def unwrap(page: str) -> str:
    """The page with the line breaks gone that a full line of Chinese has inside a sentence.

    Chinese has no spaces, so such a break cuts words, amounts and article numbers.
    """
    if len(_CJK_CHARACTER.findall(page)) < 0.3 * len(page):
        return page
    lines = page.split("\n")
    lengths = sorted(len(line.rstrip()) for line in lines if line.strip())
    full = _FULL_LINE * lengths[int(0.9 * (len(lengths) - 1))] if lengths else 0
    pieces = [lines[0]]
    for line, following in pairwise(lines):
        if len(line.rstrip()) >= full and _CUT.search(line.rstrip()) and _GOES_ON.match(following):
            pieces[-1] = pieces[-1].rstrip()
        else:
            pieces.append("\n")
        pieces.append(following)
    return "".join(pieces)
