"""Typed anchors: the dates, amounts, clause numbers, parties and terms that questions ask for."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.documents.names import ASKED, NAME_RULES
from zerolayer.documents.patterns import NUMBER_RULES, AnchorKind
from zerolayer.documents.references import clause_of, find_mentions, heading_value
from zerolayer.documents.structure import Heading, find_headings, plain_width

__all__ = ["Anchor", "AnchorIndex", "AnchorKind", "SpanAnchors", "asked_kinds", "find_anchors"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """Characters `start` up to `end` of a text.

    `value` is normalised: `2024-03-01`, `2024-03`, `USD 1200000`, `P30D`, `12.3(b)`, `article 4`, `第42条第2款`.
    """

    kind: AnchorKind
    start: int
    end: int
    text: str
    value: str


def find_anchors(text: str, headings: list[Heading] | None = None) -> list[Anchor]:
    """All anchors of `text` by start, in time linear in its length. `headings` saves finding them again."""
    headings = find_headings(text) if headings is None else headings
    plain = plain_width(text)
    found = [
        Anchor(
            AnchorKind.CLAUSE,
            h.start,
            end := h.start + len(h.label),
            text[h.start : end],
            heading_value(h.label),
        )
        for h in headings
    ]
    mentions = sorted(find_mentions(plain, headings), key=lambda mention: (mention.start, mention.end))
    found += [Anchor(AnchorKind.REFERENCE, m.start, m.end, text[m.start : m.end], m.value) for m in mentions]
    found += _without_overlap(sorted(_by_rules(text, plain), key=lambda anchor: (anchor.start, -anchor.end)))
    return sorted(found, key=lambda anchor: (anchor.start, -anchor.end))


def _by_rules(text: str, plain: str) -> Iterator[Anchor]:
    for rule in (*NUMBER_RULES, *NAME_RULES):
        if rule.needs and not any(needed in plain for needed in rule.needs):
            continue
        for match in rule.pattern.finditer(plain):
            value = rule.value(match)
            if value:
                yield Anchor(rule.kind, match.start(), match.end(), text[match.start() : match.end()], value)


def _without_overlap(anchors: Iterable[Anchor]) -> list[Anchor]:
    """Two rules of one kind may see the same text: the one that starts first stays, of those the longest."""
    taken: dict[AnchorKind, int] = {}
    kept: list[Anchor] = []
    for anchor in anchors:
        if anchor.start >= taken.get(anchor.kind, 0):
            taken[anchor.kind] = anchor.end
            kept.append(anchor)
    return kept


def asked_kinds(question: str) -> frozenset[AnchorKind]:
    """Kinds of anchor that an answer to `question` is likely to hold, from its question words."""
    return frozenset(kind for kind, pattern in ASKED.items() if pattern.search(question))


@dataclass(frozen=True)
class SpanAnchors:
    """Which anchors overlap which spans (blocks, tokens, paragraphs), both ways.

    Pair i says that the anchor `anchors[i]` (its place in AnchorIndex.anchors) overlaps the span `spans[i]`.
    Pairs are in the order of spans, then of anchors; the anchors of span s are those from `starts[s]` up to
    `starts[s + 1]`.
    """

    anchors: IntArray  # [pairs]
    spans: IntArray  # [pairs]
    starts: IntArray  # [num_spans + 1]
    kinds: IntArray  # [pairs] places of the anchors' kinds in AnchorKind
    num_anchors: int

    def of_span(self, span: int) -> IntArray:
        """Anchors that overlap a span, in document order."""
        return self.anchors[self.starts[span] : self.starts[span + 1]]

    def of_anchor(self, anchor: int) -> IntArray:
        """Spans that an anchor overlaps, in document order."""
        found: IntArray = self.spans[self.anchors == anchor]
        return found

    def counts(self, kind: AnchorKind) -> FloatArray:
        """[num_spans] anchors of `kind` in each span."""
        wanted = self.spans[self.kinds == list(AnchorKind).index(kind)]
        counts: FloatArray = np.bincount(wanted, minlength=len(self.starts) - 1).astype(np.float32)
        return counts


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
            value = anchor.value.lower()
            self._by_value[value].append(anchor)
            # Whoever asks for a clause wants the mentions of its paragraphs too.
            if anchor.kind is AnchorKind.REFERENCE and (clause := clause_of(value)) != value:
                self._by_value[clause].append(anchor)

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
        """Anchors whose normalised value is `value` (case aside), of `kind` if given, in document order.

        A paragraph of a clause (`12.3(b)`, `第42条第2款`) also finds the heading of that clause.
        """
        value = value.lower()
        found = list(self._by_value.get(value, ()))
        if (clause := clause_of(value)) != value:
            found += [a for a in self._by_value.get(clause, ()) if a.kind is AnchorKind.CLAUSE]
        return sorted(
            (a for a in found if kind is None or a.kind is kind),
            key=lambda anchor: (anchor.start, anchor.end),
        )

    def in_span(self, start: int, end: int) -> list[Anchor]:
        """Anchors that overlap the characters `start` up to `end`, in document order."""
        first = bisect_left(self._starts, start - self._longest)
        last = bisect_left(self._starts, end)
        return [anchor for anchor in self.anchors[first:last] if anchor.end > start]

    def over(self, spans: Sequence[tuple[int, int]] | IntArray) -> SpanAnchors:
        """Anchors against all of `spans` [n, 2] at once. Spans are in document order; empty ones hold nothing."""
        bounds = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
        filled = np.flatnonzero(bounds[:, 1] > bounds[:, 0])
        starts = np.asarray(self._starts, dtype=np.int64)
        ends = np.asarray([anchor.end for anchor in self.anchors], dtype=np.int64)
        first = np.searchsorted(bounds[filled, 1], starts, side="right")
        count = np.maximum(np.searchsorted(bounds[filled, 0], ends, side="left") - first, 0)
        anchors = np.repeat(np.arange(len(starts)), count)
        offsets = np.arange(len(anchors)) - np.repeat(np.cumsum(count) - count, count)
        rows = filled[np.repeat(first, count) + offsets]
        order = np.lexsort((anchors, rows))
        anchors, rows = anchors[order], rows[order]
        place = {kind: number for number, kind in enumerate(AnchorKind)}
        kinds = np.asarray([place[anchor.kind] for anchor in self.anchors], dtype=np.int64)
        return SpanAnchors(
            anchors, rows, np.searchsorted(rows, np.arange(len(bounds) + 1)), kinds[anchors], len(starts)
        )

    def references_to(self, clause: str) -> list[Anchor]:
        """Mentions of `clause` or of its paragraphs elsewhere in the text."""
        return self.of_value(clause, AnchorKind.REFERENCE)

    def definition_of(self, term: str) -> Anchor | None:
        """Where `term` stands in quotes first: its definition; None if it never does."""
        found = self.of_value(term, AnchorKind.TERM)
        return found[0] if found else None
