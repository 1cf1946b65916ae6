"""What a block's text tells before any question is asked: where it stands, which anchors it holds, how rare its words.

Position and anchors predict what contracts are asked about; docs/signals.md has what each is worth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from zerolayer.core import DOCUMENT_FEATURES, FloatArray, IntArray
from zerolayer.documents.anchors import AnchorKind
from zerolayer.perception.lexical import LexicalIndex

_HEAD_CHARACTERS = 1500.0
"""Parties, title and date stand at the head: its share of a block falls to 1/e after so many characters."""

_CHINESE_SHARE = 0.3

_COLUMN = {name: column for column, name in enumerate(DOCUMENT_FEATURES)}
# Rare kinds (e-mail addresses) share the column of identifiers.
_ANCHOR_COLUMN = {kind: _COLUMN.get(kind.value, _COLUMN["identifier"]) for kind in AnchorKind}


def document_features(
    text: str, spans: Sequence[tuple[int, int]], lexical: LexicalIndex | None = None
) -> FloatArray:
    """`[blocks, DOCUMENT_FEATURES]` of a text's blocks; `spans` are their (start, end) characters, by start.

    `lexical`, the index of the same text and spans, saves reading them again.

    position: 0 to 1. head: exponential in the characters before the block. heading: a clause begins here.
    clause_age: log of the blocks since one began. words: their number per 100 characters. idf: mean over the
    words, in standard deviations from the document's mean. Anchors: log(1 + number) of each kind. NaN for a
    block with an empty span (template tokens).
    """
    features = np.full((len(spans), len(DOCUMENT_FEATURES)), np.nan, dtype=np.float32)
    rows: IntArray = np.asarray([i for i, (a, b) in enumerate(spans) if b > a], dtype=np.int64)
    if len(rows) == 0:
        return features
    starts: IntArray = np.asarray([spans[i][0] for i in rows], dtype=np.int64)
    ends: IntArray = np.asarray([spans[i][1] for i in rows], dtype=np.int64)
    found = np.zeros((len(rows), len(DOCUMENT_FEATURES)), dtype=np.float32)
    found[:, _COLUMN["position"]] = starts / max(len(text), 1)
    found[:, _COLUMN["head"]] = np.exp(-starts / _HEAD_CHARACTERS)
    lexical = lexical or LexicalIndex(text, spans)
    _clauses(found, [_block(starts, heading.start) for heading in lexical.headings])
    _words(found, lexical.block_words, starts, ends)
    for anchor in lexical.anchors.anchors:
        found[_block(starts, anchor.start), _ANCHOR_COLUMN[anchor.kind]] += 1
    counts = slice(_COLUMN["clause"], None)
    found[:, counts] = np.log1p(found[:, counts])
    features[rows] = found
    return features


def language_of(text: str) -> str:
    """`zh` where Chinese characters are a good part of the letters, else `en`: the fits that there are."""
    sample = text[:200_000]
    chinese = sum("\u4e00" <= character <= "\u9fff" for character in sample)
    letters = sum(character.isalpha() for character in sample)
    return "zh" if letters and chinese / letters > _CHINESE_SHARE else "en"


def _block(starts: IntArray, char: int) -> int:
    return max(0, int(np.searchsorted(starts, char, side="right")) - 1)


def _clauses(found: FloatArray, beginnings: list[int]) -> None:
    found[sorted(set(beginnings)), _COLUMN["heading"]] = 1.0
    ordered = sorted(set(beginnings))
    for block in range(len(found)):
        last = bisect_right(ordered, block) - 1
        found[block, _COLUMN["clause_age"]] = np.log1p(block - (ordered[last] if last >= 0 else 0))


def _words(found: FloatArray, words: list[list[int]], starts: IntArray, ends: IntArray) -> None:
    """Words a block and how rare they are among the blocks (Robertson and Sparck Jones 1976)."""
    frequency: dict[int, int] = {}
    for held in words:
        for word in set(held):
            frequency[word] = frequency.get(word, 0) + 1
    n = len(words)
    rarity = {word: np.log1p((n - count + 0.5) / (count + 0.5)) for word, count in frequency.items()}
    idf = np.array([np.mean([rarity[w] for w in held]) if held else np.nan for held in words])
    centre, spread = (np.nanmean(idf), np.nanstd(idf)) if np.isfinite(idf).any() else (0.0, 0.0)
    found[:, _COLUMN["words"]] = [100.0 * len(held) for held in words] / np.maximum(ends - starts, 1)
    found[:, _COLUMN["idf"]] = np.nan_to_num((idf - centre) / max(float(spread), 1e-6))
