"""Where clauses and sentences begin, from the text alone (English and Chinese), in linear time."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Numbers in headings: 12, 12.3, 12.3.4 (a trailing dot is dropped), IV, A, A1, and Chinese numerals.
_NUMBER = r"\d{1,3}(?:\.\d{1,3}){0,5}"
_CJK_NUMBER = r"[零〇一二三四五六七八九十百千两\d]{1,12}"
_KEYWORD_HEADING = re.compile(
    rf"^[ \t#*]{{0,40}}(?i:(article|section|clause|schedule|exhibit|annex|appendix|attachment))[ \t]+"
    rf"({_NUMBER}|[IVXLC]{{1,7}}|[A-Z]\d{{0,2}})(?=[ \t]*(?:$|[.:;–—\-(])|[ \t]+[\"“A-Z(])",
    re.MULTILINE,
)
_NUMBER_HEADING = re.compile(
    rf"^[ \t#*]{{0,40}}({_NUMBER})(?:[.)、．]|[ \t])[ \t]{{0,8}}(?=[\"“'‘(\[A-Z\u4e00-\u9fff])", re.MULTILINE
)
_CJK_HEADING = re.compile(
    rf"^[ \t\u3000#*]{{0,8}}(第{_CJK_NUMBER}条(?![的、至和或第规与及，。）])|附件{_CJK_NUMBER})", re.MULTILINE
)

# A line that a hard break cut out of a sentence ("… as set out in / Schedule 2 and …") is no heading.
_OPEN_LINE = re.compile(
    r"(?:,|\b(?:in|to|of|with|under|by|and|or|this|the|see|per|from|sections?|articles?|clauses?|schedules?"
    r"|exhibits?|than|least|between|within|for|is|are|at|on|an?))[ \t]*$",
    re.IGNORECASE,
)
_NOT_CLAUSE = re.compile(
    r"(?:[年月日号元天个%％]|(?:January|February|March|April|May|June|July|August"
    r"|September|October|November|December|USD|EUR|GBP|Business Days?)\b)"
)

_SENTENCE_END = re.compile(r"[。！？；][”’」』）\"]*|[.!?][\"”’)]*(?=\s+[\"“(\[A-Z\d•●§])|\n[ \t]*\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:no|nos|inc|ltd|co|corp|llc|art|sec|cl|mr|mrs|ms|dr|st|vs|e\.g|i\.e|etc|approx|u\.s|p\.m|a\.m)"
    r"|(?<![A-Za-z])[A-Z]|(?:^|\n)[ \t]*[\d.]{1,12})\.$",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[•●☐▪\-–]|\([a-z0-9]{1,4}\))[ \t]+", re.MULTILINE)
_LONGEST_SENTENCE = 600
"""A table has no full stops: beyond this many characters a sentence is cut at its line ends."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A clause begins at character `start`; `label` is `12.3`, `Article IV`, `Schedule 2` or `第四十二条`."""

    start: int
    label: str


_FULL_WIDTH = re.compile(r"[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a％＄＠－．／＋＆]")
_GROUPED = re.compile(r"(?<=[０-９])，(?=[０-９]{3}(?![０-９]))")
_PLAIN = {c: c - 0xFEE0 for c in (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))} | {
    ord(c): ord(c) - 0xFEE0 for c in "％＄＠－．／＋＆"
}


def plain_width(text: str) -> str:
    """Text with digits and Latin letters of full width (２０２５年) as plain ones; every offset stays."""
    if not _FULL_WIDTH.search(text):
        return text
    return _GROUPED.sub(",", text).translate(_PLAIN)


def find_headings(text: str) -> list[Heading]:
    """Clause headings at line starts, in document order."""
    text = plain_width(text)
    found = {m.start(1): f"{m[1].capitalize()} {m[2]}" for m in _KEYWORD_HEADING.finditer(text)}
    for match in _NUMBER_HEADING.finditer(text):
        if not _NOT_CLAUSE.match(text, match.end()):
            found[match.start(1)] = match[1]
    headings = [Heading(at, label) for at, label in sorted(found.items()) if not _continues(text, at)]
    headings += [Heading(m.start(1), m[1]) for m in _CJK_HEADING.finditer(text)]
    return sorted(headings, key=lambda heading: heading.start)


def _continues(text: str, at: int) -> bool:
    """True if the line before the one at `at` is an unfinished sentence."""
    line_start = text.rfind("\n", 0, at)
    if line_start < 0:
        return False
    return _OPEN_LINE.search(text[max(0, line_start - 40) : line_start]) is not None


def sentence_starts(text: str, headings: list[Heading]) -> list[int]:
    """Character offsets at which sentences begin, from 0. Hard line breaks do not end a sentence."""
    cuts = {0} | {heading.start for heading in headings}
    cuts |= {match.start() for match in _LIST_ITEM.finditer(text)}
    for match in _SENTENCE_END.finditer(text):
        if text[match.start()] == "." and _ABBREVIATION.search(
            text[max(0, match.start() - 14) : match.start() + 1]
        ):
            continue
        cuts.add(match.end())
    ordered = sorted(cuts)
    starts: list[int] = []
    for start, end in zip(ordered, [*ordered[1:], len(text)], strict=True):
        starts.append(start)
        at = start
        while end - at > _LONGEST_SENTENCE:
            line_end = text.find("\n", at + _LONGEST_SENTENCE // 2, end)
            if line_end < 0:
                break
            at = line_end + 1
            if at < end:
                starts.append(at)
    return starts
