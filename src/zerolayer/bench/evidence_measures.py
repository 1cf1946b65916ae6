"""Signals of recall on a labelled contract, and the share of gold evidence that the best blocks of each keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128_hexdigest

from zerolayer.bench.common import bootstrap_interval
from zerolayer.config import cache_dir
from zerolayer.core import FloatArray
from zerolayer.learning.labelled import LabelledContract, LabelledQuestion, Wording
from zerolayer.perception.dense import encode_blocks
from zerolayer.perception.lexical import LexicalIndex, LexicalWeights
from zerolayer.perception.recall import RecallWeights, fuse
from zerolayer.perception.scores import smooth

if TYPE_CHECKING:
    from zerolayer.perception.dense import SentenceEncoder

SHARES = (5, 10, 25)
"""Percent of a contract's blocks."""

_NO_WORDS = LexicalWeights((), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
VARIANTS: dict[str, LexicalWeights] = {
    "bm25": replace(_NO_WORDS, widths=((1, 1.0),)),
    "bm25_widths": replace(_NO_WORDS, widths=LexicalWeights().widths),
    "bm25_anchors": replace(
        _NO_WORDS, widths=((1, 1.0),), anchor=0.2, anchor_factor=0.5, value=1.0, head=1.0
    ),
    "titles": replace(_NO_WORDS, title=1.0),
    "words_no_synonyms": LexicalWeights(synonym=0.0),
    "words_no_head": LexicalWeights(head=0.0),
    "words_no_anchors": LexicalWeights(anchor=0.0, anchor_factor=0.0, value=0.0),
    "words_no_links": LexicalWeights(link=0.0),
    "words_no_titles": LexicalWeights(title=0.0),
    "words": LexicalWeights(),
}
"""Lexical signals alone, and all of them but one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A contract cut into blocks of as many characters, with what does not depend on a question."""

    contract: LabelledContract
    spans: list[tuple[int, int]]
    index: LexicalIndex
    vectors: FloatArray | None  # [blocks, dimensions]

    @property
    def questions(self) -> list[LabelledQuestion]:
        """Those that have evidence."""
        return [question for question in self.contract.questions if question.evidence]

    def evidence(self, question: LabelledQuestion) -> FloatArray:
        """[blocks] characters of evidence."""
        counts = [question.evidence_in(start, end) for start, end in self.spans]
        return np.asarray(counts, dtype=np.float32)


def open_case(contract: LabelledContract, width: int, encoder: SentenceEncoder | None) -> Case:
    """Cut a contract into blocks of `width` characters and index it. Vectors are kept in the user's cache."""
    text = contract.text()
    spans = [(start, min(len(text), start + width)) for start in range(0, len(text), width)]
    vectors = None if encoder is None else _vectors(encoder, text, spans, width)
    return Case(contract, spans, LexicalIndex(text, spans), vectors)


def _vectors(encoder: SentenceEncoder, text: str, spans: list[tuple[int, int]], width: int) -> FloatArray:
    key = xxh3_128_hexdigest(f"{encoder.name}:{width}:{text}".encode())
    path: Path = cache_dir() / "vectors" / "bench" / f"{key}.npy"
    if path.is_file():
        kept: FloatArray = np.load(path).astype(np.float32)
        return kept
    vectors = encode_blocks(encoder, text, spans)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, vectors.astype(np.float16))
    return vectors


def scores(
    case: Case, question: str, asked: FloatArray | None, fusion: RecallWeights
) -> dict[str, FloatArray]:
    """[blocks] score of every signal for a question; `asked` is its sentence vector."""
    found = {name: case.index.reweighed(weights).scores(question) for name, weights in VARIANTS.items()}
    blocks = len(case.spans)
    nothing = np.zeros(blocks, dtype=np.float32)
    found["anchors"] = case.index.anchored(question)
    found["links"] = case.index.linked(found["bm25"])
    found["window"] = np.arange(blocks, dtype=np.float32)
    if case.vectors is not None and asked is not None:
        meaning = case.vectors @ asked
        found["meaning"] = smooth(meaning, fusion.meaning_sigma)
        known = case.index.signals(question, meaning)
        without = replace(known, words=found["words_no_synonyms"])
        found["fused_no_synonyms"] = fuse(without, nothing, fusion)
        found["fused"] = fuse(known, nothing, fusion)
    else:
        found["fused"] = found["words"]
    return found


def kept(score: FloatArray, evidence: FloatArray, percent: int) -> float:
    """Share of the evidence's characters in the best `percent` of the blocks, at least one. Ties: document order."""
    count = max(1, round(percent / 100 * len(evidence)))
    best = np.argsort(-score, kind="stable")[:count]
    return float(evidence[best].sum() / evidence.sum())


@dataclass(frozen=True, slots=True)
class Kept:
    """One question's result for one signal: share kept at each of SHARES."""

    contract: int
    category: str
    characters: float
    shares: tuple[float, ...]


def _questions(
    cases: Sequence[Case], wording: Wording, encoder: SentenceEncoder | None
) -> Iterator[tuple[int, LabelledQuestion, FloatArray, FloatArray | None]]:
    """Number of the case, question, [blocks] its evidence, and its sentence vector; those with evidence in a block."""
    texts = sorted({q.wording(wording) for case in cases for q in case.questions})
    asked = {} if encoder is None else dict(zip(texts, encoder.encode(texts), strict=True))
    for number, case in enumerate(cases):
        for question in case.questions:
            evidence = case.evidence(question)
            if evidence.any():
                yield number, question, evidence, asked.get(question.wording(wording))


def _kept(number: int, question: LabelledQuestion, evidence: FloatArray, score: FloatArray) -> Kept:
    shares = tuple(kept(score, evidence, percent) for percent in SHARES)
    return Kept(number, question.category, float(evidence.sum()), shares)


def measure(
    cases: Sequence[Case], wording: Wording, encoder: SentenceEncoder | None, fusion: RecallWeights
) -> dict[str, list[Kept]]:
    """Every question's result for every signal. `random` is what a random choice keeps on average."""
    rows: dict[str, list[Kept]] = {}
    for number, question, evidence, vector in _questions(cases, wording, encoder):
        for name, score in scores(cases[number], question.wording(wording), vector, fusion).items():
            rows.setdefault(name, []).append(_kept(number, question, evidence, score))
        blocks = len(evidence)
        by_chance = tuple(max(1, round(percent / 100 * blocks)) / blocks for percent in SHARES)
        chance = Kept(number, question.category, float(evidence.sum()), by_chance)
        rows.setdefault("random", []).append(chance)
    return rows


def measure_meaning(
    cases: Sequence[Case], wording: Wording, encoder: SentenceEncoder | None, candidates: Sequence[float]
) -> dict[float, list[Kept]]:
    """Every question's result of the fused score, for each candidate of `meaning_uncovered`."""
    rows: dict[float, list[Kept]] = {candidate: [] for candidate in candidates}
    for number, question, evidence, vector in _questions(cases, wording, encoder):
        case = cases[number]
        meaning = None if case.vectors is None or vector is None else case.vectors @ vector
        signals, nothing = case.index.signals(question.wording(wording), meaning), np.zeros_like(evidence)
        for candidate in candidates:
            score = fuse(signals, nothing, RecallWeights(meaning_uncovered=candidate))
            rows[candidate].append(_kept(number, question, evidence, score))
    return rows


def mean(rows: Sequence[Kept]) -> dict[str, float]:
    """Mean over questions, by percent."""
    values = np.asarray([row.shares for row in rows])
    return {str(percent): round(float(v), 4) for percent, v in zip(SHARES, values.mean(axis=0), strict=True)}


def pooled(rows: Sequence[Kept]) -> dict[str, float]:
    """Over all characters of evidence, so that a question with long evidence counts more."""
    values = np.asarray([row.shares for row in rows])
    weights = np.asarray([row.characters for row in rows])
    shares = np.average(values, axis=0, weights=weights)
    return {str(percent): round(float(v), 4) for percent, v in zip(SHARES, shares, strict=True)}


def interval(rows: Sequence[Kept], seed: int) -> dict[str, list[float]]:
    """95 % interval of the mean over contracts, by percent."""
    contracts = [row.contract for row in rows]
    intervals = {}
    for column, percent in enumerate(SHARES):
        low, high = bootstrap_interval([row.shares[column] for row in rows], contracts, seed)
        intervals[str(percent)] = [round(low, 4), round(high, 4)]
    return intervals
