"""Which characters a clause covers: from its heading to the next one of its level or above."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from zerolayer.documents.references import clause_of, heading_value
from zerolayer.documents.structure import Heading

_ANNEX = ("schedule", "exhibit", "annex", "appendix", "attachment", "附")
_ITEM = re.compile(r"\(([A-Za-z0-9]{1,4})\)")


@dataclass(frozen=True, slots=True)
class Clause:
    """Characters `start` up to `end`, sub-clauses included. `part` numbers the annex that it stands in."""

    value: str
    start: int
    end: int
    part: int


def _level(value: str) -> int:
    """0 for annexes, 1 for articles, 2 for `12` and 第四十二条, 3 for `12.3`, and so on."""
    if value.startswith(_ANNEX):
        return 0
    return 1 if value.startswith("article ") else 2 + value.count(".")


def clauses(headings: Sequence[Heading], length: int) -> list[Clause]:
    """The clause of each heading of a text of `length` characters, in time linear in their number."""
    values = [heading_value(heading.label) for heading in headings]
    ends = [length] * len(headings)
    parts: list[int] = []
    open_clauses: list[int] = []
    part = 0
    for index, (heading, value) in enumerate(zip(headings, values, strict=True)):
        while open_clauses and _level(values[open_clauses[-1]]) >= _level(value):
            ends[open_clauses.pop()] = heading.start
        open_clauses.append(index)
        part += _level(value) == 0
        parts.append(part)
    return [
        Clause(value, heading.start, end, own)
        for heading, value, end, own in zip(headings, values, ends, parts, strict=True)
    ]


class ClauseMap:
    """From the value of a mention (`12.3(b)`, `article 4`, `第42条第2款`) to the clause that it names."""

    def __init__(self, text: str, headings: Sequence[Heading]) -> None:
        self._text = text
        self._clauses = clauses(headings, len(text))
        self._starts = [clause.start for clause in self._clauses]
        self._by_value: dict[str, list[Clause]] = defaultdict(list)
        for clause in self._clauses:
            self._by_value[clause.value].append(clause)

    def __len__(self) -> int:
        return len(self._clauses)

    def named(self, value: str, at: int = 0) -> tuple[int, int] | None:
        """Characters of the clause that `value`, written at character `at`, names; None if there is none.

        A number may head several clauses (a table of contents, an annex that counts anew): of those in the
        mention's own part of the document the longest is meant. A paragraph (`12.3(b)`) begins at its letter.
        """
        clause = clause_of(value)
        for name in (value, clause, *self._also(clause)):
            if found := self._by_value.get(name):
                best = self._best(found, at)
                return self._from_item(best, value[len(name) :] if value.startswith(name) else "")
        return None

    @staticmethod
    def _also(value: str) -> tuple[str, ...]:
        """What else people write for it: Section 4 for Article IV, 第3条 for a heading `3.`."""
        if value.startswith("article "):
            return (value.removeprefix("article "),)
        if value.startswith("第"):
            number = value[1:-1]
            return (number, f"article {number}")
        return (f"article {value}", f"第{value}条") if value.isdigit() else ()

    def _best(self, found: list[Clause], at: int) -> Clause:
        if _level(found[0].value) == 0:
            return found[-1]  # the earlier ones are lines of a table of contents
        index = bisect_right(self._starts, at) - 1
        part = self._clauses[index].part if index >= 0 else 0
        near = [clause for clause in found if clause.part == part] or found
        return max(near, key=lambda clause: clause.end - clause.start)

    def _from_item(self, clause: Clause, tail: str) -> tuple[int, int]:
        start = clause.start
        for item in _ITEM.findall(tail):
            at = self._text.find(f"({item})", start, clause.end)
            if at < 0:
                break
            start = at
        return start, clause.end
