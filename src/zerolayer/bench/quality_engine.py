"""The real scheduler in the quality bench: blocks in tiers, recall turn by turn, compact positions, lossy codec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from zerolayer.bench.quality_cache import FullCache, Reference, hidden_states
from zerolayer.config import Settings
from zerolayer.decision.registry import create_policy
from zerolayer.errors import StoreFullError
from zerolayer.execution.codecs import BlockKV, get_codec
from zerolayer.execution.tiers import BlockRecord, DiskTier, HostTier, TierHierarchy
from zerolayer.perception.key_bounds import KeyBounds
from zerolayer.perception.recall import Signals
from zerolayer.runtime.answering import FAULT_ROOM
from zerolayer.runtime.working_set import SchedulerSettings
from zerolayer.scheduler import Scheduler

if TYPE_CHECKING:
    import torch

    from zerolayer.documents.stream import DocumentStream
    from zerolayer.engines.hf.engine import HFEngine

CAPACITY = 4 << 30
"""Bytes of each of the bench's own tiers: nothing is refused."""


@dataclass(frozen=True, slots=True)
class ScheduledTurn:
    """What one turn of the scheduler gave."""

    logits: torch.Tensor  # [targets, vocabulary] of the reference's answer, teacher-forced
    answer_ids: list[int]  # its own greedy answer
    visible: float  # share of the document's blocks that the forced answer saw
    knit_tokens: int


@contextmanager
def empty_tiers() -> Iterator[TierHierarchy]:
    """Host and disk tiers that are nobody else's and vanish behind the bench."""
    with TemporaryDirectory(prefix="zerolayer-quality-") as directory:
        yield TierHierarchy(HostTier(CAPACITY), DiskTier(Path(directory), CAPACITY), _no_room)


def _no_room(needed: int) -> None:
    raise StoreFullError(
        f"the bench's tiers of {CAPACITY} bytes have no room for {needed} more; use fewer tokens"
    )


def key_bounds(cache: FullCache) -> KeyBounds:
    """Bounds of every block's keys, as they were prefilled in full sight."""
    geometry = cache.engine.geometry
    bounds = KeyBounds(geometry.layers, geometry.kv_heads, geometry.head_dim, cache.blocks)
    for block in range(cache.blocks):
        keys, _ = cache.arena.read(block)
        bounds.observe(block, keys.float().cpu().numpy())
    return bounds


def store(cache: FullCache, tiers: TierHierarchy, block_ids: Sequence[str], codec: str) -> None:
    """Write all blocks of the full cache behind, as a session that read them in full sight would have."""
    geometry, encoder = cache.engine.geometry, get_codec(codec)
    bounds = KeyBounds(geometry.layers, geometry.kv_heads, geometry.head_dim, cache.blocks)
    for block, block_id in enumerate(block_ids):
        keys, values = (tensor.float().cpu().numpy() for tensor in cache.arena.read(block))
        record = BlockRecord(encoder.encode(BlockKV(keys, values)), bounds.observe(block, keys), codec)
        tiers.write_behind(block_id, record)


def sized(settings: Settings, count: int, question_tokens: int) -> SchedulerSettings:
    """Room for `count` blocks of the document in sight, beside a question and its answer."""
    width = settings.block_tokens
    tail = -(-(question_tokens + settings.max_new_tokens) // width) + FAULT_ROOM
    return SchedulerSettings(
        slots=max(count, 2) + tail,
        block_tokens=width,
        chunk_tokens=settings.chunk_tokens,
        codec=settings.codec,
        knit_share=settings.knit_share,
        knit_match=settings.knit_match,
        attend_blocks=max(1, count - 1),
        max_new_tokens=settings.max_new_tokens,
    )


def conversation(
    engine: HFEngine,
    stream: DocumentStream,
    tiers: TierHierarchy,
    sizes: SchedulerSettings,
    policy: str,
    turns: Sequence[tuple[Reference, Signals]],
) -> list[ScheduledTurn]:
    """All turns in order, once teacher-forced and once with greedy answers, each from a cold device.

    What `tiers` do not hold is read first, in the memory that `sizes` allow. Knits are forgotten afterwards.
    """
    ids = [block.id for block in stream.blocks]
    forced, free = (
        Scheduler(engine, tiers, create_policy(policy), stream.token_ids, ids, sizes) for _ in range(2)
    )
    engine.attach(forced.arena)
    forced.restore()
    while forced.read_chunk():
        pass
    scored: list[Any] = []
    for reference, signals in turns:
        with hidden_states(engine) as states:
            result = forced.turn(reference.question_ids, signals, forced=reference.targets[:-1])
        visible = len(result.attended.blocks) / len(ids)
        scored.append((_logits(engine, states, len(reference.targets)), visible, result.metrics.knit_tokens))
    forced.working_set.forget_knits()
    engine.attach(free.arena)
    free.restore()
    answers = [free.turn(reference.question_ids, signals).token_ids for reference, signals in turns]
    free.working_set.forget_knits()
    return [
        ScheduledTurn(logits, answer, visible, knit_tokens)
        for (logits, visible, knit_tokens), answer in zip(scored, answers, strict=True)
    ]


def _logits(engine: HFEngine, states: list[torch.Tensor], targets: int) -> torch.Tensor:
    """[targets, vocabulary]: the question's last token, then the forced tokens, which are the last two passes."""
    import torch

    with torch.inference_mode():
        last = [states[-1][0, -1:]] if targets == 1 else [states[-2][0, -1:], states[-1][0]]
        logits: torch.Tensor = engine.model.lm_head(torch.cat(last)).float()
    return logits
