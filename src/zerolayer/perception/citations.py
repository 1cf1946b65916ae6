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

ANSWER_SHARE = 0.4
"""Weight of the answer's own tokens against those of the question's pass."""


class AttendedBlocks(Protocol):
    """What was in sight of an answer, and how much it was attended to."""

    blocks: list[int]
    mass: FloatArray  # [layers, heads, blocks, block_tokens], of the answer's tokens
    question_mass: FloatArray  # the same, of the question's tokens


@dataclass(slots=True)
class _Page:
    """Evidence for one page, and where on it the strongest block's best sentence stands."""

    weight: float = 0.0
    strongest: float = -1.0
    start: int = 0
    end: int = 0


def cite(
    stream: DocumentStream, attended: AttendedBlocks, match: FloatArray, heads: FloatArray | None = None
) -> list[Citation]:
    """The pages that carried the answer, best first, at most three; at least one where anything was in sight.

    `match` [blocks] is what recall expected of each block; `heads` [layers, heads] weighs retrieval heads.
    """
    rows = token_weights(attended, _document_rows(stream, attended), heads)
    blocks = np.asarray(attended.blocks, dtype=np.int64)
    evidence = block_evidence(rows, match[blocks])
    pages: dict[tuple[str, int], _Page] = {}
    for i, block in enumerate(blocks):
        if block >= len(stream.blocks) or stream.blocks[block].char_end == 0:
            continue  # a turn of the conversation, or nothing but the prompt's frame
        for number, (key, start, end, page_start) in enumerate(parts := _pages_of(stream, int(block))):
            page = pages.setdefault(key, _Page())
            page.weight += float(evidence[i]) / len(parts)
            if evidence[i] > page.strongest or (evidence[i] == page.strongest and number == 0):
                page.strongest = float(evidence[i])
                page.start, page.end = _quote(stream, int(block), rows[i], (start, end), page_start)
    ranked = sorted(pages.values(), key=lambda page: -page.weight)[:MOST_CITATIONS]
    kept = [page for page in ranked if page.weight >= LEAST_SHARE * ranked[0].weight]
    total = sum(page.weight for page in kept) or 1.0
    return [_citation(stream, page, page.weight / total) for page in kept]


def token_weights(attended: AttendedBlocks, rows: BoolArray, heads: FloatArray | None = None) -> FloatArray:
    """[blocks, block_tokens] attention of the turn on the document tokens `rows`; every head sums to 1.

    Heads are weighed, not added: one that spreads its attention evenly says little, and most do. The pass over the
    question, whose last token begins the answer, counts more than the tokens after it: a small model's later tokens
    attend to its own words.
    """
    question = _by_head(attended.question_mass, rows, heads)
    answer = _by_head(attended.mass, rows, heads)
    return (1 - ANSWER_SHARE) * question + ANSWER_SHARE * answer


def _by_head(mass: FloatArray, rows: BoolArray, heads: FloatArray | None) -> FloatArray:
    seen = mass * rows
    share = seen / np.maximum(seen.sum(axis=(2, 3), keepdims=True), 1e-9)
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

    The match is the prior, the attention the evidence. A small model's attention is noisy, so it counts by less than
    its square root, and the match by more than itself: either alone names the right page less often (docs/log.md).
    """
    attention = rows.sum(axis=1)
    evidence: FloatArray = (attention**0.35 * (0.02 + match) ** 1.5).astype(np.float32)
    return evidence


def _pages_of(stream: DocumentStream, block: int) -> list[tuple[tuple[str, int], int, int, int]]:
    """(document, page), start, end and the page's start, of each part of a block that lies on one page."""
    whole = stream.blocks[block]
    parts, start = [], whole.char_start
    while start < whole.char_end:
        document, offset = stream.locate(start)
        page = next((p for p in document.pages if p.number == document.page_at(offset)), document.pages[-1])
        end = min(whole.char_end, max(start + 1, start - offset + page.char_end))
        parts.append(((document.name, page.number), start, end, start - offset + page.char_start))
        start = end
    return parts


def _quote(
    stream: DocumentStream, block: int, weights: FloatArray, part: tuple[int, int], page_start: int
) -> tuple[int, int]:
    """Characters of the sentence of a block's part that was attended to most, per token; never off its page."""
    first, last = part
    whole = stream.blocks[block]
    document, offset = stream.locate(first)
    base = first - offset
    best, best_density = (first, last), -1.0
    spans = stream.spans[whole.token_start : whole.token_start + whole.token_count]
    for start, end in document.sentences(offset, min(last - base, len(document.text))):
        start, end = max(base + start, page_start), base + end
        inside = [float(w) for w, (a, b) in zip(weights, spans, strict=False) if b > a and start <= a < end]
        density = sum(inside) / (len(inside) + 8)  # so that a heading of two words does not win
        if inside and density > best_density:
            best, best_density = (start, end), density
    return best


def _citation(stream: DocumentStream, page: _Page, weight: float) -> Citation:
    document, offset = stream.locate(page.start)
    length = min(page.end - page.start, QUOTE_CHARACTERS)
    quote = " ".join(stream.text[page.start : page.start + length].split())
    return Citation(
        document.name,
        document.page_at(offset),
        document.clause_at(offset),
        quote + (" …" if length < page.end - page.start else ""),
        offset,
        offset + page.end - page.start,
        weight,
    )
