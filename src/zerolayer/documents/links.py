"""Semantic links: blocks that share an entity, and blocks that refer to a clause, as one sparse graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.documents.anchors import Anchor, AnchorIndex, AnchorKind, find_anchors
from zerolayer.documents.clauses import ClauseMap
from zerolayer.documents.mentions import find_names
from zerolayer.documents.structure import Heading, find_headings


class LinkKind(IntEnum):
    """Why two blocks are linked."""

    AMOUNT = 0  # both hold this amount, and so on
    DATE = 1
    DURATION = 2
    PERCENT = 3
    CONTACT = 4  # e-mail, phone, address on the web
    IDENTIFIER = 5
    PARTY = 6
    TERM = 7  # both use this defined term
    DEFINITION = 8  # from the use of a term to its definition
    REFERENCE = 9  # from a mention of a clause to the clause
    REFERRED = 10  # from a clause to where it is mentioned


_ENTITIES: Mapping[AnchorKind, LinkKind] = {
    AnchorKind.AMOUNT: LinkKind.AMOUNT,
    AnchorKind.DATE: LinkKind.DATE,
    AnchorKind.DURATION: LinkKind.DURATION,
    AnchorKind.PERCENT: LinkKind.PERCENT,
    AnchorKind.EMAIL: LinkKind.CONTACT,
    AnchorKind.PHONE: LinkKind.CONTACT,
    AnchorKind.URL: LinkKind.CONTACT,
    AnchorKind.IDENTIFIER: LinkKind.IDENTIFIER,
}
# A clause of a statute or of another contract is not one of this document.
_OF_ANOTHER = re.compile(
    r"(?:\([A-Za-z0-9]{1,4}\)){0,4},?[ \n]{1,2}(?:of|under)[ \n](?:the[ \n])?(?:[A-Z][\w&.’'-]{0,30}[ \n]){0,7}"
    r"(?:Act|Code|Laws?|Rules?|Regulations?|Directive|Statutes?|Treaty)\b"
)
_LONGEST_TARGET = 12
_FADE = 0.85


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What keeps the graph small: an entity of more blocks than this links none of them ("the Company")."""

    largest: int = 24  # blocks
    share: float = 0.08  # of all blocks, but at least four


@dataclass(frozen=True, slots=True)
class Chunk:
    """All blocks that share an entity, in document order. `weight` is its rarity, 0 to 1."""

    kind: LinkKind
    entity: str
    blocks: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class LinkGraph:
    """Directed links between the `num_blocks` blocks of a text, sorted by the block that they lead to.

    Link i leads from the block `rows[i]` to `cols[i]`; links into block b are those from `starts[b]` up to
    `starts[b + 1]`. A shared entity links both ways. Weights are 0 to 1: log(n / blocks with it) / log(n), the
    inverse document frequency scaled to 1 for what only one of n blocks has.
    """

    num_blocks: int
    rows: IntArray  # [links]
    cols: IntArray  # [links]
    weights: FloatArray  # [links]
    kinds: IntArray  # [links] LinkKind
    starts: IntArray  # [num_blocks + 1]
    entities: tuple[Chunk, ...]

    @classmethod
    def build(
        cls,
        text: str,
        spans: Sequence[tuple[int, int]],
        anchors: Sequence[Anchor] | None = None,
        headings: list[Heading] | None = None,
        limits: LinkLimits | None = None,
    ) -> LinkGraph:
        """The links between `spans` [n, 2], the (start, end) characters of blocks or paragraphs, in text order.

        `anchors` and `headings` of the text save finding them again. Linear in the text for bounded `limits`.
        """
        headings = find_headings(text) if headings is None else headings
        index = AnchorIndex(find_anchors(text, headings) if anchors is None else anchors)
        limits = limits or LinkLimits()
        bounds = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
        blocks = _Blocks(bounds)
        most = min(limits.largest, max(4, round(limits.share * blocks.filled)))
        postings = _Postings(len(bounds))
        _add_values(postings, index, bounds)
        definitions = _add_names(postings, text, index, blocks)
        chunks, links = postings.link(most, blocks.filled)
        links += [_definitions(postings, definitions, blocks.filled)]
        links += _references(text, index, ClauseMap(text, headings), blocks)
        return cls._sorted(len(bounds), [link for link in links if link.shape[1]], chunks)

    @classmethod
    def _sorted(cls, n: int, links: list[FloatArray], chunks: tuple[Chunk, ...]) -> LinkGraph:
        """`links`: arrays [4, any] of row, column, weight and kind."""
        every = np.concatenate(links, axis=1) if links else np.zeros((4, 0))
        every = every[:, every[0] != every[1]]
        every = every[:, np.lexsort((every[3], every[0], every[1]))]
        cols = every[1].astype(np.int64)
        return cls(
            n,
            every[0].astype(np.int64),
            cols,
            every[2].astype(np.float32),
            every[3].astype(np.int64),
            np.searchsorted(cols, np.arange(n + 1)),
            chunks,
        )

    def spread(self, scores: FloatArray, weights: Mapping[LinkKind, float] | None = None) -> FloatArray:
        """[n] what each block receives: the largest of score × link weight over the links into it.

        `weights` multiplies the links of each kind; a kind that it does not name counts nothing, and without
        `weights` all count alike. A block's own score is not part of what it receives.
        """
        received = np.zeros(self.num_blocks, dtype=np.float32)
        if len(self.rows) == 0:
            return received
        passed = scores[self.rows] * self.weights
        if weights is not None:
            of_kind = np.zeros(len(LinkKind), dtype=np.float32)
            for kind, weight in weights.items():
                of_kind[kind] = weight
            passed = passed * of_kind[self.kinds]
        filled = np.flatnonzero(self.starts[1:] > self.starts[:-1])
        received[filled] = np.maximum.reduceat(passed, self.starts[filled])
        return received

    def of(self, block: int) -> list[tuple[int, LinkKind, float]]:
        """(block, kind, weight) of the links that lead from `block`."""
        found = np.flatnonzero(self.rows == block)
        return [(int(self.cols[i]), LinkKind(self.kinds[i]), float(self.weights[i])) for i in found]

    def chunks(self, at_least: int = 2) -> tuple[Chunk, ...]:
        """Entities with the blocks that share them, the rarest first."""
        return tuple(chunk for chunk in self.entities if len(chunk.blocks) >= at_least)


class _Blocks:
    """From characters to blocks."""

    def __init__(self, bounds: IntArray) -> None:
        self._rows = np.flatnonzero(bounds[:, 1] > bounds[:, 0])
        self._starts = bounds[self._rows, 0]
        self._ends = bounds[self._rows, 1]
        self.filled = len(self._rows)

    def at(self, chars: Sequence[int]) -> IntArray:
        """Blocks that hold the characters; a character between two blocks belongs to the one before it."""
        places = np.searchsorted(self._starts, np.asarray(chars, dtype=np.int64), side="right") - 1
        found: IntArray = self._rows[np.maximum(places, 0)]
        return found

    def over(self, start: int, end: int) -> IntArray:
        """Blocks that overlap the characters `start` up to `end`."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        found: IntArray = self._rows[first : int(np.searchsorted(self._starts, end, side="left"))]
        return found


class _Postings:
    """Which entity stands in which block."""

    def __init__(self, num_blocks: int) -> None:
        self._n = num_blocks
        self.ids: dict[tuple[LinkKind, str], int] = {}
        self._entities: list[IntArray] = []
        self._blocks: list[IntArray] = []

    def id(self, kind: LinkKind, value: str) -> int:
        return self.ids.setdefault((kind, value), len(self.ids))

    def add(self, entities: Sequence[int] | IntArray, blocks: IntArray) -> None:
        self._entities.append(np.asarray(entities, dtype=np.int64))
        self._blocks.append(blocks)

    def pairs(self) -> tuple[IntArray, IntArray]:
        """Each (entity, block) once, by entity, then block."""
        if not self._entities:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        keys = np.unique(np.concatenate(self._entities) * self._n + np.concatenate(self._blocks))
        return keys // self._n, keys % self._n

    def link(self, most: int, filled: int) -> tuple[tuple[Chunk, ...], list[FloatArray]]:
        """Chunks of two to `most` blocks, and a link between any two blocks of one."""
        entities, blocks = self.pairs()
        size = np.bincount(entities, minlength=len(self.ids))
        begin = np.cumsum(size) - size
        rarity = _rarity(size, filled)
        names = list(self.ids)
        chosen = [int(e) for e in np.flatnonzero((size >= 2) & (size <= most))]
        chunks = [
            Chunk(*names[e], tuple(blocks[begin[e] : begin[e] + size[e]].tolist()), float(rarity[e]))
            for e in sorted(chosen, key=lambda e: (-rarity[e], names[e]))
        ]
        kept = np.isin(entities, chosen)
        mine, own = entities[kept], blocks[kept]
        count = size[mine]
        other = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - begin[mine], count)
        kinds = np.asarray([kind for kind, _ in names], dtype=np.int64)
        pairs = np.repeat(mine, count)
        links = np.stack([np.repeat(own, count), blocks[other], rarity[pairs], kinds[pairs]]).astype(
            np.float32
        )
        return tuple(chunks), [links]


def _rarity(size: IntArray, filled: int) -> FloatArray:
    weight: FloatArray = (
        np.log(max(filled, 2) / np.clip(size, 1, max(filled, 2))) / np.log(max(filled, 2))
    ).astype(np.float32)
    return weight


def _add_values(postings: _Postings, index: AnchorIndex, bounds: IntArray) -> None:
    over = index.over(bounds)
    ids = np.asarray(
        [
            postings.id(_ENTITIES[a.kind], a.value.lower()) if a.kind in _ENTITIES else -1
            for a in index.anchors
        ],
        dtype=np.int64,
    )
    if len(over.anchors):
        entities = ids[over.anchors]
        postings.add(entities[entities >= 0], over.spans[entities >= 0])


def _add_names(postings: _Postings, text: str, index: AnchorIndex, blocks: _Blocks) -> list[tuple[int, int]]:
    """Adds every use of a defined term and of a party; returns (entity, block of its definition)."""
    names: dict[str, tuple[LinkKind, int]] = {}
    for kind, link in ((AnchorKind.PARTY, LinkKind.PARTY), (AnchorKind.TERM, LinkKind.TERM)):
        for anchor in index.of_kind(kind):
            names.setdefault(anchor.value, (link, anchor.start))
    if not names or blocks.filled == 0:
        return []
    found = find_names(text, list(names))
    ids = {name: postings.id(kind, name) for name, (kind, _) in names.items()}
    postings.add([ids[name] for name, _ in found], blocks.at([at for _, at in found]))
    places = blocks.at([at for _, at in names.values()])
    return [
        (ids[name], int(place))
        for (name, (kind, _)), place in zip(names.items(), places, strict=True)
        if kind is LinkKind.TERM
    ]


def _definitions(postings: _Postings, definitions: list[tuple[int, int]], filled: int) -> FloatArray:
    """[4, links] from each block that uses a term to the one that defines it."""
    entities, blocks = postings.pairs()
    target = np.full(len(postings.ids), -1, dtype=np.int64)
    for entity, block in definitions:
        target[entity] = block
    used = target[entities] >= 0 if len(entities) else np.zeros(0, dtype=np.bool_)
    entities, blocks = entities[used], blocks[used]
    rarity = _rarity(np.bincount(entities, minlength=len(postings.ids)), filled)
    kinds = np.full(len(entities), int(LinkKind.DEFINITION))
    return np.stack([blocks, target[entities], rarity[entities], kinds]).astype(np.float32)


def _references(text: str, index: AnchorIndex, clauses: ClauseMap, blocks: _Blocks) -> list[FloatArray]:
    """Two arrays [4, links]: from mentions to the clauses that they name, and back.

    A clause's first blocks count most. Rarity here is that of the clause among all mentions' targets.
    """
    mentions = (
        [a for a in index.of_kind(AnchorKind.REFERENCE) if not _foreign(text, a)] if len(clauses) else []
    )
    if not mentions or blocks.filled == 0:
        return []
    named = [(blocks.at([a.start])[0], clauses.named(a.value, a.start)) for a in mentions]
    resolved = [(row, span) for row, span in named if span is not None]
    if not resolved:
        return []
    _, inverse, size = np.unique(
        np.asarray([span for _, span in resolved]), axis=0, return_inverse=True, return_counts=True
    )
    rarity = _rarity(size, blocks.filled)[inverse.reshape(-1)]
    links: list[tuple[int, int, float]] = []
    for (row, span), weight in zip(resolved, rarity, strict=True):
        for place, col in enumerate(blocks.over(*span)[:_LONGEST_TARGET]):
            links.append((int(row), int(col), float(weight) * _FADE**place))
    rows, cols, weights = np.asarray(links).T
    return [
        np.stack([a, b, weights, np.full(len(rows), int(kind))]).astype(np.float32)
        for a, b, kind in ((rows, cols, LinkKind.REFERENCE), (cols, rows, LinkKind.REFERRED))
    ]


def _foreign(text: str, mention: Anchor) -> bool:
    """True for a clause of another text: Section 501 of the Internal Revenue Code, 《公司法》第三条."""
    return (
        text[max(0, mention.start - 1) : mention.start] == "》"
        or _OF_ANOTHER.match(text, mention.end) is not None
    )
