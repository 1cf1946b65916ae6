"""Mentions of clauses: what they look like, and one value for a clause however it is written."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zerolayer.documents.numerals import CJK_NUMERALS, chinese_number, roman_number
from zerolayer.documents.structure import Heading

_LONGEST_LIST = 16
_LONGEST_RANGE = 30
_NUMBER = r"\d{1,3}(?:\.\d{1,3}){0,5}(?:\.?[A-Z](?![\w]))?|[IVXLC]{1,7}\b|[A-Z](?:-?\d{1,2})?\b"
_TAIL = r"(?:\([A-Za-z0-9]{1,4}\)){0,4}"
_WORD = (
    r"(?i:ections?|ec\.|rticles?|rt\.|lauses?|aragraphs?|chedules?|xhibits?|nnex(?:es)?|ppendi(?:x|ces)"
    r"|ttachments?)"
)
_ENGLISH = re.compile(
    rf"(?P<word>[SACPEsacpe](?<!\w.){_WORD}|§§?)[ \n\t\u00a0]{{0,2}}(?<=[\s§])(?P<number>{_NUMBER})(?P<tail>{_TAIL})"
)
_NEXT = re.compile(
    r"(?P<to>[ \n]{1,2}(?:to|through)[ \n]{1,2}|[ ]?[–—-][ ]?)?(?(to)|(?:,[ \n]{0,2}(?:(?:and/or|and|or)[ \n]{1,2})?"
    rf"|[ \n]{{1,2}}(?:and/or|and|or|&)[ \n]{{1,2}}))(?P<number>{_NUMBER})(?P<tail>{_TAIL})"
    r"(?![ \n]?(?:%|(?i:days?|weeks?|months?|years?|business|calendar|percent|hours?)\b)|\w|,\d{3})"
)
_PRECEDING = re.compile(r"(?:preceding|previous|foregoing) (?:Section|Article|Clause)\b", re.IGNORECASE)

_N = rf"[\d{CJK_NUMERALS}]{{1,14}}"
_CJK = re.compile(
    rf"第({_N}(?:\.\d{{1,3}}){{0,4}})条(?:之({_N}))?(?:第({_N})款)?(?:第({_N})项)?(至第(?={_N}条))?"
    rf"|(附件|附表|附录)({_N})"
    rf"|(?<![以之目])前([一二两三四五])?条(?![件约例款])(?:第({_N})款)?(?:第({_N})项)?"
)
_ARTICLE = re.compile(rf"第({_N})条")
_TAILS = re.compile(r"(?:(?<=\d)\.?[a-z])?(?:\([^()]{1,4}\))*$")


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters `start` up to `end` name the clause `value`."""

    start: int
    end: int
    value: str


def clause_value(word: str, number: str) -> str:
    """`12.3` for a section, clause or paragraph; `article 4` for Article IV; `schedule 2`, `exhibit a`."""
    word = word.lower().rstrip("s.")
    word = {"annexe": "annex", "appendice": "appendix", "art": "article"}.get(word, word)
    number = number.rstrip(".")
    roman = roman_number(number) if word == "article" or len(number) > 1 else None
    number = str(roman) if roman else number.lower()
    return number if word in {"section", "sec", "clause", "paragraph", "§", "§§"} else f"{word} {number}"


def heading_value(label: str) -> str:
    """A heading's label in the form of a mention's value, so that one finds the other."""
    chinese = _CJK.match(label)
    if chinese:
        return _chinese_value(chinese)
    word, _, number = label.partition(" ")
    return clause_value(word, number) if number else label


def clause_of(value: str) -> str:
    """The clause that a value lies in: `12.3` for `12.3(b)`, `第42条` for `第42条第2款第3项`."""
    if value.startswith("第") and "条" in value:
        return value[: value.index("条") + 1]
    return _TAILS.sub("", value)


def find_mentions(text: str, headings: Sequence[Heading]) -> Iterator[Mention]:
    """All mentions of clauses, also each of a list and of a range; 前条 is the article before its own."""
    starts = [heading.start for heading in headings]
    own = frozenset(starts)
    for match in _ENGLISH.finditer(text):
        if match.start() not in own:
            yield from _english(text, match)
    for match in _PRECEDING.finditer(text):
        yield from _before(match, 1, "", headings, starts)
    if "条" in text or "附" in text:
        for match in _CJK.finditer(text):
            if match.start() in own:
                continue
            if match[6] or match[1]:
                yield from _chinese(text, match)
            else:
                tail = _paragraph(match[9], match[10])
                yield from _before(match, chinese_number(match[8] or "一") or 1, tail, headings, starts)


def _english(text: str, match: re.Match[str]) -> Iterator[Mention]:
    word, number, tail = match["word"], match["number"], match["tail"]
    if not word[0].isupper() and word[0] != "§" and not number[0].isdigit():
        return  # "this section I …"
    if word.lower().startswith(("paragraph", "clause")) and len(number) == 1 and not number.isdigit():
        return
    yield Mention(match.start(), match.end(), clause_value(word, number) + tail.lower())
    plural = word.lower().rstrip(".").endswith("s") or word == "§§" or word.lower().startswith("appendices")
    at, last = match.end(), number
    for _ in range(_LONGEST_LIST):
        following = _NEXT.match(text, at)
        if following is None:
            return
        number, tail = following["number"], following["tail"]
        # "Section 3, 30 years": a bare number goes on a list only after "Sections".
        if not plural and "." not in number and not tail:
            return
        for value in _between(last, number) if following["to"] else ():
            yield Mention(match.start(), following.end(), clause_value(word, value))
        yield Mention(following.start("number"), following.end(), clause_value(word, number) + tail.lower())
        at, last = following.end(), number


def _between(first: str, last: str) -> list[str]:
    """What lies between two numbers or letters of one level: 4 and 5 between 3 and 6, 12.4 between 12.3 and 12.5."""
    head, _, a = first.rpartition(".")
    other, _, b = last.rpartition(".")
    if head != other:
        return []
    if a.isdigit() and b.isdigit():
        low, high = int(a), int(b)
        names = [str(n) for n in range(low + 1, high)]
    elif len(a) == len(b) == 1 and a.isalpha() and b.isalpha():
        names = [chr(n) for n in range(ord(a) + 1, ord(b))]
    else:
        return []
    return [f"{head}.{name}" if head else name for name in names[:_LONGEST_RANGE]]


def _number(text: str) -> str:
    number = chinese_number(text)
    return text if number is None else str(number)


def _paragraph(paragraph: str | None, item: str | None) -> str:
    return (f"第{_number(paragraph)}款" if paragraph else "") + (f"第{_number(item)}项" if item else "")


def _chinese_value(match: re.Match[str]) -> str:
    if match[6]:
        return f"{match[6]}{_number(match[7])}"
    if "." in match[1]:
        return match[1]  # 第12.3条 is how a contract with numbered headings is cited
    inserted = f"之{_number(match[2])}" if match[2] else ""
    return f"第{_number(match[1])}条{inserted}{_paragraph(match[3], match[4])}"


def _chinese(text: str, match: re.Match[str]) -> Iterator[Mention]:
    if not match[5]:
        yield Mention(match.start(), match.end(), _chinese_value(match))
        return
    # 第三条至第五条: the second end is a match of its own, since only 至第 was consumed with the first.
    last = _ARTICLE.match(text, match.end() - 1)
    yield Mention(match.start(), match.end() - 2, _chinese_value(match))
    if last is None:
        return
    low, high = chinese_number(match[1]) or 0, chinese_number(last[1]) or 0
    for number in range(low + 1, min(high, low + _LONGEST_RANGE)):
        yield Mention(match.start(), last.end(), f"第{number}条")
    yield Mention(last.start(), last.end(), f"第{high}条")


def _before(
    match: re.Match[str], count: int, tail: str, headings: Sequence[Heading], starts: list[int]
) -> Iterator[Mention]:
    """Mentions of the `count` headings before the clause that the match stands in."""
    own = bisect_right(starts, match.start()) - 1
    for index in range(max(0, own - count), own):
        value = heading_value(headings[index].label)
        yield Mention(match.start(), match.end(), value + (tail if count == 1 else ""))
