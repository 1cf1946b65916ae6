"""Which blocks of a document a question's words point at: BM25 at several widths, typed anchors, links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.documents.anchors import AnchorIndex, AnchorKind, asked_kinds, find_anchors
from zerolayer.documents.links import LinkGraph, LinkKind
from zerolayer.documents.structure import Heading, find_headings
from zerolayer.perception.recall import Signals
from zerolayer.perception.scores import smooth, unit
from zerolayer.perception.synonyms import expand
from zerolayer.perception.words import tokenize

if TYPE_CHECKING:
    from bm25s import BM25

_TITLE = re.compile(r"[^.\n]{0,70}")
_LONGEST_CLAUSE = 14
"""Blocks after a clause heading that inherit the words of its title."""

# Names, parties and dates of signing stand at the head of a document, in whatever words.
_ABOUT_DOCUMENT = re.compile(
    r"\b(?:titles?|named?|names|called|documents?|part(?:y|ies)|sign(?:ed|s|ing)?|execut\w{1,4}|dated?|effective"
    r"|compan(?:y|ies)|entit(?:y|ies)|persons?|in force|entered|concluded|between whom|who|takes? effect)\b"
    r"|当事人|双方|名称|标题|签订|签署|生效|谁",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LexicalWeights:
    """How the signals are mixed. Defaults were chosen on the train split of CUAD, 300-character blocks.

    The splits differ in contracts but share their question sentences, which were known when the synonyms
    and the words about the document were written: gains on those sentences are an upper bound for new
    wordings.
    """

    widths: tuple[tuple[int, float], ...] = (
        (1, 1.0),
        (3, 1.0),
        (7, 0.5),
    )  # (blocks, weight) of each BM25 index
    title: float = 0.6  # BM25 of the clause titles that blocks inherit
    synonym: float = 0.5  # weight of a word that shares a group with a question word
    feedback: float = 0.2  # weight of the words of the best blocks (pseudo-relevance feedback)
    anchor_factor: float = 0.5  # gain of a word match beside an anchor of the kind that is asked for
    anchor: float = 0.2  # such an anchor alone
    value: float = 1.0  # a clause number, date or amount of the question that stands in the block
    head: float = 1.0  # the head of the document, for questions about its parties, title and date
    link: float = 0.15  # a block that a matching one is linked to, by the kinds in LINKS


LINKS = {LinkKind.TERM: 1.0, LinkKind.REFERRED: 1.0, LinkKind.REFERENCE: 1.0}
"""Links that lead from a matching block to evidence (docs/signals.md), or from a mention to the clause it names."""

_TELLING_KINDS = frozenset(AnchorKind) - {AnchorKind.PARTY}
"""Parties stand in every clause: that a block names one says nothing about a question that asks who."""


class LexicalIndex:
    """Scores the blocks of one text against questions, in milliseconds a question.

    `spans` are (start, end) characters of the blocks, by start; a block with an empty span (template tokens)
    always scores 0. Neighbours share evidence, since clauses span blocks: each block is indexed alone, with
    its two and with its six neighbours (BM25, Robertson and Zaragoza 2009, as in Lucene, by bm25s).
    """

    def __init__(
        self, text: str, spans: Sequence[tuple[int, int]], weights: LexicalWeights | None = None
    ) -> None:
        self.weights = weights or LexicalWeights()
        self.size = len(spans)
        self._rows: IntArray = np.asarray([i for i, (a, b) in enumerate(spans) if b > a], dtype=np.int64)
        self._starts: IntArray = np.asarray([spans[i][0] for i in self._rows], dtype=np.int64)
        self._vocabulary: dict[str, int] = {}
        self._words: list[list[int]] = [[] for _ in self._rows]
        self._indexes: dict[int, BM25] = {}
        """By width in blocks; 0 for the titles."""
        self.headings: list[Heading] = []
        self.anchors = AnchorIndex([])
        if len(self._rows) == 0:
            return
        for word, at in tokenize(text):
            self._words[self._block(at)].append(self._vocabulary.setdefault(word, len(self._vocabulary)))
        self.headings = find_headings(text)
        self._add_indexes(self._titles(text, self.headings))
        self.anchors = AnchorIndex(find_anchors(text, self.headings))
        self._add_densities()
        self.links = LinkGraph.build(
            text, [spans[i] for i in self._rows], self.anchors.anchors, self.headings
        )
        """Links between the blocks that hold text, numbered without the others."""
        self._word_sets = [frozenset(words) for words in self._words]
        frequency = np.bincount(
            [word for words in self._word_sets for word in words], minlength=len(self._vocabulary)
        )
        self._frequency: IntArray = frequency.astype(np.int64)
        self._idf = np.log1p((len(self._rows) - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)

    def reweighed(self, weights: LexicalWeights) -> LexicalIndex:
        """The same index with other weights. A width that was not indexed counts nothing."""
        other = copy(self)
        other.weights = weights
        return other

    @property
    def block_words(self) -> list[list[int]]:
        """[blocks with text] words of each, a number for each stem, in order."""
        return self._words

    def signals(self, question: str, meaning: FloatArray | None = None) -> Signals:
        """What recall starts from: the match of the words, and how much they can say. `meaning` is passed on."""
        return Signals(self.scores(question), meaning, self.coverage(question))

    def coverage(self, question: str) -> float:
        """Share of the question's words, by inverse document frequency, in the block that holds most; 0 to 1."""
        stems = dict.fromkeys(word for word, _ in tokenize(question))
        known = [self._vocabulary[word] for word in stems if word in self._vocabulary]
        if not known:
            return 0.0
        most = float(np.log1p(len(self._rows) / 0.5))  # what a word that stands nowhere would count
        total = float(self._idf[known].sum()) + most * (len(stems) - len(known))
        best = max(
            sum(float(self._idf[word]) for word in known if word in words) for words in self._word_sets
        )
        return best / total

    def anchored(self, question: str) -> FloatArray:
        """[n] density of anchors of the kinds that `question` asks for, 0 to 1."""
        result = np.zeros(self.size, dtype=np.float32)
        kinds = asked_kinds(question) & _TELLING_KINDS
        if kinds and len(self._rows):
            result[self._rows] = self._asked_density(kinds)
        return result

    def linked(self, score: FloatArray) -> FloatArray:
        """[n] what blocks receive along links from blocks with this `score` [n]."""
        result = np.zeros(self.size, dtype=np.float32)
        if len(self._rows):
            result[self._rows] = self.links.spread(score[self._rows], LINKS)
        return result

    def _block(self, char: int) -> int:
        return max(0, int(np.searchsorted(self._starts, char, side="right")) - 1)

    def _titles(self, text: str, headings: list[Heading]) -> list[list[int]]:
        """For every block, the words of the title of its clause."""
        titles: list[list[int]] = [[] for _ in self._rows]
        ends = [*[heading.start for heading in headings], len(text)][1:]
        for heading, end in zip(headings, ends, strict=True):
            match = _TITLE.match(text, min(len(text), heading.start + len(heading.label) + 1))
            words = [
                self._vocabulary[w] for w, _ in tokenize(match[0] if match else "") if w in self._vocabulary
            ]
            first, last = self._block(heading.start), self._block(max(heading.start, end - 1))
            for block in range(first, min(last, first + _LONGEST_CLAUSE) + 1):
                titles[block] += words[:8]
        return titles

    def _add_indexes(self, titles: list[list[int]]) -> None:
        from bm25s import BM25

        if not self._vocabulary:
            return
        n = len(self._words)
        for width, _ in self.weights.widths:
            reach = width // 2
            passages = [
                [word for words in self._words[max(0, b - reach) : b + reach + 1] for word in words]
                for b in range(n)
            ]
            self._indexes[width] = BM25(k1=1.5, b=0.75)
            self._indexes[width].index((passages, self._vocabulary), show_progress=False)
        if any(titles):
            # A title says a word once: saturate early, forgive length.
            self._indexes[0] = BM25(k1=0.8, b=0.3)
            self._indexes[0].index((titles, self._vocabulary), show_progress=False)

    def _add_densities(self) -> None:
        self._density: dict[AnchorKind, FloatArray] = {}
        for kind in AnchorKind:
            counts = np.zeros(len(self._rows), dtype=np.float32)
            for anchor in self.anchors.of_kind(kind):
                counts[self._block(anchor.start)] += 1
            self._density[kind] = np.minimum(smooth(counts, 1.0) / 0.4, 1).astype(np.float32)

    def scores(self, question: str, signals: Sequence[tuple[float, FloatArray]] = ()) -> FloatArray:
        """[n] match of each block with `question`, 0 to 1, the best block 1; all 0 where nothing matches.

        `signals` are further (weight, [n] scores of 0 to 1) to be added before the final normalisation.
        """
        result = np.zeros(self.size, dtype=np.float32)
        if len(self._rows) == 0:
            return result
        score = self._with_links(self._with_anchors(question, unit(self._by_words(question))))
        for weight, signal in signals:
            score = score + weight * signal[self._rows]
        result[self._rows] = unit(score)
        return result

    def _by_words(self, question: str) -> FloatArray:
        stems = frozenset(word for word, _ in tokenize(question))
        weights = {self._vocabulary[w]: 1.0 for w in sorted(stems) if w in self._vocabulary}
        if self.weights.synonym:
            for word in sorted(expand(stems)):
                if word in self._vocabulary:
                    weights[self._vocabulary[word]] = self.weights.synonym
        score = self._bm25(weights)
        if not self.weights.feedback or not score.any():
            return score
        return score + self._bm25(self._feedback(score, weights))

    def _bm25(self, weights: dict[int, float]) -> FloatArray:
        """[rows] weighted sum of BM25 over all indexes."""
        total = np.zeros(len(self._rows), dtype=np.float32)
        shares = {**dict(self.weights.widths), 0: self.weights.title}
        for width, index in self._indexes.items():
            share = shares.get(width, 0.0)
            for word, weight in weights.items() if share else ():
                total += share * weight * index.get_scores_from_ids([word])
        return total

    def _feedback(self, score: FloatArray, known: dict[int, float]) -> dict[int, float]:
        """Weights of the most telling words of the five best blocks (after RM3, Lavrenko and Croft 2001)."""
        gains: dict[int, float] = {}
        for block in np.argsort(-score, kind="stable")[:5]:
            for word in set(self._words[block]):
                gains[word] = gains.get(word, 0.0) + float(score[block] * self._idf[word])
        # A word that only one block uses leads nowhere else.
        best = sorted(
            ((gain, word) for word, gain in gains.items() if self._frequency[word] > 1), reverse=True
        )[:15]
        return {word: self.weights.feedback * gain / best[0][0] for gain, word in best if word not in known}

    def _with_anchors(self, question: str, score: FloatArray) -> FloatArray:
        kinds = asked_kinds(question) & _TELLING_KINDS
        if kinds:
            density = self._asked_density(kinds)
            score = score * (1 + self.weights.anchor_factor * density) + self.weights.anchor * density
        for asked in find_anchors(question):
            if asked.kind is AnchorKind.TERM:
                continue
            hits = np.zeros(len(self._rows), dtype=np.float32)
            for anchor in self.anchors.of_value(asked.value):
                # The clause itself, not the places that mention it, is what a clause number asks for.
                hits[self._block(anchor.start)] = 0.3 if anchor.kind is AnchorKind.REFERENCE else 1.0
            score = score + self.weights.value * np.maximum(
                hits, 0.8 * np.roll(hits, 1) * (np.arange(len(hits)) > 0)
            )
        if _ABOUT_DOCUMENT.search(question):
            score = score + self.weights.head * np.exp(-(self._starts - self._starts[0]) / 600)
        return score.astype(np.float32)

    def _asked_density(self, kinds: frozenset[AnchorKind]) -> FloatArray:
        """[rows] the largest density over the kinds."""
        density: FloatArray = np.max([self._density[kind] for kind in sorted(kinds)], axis=0)
        return density

    def _with_links(self, score: FloatArray) -> FloatArray:
        if not self.weights.link:
            return score
        return (score + self.weights.link * self.links.spread(score, LINKS)).astype(np.float32)
