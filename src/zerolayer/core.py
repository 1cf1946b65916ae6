"""The vocabulary: what a block, a grade, a tier, a turn and a plan are. No torch, no I/O.

Terms follow docs/architecture.md. Everything here is plain data; numpy arrays hold per-block values
so that a policy costs one vectorised expression for any number of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

BLOCK_TOKENS = 64
"""Default number of tokens in a block."""

SINK_TOKENS = 4
"""Attention sinks: the first tokens of a stream (StreamingLLM, arXiv:2309.17453)."""

KEY_FEATURES = (
    "dispersion", "dispersion_min", "dispersion_max", "key_norm", "retrieval_dispersion", "retrieval_key_norm",
    "distinctiveness",
)  # fmt: skip
"""What a block's keys tell (perception.dispersion)."""

DOCUMENT_FEATURES = (
    "position", "head", "heading", "clause_age", "words", "idf",
    "clause", "reference", "amount", "date", "duration", "percent", "party", "term", "identifier",
)  # fmt: skip
"""What a block's text tells (perception.block_features)."""

BLOCK_FEATURES = (*KEY_FEATURES, *DOCUMENT_FEATURES)
"""Columns of `BlockTable.features`."""


class Grade(IntEnum):
    """How much a block deserves the fastest tier. A grade never means deletion."""

    P0 = 0  # must stay on the device
    P1 = 1  # prefer the device
    P2 = 2  # compressed in host memory, candidate for prefetch
    P3 = 3  # cold: NVMe


class Tier(StrEnum):
    """Where a copy of a block lives."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Block:
    """A fixed number of consecutive tokens of one stream, all layers: the unit that is graded and moved.

    `id` is a chained hash (parent id, token ids, model, dtype, how it was computed, tenant salt), 32 hex digits.
    Character offsets and pages refer to the document; a block of template tokens has an empty span.
    """

    id: str
    index: int
    token_start: int
    token_count: int
    char_start: int
    char_end: int
    page_first: int
    page_last: int


@dataclass(slots=True)
class BlockTable:
    """What is known of the blocks of one session, one numpy element a block, in document order.

    This is all that a policy sees: no tensor, no text. `now` is a logical clock that advances with every touch.
    """

    capacity: int  # blocks that the device may hold for this session
    block_tokens: int
    tokens: IntArray  # [n] tokens in the block
    resident: BoolArray  # [n] on the device
    pinned: BoolArray  # [n] never a victim (sinks, pins, P0)
    grade: IntArray  # [n] Grade values
    last_touch: IntArray  # [n] logical time of the last use or load, -1 never
    last_used_turn: IntArray  # [n] -1 never
    use_count: IntArray  # [n] turns that used the block
    attention: FloatArray  # [n] decayed attention mass observed so far
    match: FloatArray  # [n] match of the current question, 0 to 1; zeros outside a turn
    forecast: FloatArray  # [n] probability that the next question needs the block; zeros without a forecast
    features: FloatArray  # [n, BLOCK_FEATURES] what keys and text tell; NaN where it is not known
    turn: int = 0
    now: int = 0

    @classmethod
    def create(cls, tokens: Sequence[int], capacity: int, block_tokens: int = BLOCK_TOKENS) -> BlockTable:
        """A table of `len(tokens)` blocks, none of them resident."""
        n = len(tokens)
        return cls(
            capacity=capacity,
            block_tokens=block_tokens,
            tokens=np.asarray(tokens, dtype=np.int64),
            resident=np.zeros(n, dtype=np.bool_),
            pinned=np.zeros(n, dtype=np.bool_),
            grade=np.full(n, int(Grade.P2), dtype=np.int64),
            last_touch=np.full(n, -1, dtype=np.int64),
            last_used_turn=np.full(n, -1, dtype=np.int64),
            use_count=np.zeros(n, dtype=np.int64),
            attention=np.zeros(n, dtype=np.float32),
            match=np.zeros(n, dtype=np.float32),
            forecast=np.zeros(n, dtype=np.float32),
            features=np.full((n, len(BLOCK_FEATURES)), np.nan, dtype=np.float32),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def resident_count(self) -> int:
        """Number of blocks on the device."""
        return int(self.resident.sum())

    @property
    def free(self) -> int:
        """Blocks that still fit on the device."""
        return self.capacity - self.resident_count

    def grow(self, count: int) -> None:
        """Append `count` blocks of full length that nothing is known of (a conversation goes on)."""
        more = BlockTable.create([self.block_tokens] * count, self.capacity, self.block_tokens)
        for name in (
            "tokens", "resident", "pinned", "grade", "last_touch", "last_used_turn", "use_count", "attention", "match",
            "forecast", "features",
        ):  # fmt: skip
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))

    def touch(self, indices: Sequence[int] | IntArray) -> None:
        """Advance the clock once for each block, in order (the last one is the most recent)."""
        idx = np.asarray(indices, dtype=np.int64)
        self.last_touch[idx] = self.now + 1 + np.arange(len(idx))
        self.now += len(idx)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants done: evict first, then load, then knit. Indices into the block table."""

    evict: tuple[int, ...] = ()
    load: tuple[int, ...] = ()
    knit: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A place in a document that the answer attended to."""

    document: str
    page: int  # 1-based
    clause: str  # "12.3", "第四十二条", or "" where the text has no numbering
    quote: str
    char_start: int
    char_end: int
    weight: float  # share of the answer's attention, 0 to 1


@dataclass(slots=True)
class TurnMetrics:
    """What one turn cost and moved. Names and units are those of metrics.py."""

    status: str = "active"  # active | degraded | disabled
    reason: str = ""
    policy: str = ""
    turn: int = 0
    question_tokens: int = 0
    answer_tokens: int = 0
    recalled_blocks: int = 0
    fault_blocks: int = 0
    evicted_blocks: int = 0
    prefetched_blocks: int = 0
    wasted_prefetches: int = 0
    knit_tokens: int = 0
    recomputed_tokens: int = 0
    discarded_tokens: int = 0
    corrupt_blocks: int = 0
    prefilled_document_tokens: int = 0
    device_bytes: int = 0
    ttft_s: float = 0.0
    recall_s: float = 0.0
    knit_s: float = 0.0
    decode_s_per_token: float = 0.0
    effective_context_utilization: float = 0.0
    calibration_drift: float | None = None  # None where the policy predicts no use
    grade_counts: dict[str, int] = field(default_factory=dict)
    tier_tokens: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """An answer, where it came from, and what it cost."""

    question: str
    text: str
    citations: list[Citation]
    metrics: TurnMetrics
    early: bool = False  # answered before the document was read, from the blocks that the question points at


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a document has been read; handed to a progress callback after every chunk."""

    tokens_done: int
    tokens_total: int
    tokens_per_s: float
    from_storage: int  # of tokens_done, how many came from storage
