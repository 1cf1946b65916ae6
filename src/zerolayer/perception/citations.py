"""Where an answer came from: the places in the document that its tokens attended to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zerolayer.core import BoolArray, Citation, FloatArray
from zerolayer.documents.stream import DocumentStream

MOST_CITATIONS = 3
LEAST_SHARE = 0.05
"""A further page is cited when its weight is at least this share of the first one's."""

QUOTE_CHARACTERS = 240


class AttendedBlocks(Protocol):
    """What was in sight of an answer, and how much it was attended to."""

    blocks: list[int]
    mass: FloatArray  # [layers, heads, blocks, block_tokens], of the answer's tokens
    question_mass: FloatArray  # the same, of the question's tokens


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    weight: float


def cite(
    stream: DocumentStream, attended: AttendedBlocks, match: FloatArray, heads: FloatArray | None = None
) -> list[Citation]:
    """The pages that carried the answer, best first, at most three; at least one where anything was in sight.

    `match` [blocks] is what recall expected of each block; `heads` [layers, heads] weighs retrieval heads.
    """
    rows = token_weights(attended, _document_rows(stream, attended), heads)
    blocks = np.asarray(attended.blocks, dtype=np.int64)
    evidence = block_evidence(rows, match[blocks])
    by_page: dict[tuple[str, int], list[_Place]] = {}
    for i in np.argsort(-evidence, kind="stable"):
        if blocks[i] >= len(stream.blocks) or stream.blocks[blocks[i]].char_end == 0:
            continue  # a turn of the conversation, or nothing but the prompt's frame
        start, end = _quote(stream, int(blocks[i]), rows[i])
        document, offset = stream.locate(start)
        by_page.setdefault((document.name, document.page_at(offset)), []).append(
            _Place(start, end, float(evidence[i]))
        )
    ranked = sorted(by_page.values(), key=lambda places: -places[0].weight)[:MOST_CITATIONS]
    kept = [places for places in ranked if places[0].weight >= LEAST_SHARE * ranked[0][0].weight]
    total = sum(places[0].weight for places in kept) or 1.0
    return [_citation(stream, places[0], places[0].weight / total) for places in kept]


def token_weights(attended: AttendedBlocks, rows: BoolArray, heads: FloatArray | None = None) -> FloatArray:
    """[blocks, block_tokens] attention of question and answer on the document tokens `rows`; every head sums to 1.

    Heads are weighed, not added: one that spreads its attention evenly says little, and most do.
    """
    mass = (attended.mass + attended.question_mass) * rows
    share = mass / np.maximum(mass.sum(axis=(2, 3), keepdims=True), 1e-9)
    if heads is None:
        result: FloatArray = share.mean(axis=(0, 1))
        return result
    weighted: FloatArray = np.einsum("lhbt,lh->bt", share, heads / max(float(heads.sum()), 1e-9))
    return weighted


def _document_rows(stream: DocumentStream, attended: AttendedBlocks) -> BoolArray:
    """[blocks, block_tokens] tokens of a document: attention on the prompt's frame (the sinks) means nothing."""
    width = attended.mass.shape[3]
    rows = np.zeros((len(attended.blocks), width), dtype=np.bool_)
    for i, block in enumerate(attended.blocks):
        spans = stream.spans[block * width : (block + 1) * width]
        rows[i, : len(spans)] = [end > start for start, end in spans]
    return rows


def block_evidence(rows: FloatArray, match: FloatArray) -> FloatArray:
    """[blocks] weight of each block in sight: attention, times how well the block matches the question.

    The match is the prior, the attention the evidence. A small model's attention is noisy, so it counts by its square
    root, and the match by its square: attention alone, and match alone, name the right page less often (docs/log.md).
    """
    attention = rows.sum(axis=1)
    evidence: FloatArray = (np.sqrt(attention) * (0.02 + match) ** 2).astype(np.float32)
    return evidence


def _quote(stream: DocumentStream, block: int, weights: FloatArray) -> tuple[int, int]:
    """Characters of the sentence in the block that was attended to most, per character."""
    whole = stream.blocks[block]
    first = whole.token_start
    document, offset = stream.locate(whole.char_start)
    base = whole.char_start - offset
    sentences = document.sentences(offset, min(whole.char_end - base, len(document.text)))
    best, best_density = (whole.char_start, whole.char_end), -1.0
    for start, end in sentences:
        inside = [
            float(weights[i])
            for i in range(whole.token_count)
            if start <= stream.spans[first + i][0] - base < end and stream.spans[first + i][1] > 0
        ]
        density = sum(inside) / (len(inside) + 8)  # so that a heading of two words does not win
        if inside and density > best_density:
            best, best_density = (base + start, base + end), density
    return best


def _citation(stream: DocumentStream, place: _Place, weight: float) -> Citation:
    document, offset = stream.locate(place.start)
    length = min(place.end - place.start, QUOTE_CHARACTERS)
    quote = " ".join(stream.text[place.start : place.start + length].split())
    return Citation(
        document.name,
        document.page_at(offset),
        document.clause_at(offset),
        quote + (" …" if length < place.end - place.start else ""),
        offset,
        offset + place.end - place.start,
        weight,
    )
