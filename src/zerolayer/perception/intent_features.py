"""What is known of a block before the next question: where it lies, what it holds, what was asked so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.documents.anchors import AnchorKind, asked_kinds
from zerolayer.perception.lexical import LexicalIndex

_KNOTS = 11  # of the piecewise linear function of relative position: one at each tenth
_REACH = (300.0, 1500.0, 6000.0)  # characters: a block, a page, a chapter
# Listed, not taken from the enumeration: the fitted numbers belong to these.
_ASKED = (
    AnchorKind.AMOUNT,
    AnchorKind.DATE,
    AnchorKind.DURATION,
    AnchorKind.PERCENT,
    AnchorKind.PARTY,
    AnchorKind.EMAIL,
    AnchorKind.IDENTIFIER,
)
_KINDS = (*_ASKED, AnchorKind.CLAUSE, AnchorKind.REFERENCE, AnchorKind.TERM)

FEATURES: tuple[str, ...] = (
    *(f"position {i / (_KNOTS - 1):.1f}" for i in range(_KNOTS)),
    *(f"position {i / (_KNOTS - 1):.1f} x turn" for i in range(_KNOTS)),
    "head of the document",
    "end of the document",
    "heading",
    *(f"holds {kind.value}" for kind in _KINDS),
    *(f"{way} the last, {int(reach)}" for way in ("at or after", "before") for reach in _REACH),
    *(f"near an earlier one, {int(reach)}" for reach in _REACH[:2]),
    "used before",
    "words of the last question",
    "words of earlier questions",
    *(f"{kind.value} asked last and held" for kind in _ASKED),
    *(f"{kind.value} asked before and held" for kind in _ASKED),
)
"""Names of the columns of `IntentFeatures.of`, in order."""


@dataclass(frozen=True, slots=True)
class PlacedTurn:
    """A question of the past and the places in the document that it needed."""

    question: str
    rows: IntArray  # rows of the blocks, at least one
    weights: FloatArray  # of the rows; sum 1
    match: FloatArray  # [rows of the document] match of the question's words, 0 to 1


class IntentFeatures:
    """Features of the blocks of one text. `spans` are (start, end) characters of the blocks, by start.

    `rows` are the indices of the blocks with text: what all arrays here run over.
    """

    def __init__(self, text: str, spans: Sequence[tuple[int, int]], lexical: LexicalIndex | None) -> None:
        self.lexical = lexical or LexicalIndex(text, spans)
        self.rows: IntArray = np.asarray([i for i, (a, b) in enumerate(spans) if b > a], dtype=np.int64)
        used = [spans[i] for i in self.rows]
        self._starts = np.asarray([a for a, _ in used], dtype=np.float64)
        self._length = max(1, len(text))
        self.offset: FloatArray = np.log([max(1, b - a) for a, b in used]).astype(np.float32)
        """[rows] log of each block's characters: with no other feature, every character is as likely."""
        position = self._starts / self._length
        knots = np.arange(_KNOTS) / (_KNOTS - 1)
        self._hats = np.maximum(0.0, 1.0 - np.abs(position[:, None] - knots) * (_KNOTS - 1))
        counts = np.zeros((len(used), 1 + len(_KINDS)))
        for heading in self.lexical.headings:
            counts[self._row(heading.start), 0] += 1
        for anchor in self.lexical.anchors.anchors:
            if anchor.kind not in _KINDS:
                continue
            counts[self._row(anchor.start), 1 + _KINDS.index(anchor.kind)] += 1
        held = np.log1p(counts)
        self._kinds = held[:, 1:]
        self._static = np.column_stack(
            [np.exp(-self._starts / 600), np.exp((self._starts - self._length) / 1500), held]
        )

    def _row(self, char: int) -> int:
        return max(0, int(np.searchsorted(self._starts, char, side="right")) - 1)

    def words(self, question: str) -> FloatArray:
        """[rows] match of the question's words, 0 to 1."""
        return self.lexical.scores(question)[self.rows]

    def nearness(self, turn: PlacedTurn, reach: float) -> tuple[FloatArray, FloatArray]:
        """[rows] exp(-distance / reach) to the turn's places, at or after them and before them."""
        distance = self._starts[:, None] - self._starts[turn.rows]
        near = np.exp(-np.abs(distance) / reach)
        after = (np.where(distance >= 0, near, 0.0) * turn.weights).sum(axis=1)
        before = (np.where(distance < 0, near, 0.0) * turn.weights).sum(axis=1)
        return after.astype(np.float32), before.astype(np.float32)

    def of(self, history: Sequence[PlacedTurn]) -> FloatArray:
        """[rows, len(FEATURES)] after the turns of `history`, oldest first; the history's columns are 0 without any."""
        turn = np.log1p(len(history)) / 2.0
        columns = [self._hats, turn * self._hats, self._static]
        columns.append(self._past(history) if history else np.zeros((len(self.rows), 11 + 2 * len(_ASKED))))
        return np.column_stack(columns).astype(np.float32)

    def _past(self, history: Sequence[PlacedTurn]) -> FloatArray:
        last, earlier = history[-1], history[:-1]
        nothing = np.zeros(len(self.rows), dtype=np.float32)
        near = [self.nearness(last, reach) for reach in _REACH]
        columns = [after for after, _ in near] + [before for _, before in near]
        for reach in _REACH[:2]:
            columns.append(np.max([np.add(*self.nearness(t, reach)) for t in earlier] or [nothing], axis=0))
        used = nothing.copy()
        for turn in history:
            used[turn.rows] = 1.0
        columns += [
            used,
            last.match,
            np.max([turn.match for turn in earlier] or [nothing], axis=0),
        ]
        asked_last = asked_kinds(last.question)
        asked_before: frozenset[AnchorKind] = frozenset().union(*(asked_kinds(t.question) for t in earlier))
        for asked in (asked_last, asked_before):
            columns += [self._kinds[:, _KINDS.index(kind)] if kind in asked else nothing for kind in _ASKED]
        return np.column_stack(columns).astype(np.float32)
