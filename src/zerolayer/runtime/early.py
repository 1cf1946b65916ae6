"""Answers before a document is read: what a question points at is computed first, as a small stream of its own.

The index ranks a document's blocks without any key. The best ones, in document order behind the sinks, are computed
in each other's sight, and the question is answered in sight of all of them: that is the plain model on these blocks.

How a block was computed is part of its id, so this early form has an id of its own, chained over what it saw. Equal
selections have equal ids: a question asked again after an interruption finds its blocks stored. Nothing of the early
form enters the document's own blocks. They are computed later, in order, as if nobody had asked; the early forms are
deleted then, and the tokens computed twice are counted as recomputed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128_hexdigest

from zerolayer.core import FloatArray, Plan
from zerolayer.decision.policies.lru import LruPolicy
from zerolayer.documents.stream import chained_id
from zerolayer.execution.tiers import TierHierarchy
from zerolayer.perception.dense import encode_blocks
from zerolayer.perception.recall import Signals, fuse
from zerolayer.runtime.answering import FAULT_ROOM, Attended, Decoding
from zerolayer.runtime.working_set import SchedulerSettings, knit_id
from zerolayer.scheduler import Scheduler, TurnResult, TurnSteps

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

EARLY_BLOCKS = 24
"""Most blocks that are computed for one early answer, beside the sinks: as many as an answer sees by default."""

SHORTLIST = 96
"""Blocks whose sentence vectors are computed for a question while the document's are not: its words choose them."""


class ShortlistVectors:
    """Sentence vectors of those blocks only that a question's words point at; all of them would take too long."""

    def __init__(self, encoder: SentenceEncoder, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self._encoder, self._text, self._spans = encoder, text, spans
        self._known: dict[int, FloatArray] = {}

    def cosines(self, question: str, words: FloatArray) -> FloatArray:
        """[blocks] cosine of meaning for the shortlist; the others get less than its average, one for all.

        `words` [blocks] is the lexical match.
        """
        order = np.argsort(-words, kind="stable")
        shortlist = [int(b) for b in order if self._spans[b][1] > self._spans[b][0]][:SHORTLIST]
        result = np.zeros(len(words), dtype=np.float32)
        if not shortlist:
            return result
        missing = sorted(set(shortlist) - self._known.keys())
        vectors = encode_blocks(self._encoder, self._text, [self._spans[block] for block in missing])
        self._known.update(zip(missing, vectors, strict=True))
        near = np.stack([self._known[block] for block in shortlist]) @ self._encoder.encode([question])[0]
        result[:] = near.mean() - near.std()
        result[shortlist] = near
        return result


def select_blocks(match: FloatArray, count: int, sink_blocks: int = 1) -> list[int]:
    """The `count` blocks that match best, in document order, sinks left out."""
    best = np.argsort(-match[sink_blocks:], kind="stable")[:count] + sink_blocks
    return sorted(int(block) for block in best)


class _InFullSight(LruPolicy):
    """Everything that was read for the question stays and is attended to; there is nothing to choose."""

    name = "early"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is computed for one question, in order: sinks, chosen blocks, whole blocks of the conversation so far."""

    blocks: tuple[int, ...]  # indices into the document; those of the conversation lie behind its last block
    ids: tuple[str, ...]  # of the early form
    token_ids: tuple[int, ...]
    pending: tuple[int, ...] = ()  # tokens of the conversation that fill no block


class EarlyReader:
    """Answers questions about a stream that has not been read, each from blocks of its own.

    `known` maps the ids of early forms that an earlier process may have stored to document blocks. `on_select` hears
    of the ids of a selection before any of them is computed, so that whoever keeps them can find them after a crash.
    """

    def __init__(
        self,
        engine: HFEngine,
        tiers: TierHierarchy,
        token_ids: Sequence[int],
        block_ids: Sequence[str],
        settings: SchedulerSettings,
        known: Mapping[str, int],
        on_select: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._engine, self._tiers, self._settings, self._on_select = engine, tiers, settings, on_select
        self._tokens = np.asarray(token_ids, dtype=np.int64)
        self._ids = list(block_ids)
        self.forms = dict(known)
        """Id of an early form → its block in the document."""
        self.computed_tokens = 0  # computed early in this session
        self.recomputed_tokens = 0  # of those, computed before in some form

    def unread_blocks(self) -> int:
        """Blocks of the document that no tier holds as computed in order."""
        return sum(not self._stored(block) for block in range(len(self._ids)))

    def worthwhile(self, share: float) -> bool:
        """Whether one more early answer keeps what is computed early within `share` of what is still to be read."""
        width = self._settings.block_tokens
        cost = self.computed_tokens + (EARLY_BLOCKS + self._settings.sink_blocks) * width
        return cost <= share * self.unread_blocks() * width

    def computed_blocks(self) -> set[int]:
        """Document blocks that have been computed early and are stored so."""
        return {block for form, block in self.forms.items() if form in self._tiers}

    def turn_steps(
        self, question_ids: Sequence[int], signals: Signals, decoding: Decoding, history: Sequence[int] = ()
    ) -> TurnSteps:
        """Compute what the question points at, then answer; indices of the result are the document's.

        Steps as in `Scheduler.turn_steps`; `history` are the tokens of the conversation so far. Raises
        QuestionTooLongError, BudgetError.
        """
        started = time.perf_counter()
        settings = self._settings
        match = fuse(signals, np.zeros(len(self._ids), dtype=np.float32))
        said, width = len(history) + len(question_ids), settings.block_tokens
        tail = -(-(said + decoding.reserved) // width) + FAULT_ROOM
        room = settings.slots - settings.sink_blocks - tail
        selection = self._select(match, max(1, min(EARLY_BLOCKS, room)), history)
        scheduler = self._scheduler(selection, -(-(said + decoding.limit) // width) + FAULT_ROOM)
        try:
            computed, again = yield from self._read(scheduler, selection)
            spent = time.perf_counter() - started
            words = Signals(match[self._in_document(selection)])
            # What is kept of an early turn is its tokens: the document's own scheduler computes them later.
            result = yield from scheduler.turn_steps(
                question_ids, words.padded(len(selection.blocks)), decoding, keeping=False
            )
        finally:
            scheduler.arena.release()
        result.metrics.prefilled_document_tokens = computed
        result.metrics.recomputed_tokens += again
        result.metrics.recall_s += spent
        result.metrics.ttft_s += spent
        return self._of_document(result, selection, match)

    def forget(self, first: int = 0) -> None:
        """Delete the early forms of blocks from `first` on: the document is read, or a conversation has ended."""
        for form in [form for form, block in self.forms.items() if block >= first]:
            del self.forms[form]
            if form in self._tiers:
                self._tiers.delete(form)

    def _stored(self, block: int) -> bool:
        return self._ids[block] in self._tiers or knit_id(self._ids[block]) in self._tiers

    def _select(self, match: FloatArray, count: int, history: Sequence[int]) -> Selection:
        sinks, width = self._settings.sink_blocks, self._settings.block_tokens
        chosen = [*range(sinks), *select_blocks(match, count, sinks)]
        ids, parent = [], f"early:{self._settings.codec}"
        for block in chosen:
            parent = xxh3_128_hexdigest(f"{parent}:{self._ids[block]}".encode())
            ids.append(parent)
        tokens = [int(t) for block in chosen for t in self._tokens[block * width : (block + 1) * width]]
        whole = len(history) // width
        for turn in range(whole):
            ids.append(chained_id(ids[-1], history[turn * width : (turn + 1) * width]))
        behind = range(len(self._ids), len(self._ids) + whole)
        split = whole * width
        return Selection((*chosen, *behind), tuple(ids), (*tokens, *history[:split]), tuple(history[split:]))

    def _scheduler(self, selection: Selection, tail: int) -> Scheduler:
        """A scheduler over the selection alone, with room for it and the tail and no more."""
        settings = self._settings
        own = SchedulerSettings(
            slots=min(settings.slots, len(selection.blocks) + tail),
            block_tokens=settings.block_tokens,
            chunk_tokens=settings.chunk_tokens,
            codec=settings.codec,
            knit_share=0.0,
            attend_blocks=len(selection.blocks),
            max_new_tokens=settings.max_new_tokens,
            sink_blocks=settings.sink_blocks,
        )
        scheduler = Scheduler(
            self._engine, self._tiers, _InFullSight(), selection.token_ids, selection.ids, own
        )
        scheduler.working_set.pending = list(selection.pending)
        return scheduler

    def _read(
        self, scheduler: Scheduler, selection: Selection
    ) -> Generator[int | None, None, tuple[int, int]]:
        """Compute what is not stored of the selection; returns tokens computed, and how many of them again."""
        ws, width = scheduler.working_set, self._settings.block_tokens
        had = self.computed_blocks()
        forms = dict(zip(selection.ids, selection.blocks, strict=True))
        self.forms.update(forms)
        self._on_select(self.forms)
        done = scheduler.restore()
        # All of it comes in sight, also what restore would leave to recall: what follows is computed in its sight.
        absent = tuple(block for block in range(done) if not ws.table.resident[block])
        ws.bring(Plan(load=absent, reason="a selection that is stored"), range(done), reserve=0)
        yield None
        while scheduler.read_chunk():
            yield None
        fresh = self._in_document(selection)[done:]
        again = sum(block in had or self._stored(block) for block in fresh) * width
        self.computed_tokens += len(fresh) * width
        self.recomputed_tokens += again
        return len(fresh) * width, again

    def _in_document(self, selection: Selection) -> list[int]:
        return [block for block in selection.blocks if block < len(self._ids)]

    def _of_document(self, result: TurnResult, selection: Selection, match: FloatArray) -> TurnResult:
        """`result` in terms of the document's blocks; its match is the one that chose them."""
        blocks, attended = selection.blocks, result.attended
        size = max(len(self._ids), blocks[-1] + 1)
        mass = np.zeros(size, dtype=np.float32)
        mass[list(blocks)] = result.block_mass
        return TurnResult(
            result.token_ids,
            Attended([blocks[b] for b in attended.blocks], attended.mass, attended.question_mass),
            np.pad(match, (0, size - len(match))),
            mass,
            [blocks[b] for b in result.used],
            result.metrics,
            result.log,
            result.loads,
            result.p0_access_ns,
        )
