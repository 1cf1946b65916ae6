"""Typed anchors: the dates, amounts, clause numbers, parties and terms that questions ask for."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from zerolayer.documents.patterns import ASKED, RULES, AnchorKind
from zerolayer.documents.structure import Heading, find_headings

__all__ = ["Anchor", "AnchorIndex", "AnchorKind", "asked_kinds", "find_anchors"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """Characters `start` up to `end` of a text.

    `value` is normalised: `2024-03-01`, `USD 1200000`, `P30D`, `12.3`.
    """

    kind: AnchorKind
    start: int
    end: int
    text: str
    value: str


def find_anchors(text: str, headings: list[Heading] | None = None) -> list[Anchor]:
    """All anchors of `text` by start, in time linear in its length. `headings` saves finding them again."""
    headings = find_headings(text) if headings is None else headings
    found = [
        Anchor(
            AnchorKind.CLAUSE,
            h.start,
            h.start + len(h.label),
            text[h.start : h.start + len(h.label)],
            _label(h),
        )
        for h in headings
    ]
    clause_starts = {heading.start for heading in headings}
    taken: dict[AnchorKind, int] = {}
    for kind, pattern, value_of in RULES:
        for match in pattern.finditer(text):
            if kind is AnchorKind.REFERENCE and match.start() in clause_starts:
                continue
            value = value_of(match)
            if value:
                found.append(Anchor(kind, match.start(), match.end(), match[0], value))
    found.sort(key=lambda anchor: (anchor.start, -anchor.end))
    kept: list[Anchor] = []
    for anchor in found:  # two rules of one kind may see the same text; the longer reading stays
        if anchor.start >= taken.get(anchor.kind, 0):
            taken[anchor.kind] = anchor.end
            kept.append(anchor)
    return kept


def _label(heading: Heading) -> str:
    """A heading's label in the form of a reference's value, so that one finds the other."""
    word, _, number = heading.label.partition(" ")
    if not number:
        return heading.label
    return number if word in {"Section", "Clause"} else f"{word} {number}".lower()


def asked_kinds(question: str) -> frozenset[AnchorKind]:
    """Kinds of anchor that an answer to `question` is likely to hold, from its question words."""
    return frozenset(kind for kind, pattern in ASKED.items() if pattern.search(question))


class AnchorIndex:
    """Anchors of one text, found by kind, by value and by span, and the value of any place."""

    def __init__(self, anchors: Iterable[Anchor]) -> None:
        self.anchors: list[Anchor] = sorted(anchors, key=lambda anchor: anchor.start)
        self._starts = [anchor.start for anchor in self.anchors]
        self._longest = max((anchor.end - anchor.start for anchor in self.anchors), default=0)
        self._by_kind: dict[AnchorKind, list[Anchor]] = defaultdict(list)
        self._by_value: dict[str, list[Anchor]] = defaultdict(list)
        for anchor in self.anchors:
            self._by_kind[anchor.kind].append(anchor)
            self._by_value[anchor.value.lower()].append(anchor)

    @classmethod
    def of(cls, text: str) -> AnchorIndex:
        """The index of all anchors of `text`."""
        return cls(find_anchors(text))

    def __len__(self) -> int:
        return len(self.anchors)

    def of_kind(self, kind: AnchorKind) -> list[Anchor]:
        """Anchors of `kind` in document order."""
        return list(self._by_kind.get(kind, ()))

    def of_value(self, value: str, kind: AnchorKind | None = None) -> list[Anchor]:
        """Anchors whose normalised value is `value` (case aside), of `kind` if given, in document order."""
        return [a for a in self._by_value.get(value.lower(), ()) if kind is None or a.kind is kind]

    def in_span(self, start: int, end: int) -> list[Anchor]:
        """Anchors that overlap the characters `start` up to `end`, in document order."""
        first = bisect_left(self._starts, start - self._longest)
        last = bisect_left(self._starts, end)
        return [anchor for anchor in self.anchors[first:last] if anchor.end > start]

    def references_to(self, clause: str) -> list[Anchor]:
        """Mentions of `clause` elsewhere in the text."""
        return self.of_value(clause, AnchorKind.REFERENCE)

    def definition_of(self, term: str) -> Anchor | None:
        """Where `term` stands in quotes first: its definition; None if it never does."""
        found = self.of_value(term, AnchorKind.TERM)
        return found[0] if found else None
