"""One session: documents, a model, and everything between them, opened, read, asked and closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from xxhash import xxh3_128_hexdigest

from zerolayer.answering import FAULT_ROOM
from zerolayer.config import Settings, cache_dir, parse_budget, parse_size
from zerolayer.core import KEY_FEATURES, Answer, FloatArray, ReadProgress
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import GradingPolicy
from zerolayer.decision.registry import create_policy
from zerolayer.documents import read_documents
from zerolayer.documents.document import Document
from zerolayer.documents.stream import DocumentStream, build_stream, prompt_frame
from zerolayer.early import ShortlistVectors
from zerolayer.errors import BudgetError, SettingError
from zerolayer.execution.tiers import HostTier, SessionInfo, SessionStore, TierHierarchy
from zerolayer.learning.calibrate_files import persistence_for
from zerolayer.perception.block_features import document_features, language_of
from zerolayer.perception.citations import cite
from zerolayer.perception.dense import encode_blocks
from zerolayer.perception.intent import AskedTurn, IntentForecast, IntentModel, NextNeed
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals
from zerolayer.perception.retrieval_heads import retrieval_heads
from zerolayer.prefetching import PrefetchReport
from zerolayer.reading import Reader, ReadReport
from zerolayer.scheduler import Scheduler, TurnResult
from zerolayer.snapshot import SNAPSHOT_NAME, save_snapshot
from zerolayer.working_set import SchedulerSettings

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

AUTO_SHARE = "10%"
AUTO_LEAST_TOKENS = 2048
"""A device budget of `auto` is this share of the document's full KV, and at least this many tokens."""

INTENT_PLACES = 4
"""Of the blocks that an answer used, this many say where in the document it was: those that match best."""

QUESTION_TOKENS = 64
"""Room for a question of ordinary length, when the smallest budget is worked out."""


class Session:
    """Questions about documents in bounded device memory. Use `open_session`; close it, or use `with`."""

    def __init__(
        self,
        engine: HFEngine,
        stream: DocumentStream,
        store: SessionStore,
        info: SessionInfo,
        settings: Settings,
        encoder: SentenceEncoder | None = None,
    ) -> None:
        self.engine, self.stream, self.settings = engine, stream, settings
        self._store, self._info, self._encoder = store, info, encoder
        self._frame = prompt_frame(engine.tokenizer)
        disk = store.open(info)
        tiers = TierHierarchy(
            HostTier(parse_size(settings.host_budget, "host budget")),
            disk,
            lambda needed: store.reserve(needed, keep={info.id}),
        )
        self._policy = create_policy(settings.policy)
        sizes = _scheduler_settings(settings, engine, len(stream.token_ids))
        self._reader = Reader(
            engine, stream, tiers, store, info, sizes, lambda: self._new_scheduler(tiers, sizes)
        )
        spans = [(block.char_start, block.char_end) for block in stream.blocks]
        self._lexical = LexicalIndex(stream.text, spans)
        self._shortlist = ShortlistVectors(encoder, stream.text, spans) if encoder is not None else None
        self._features = document_features(stream.text, spans, self._lexical)
        if isinstance(self._policy, GradingPolicy):
            fit = persistence_for(engine.fingerprint, language_of(stream.text))
            self._policy.use_persistence(fit)
        self._heads = retrieval_heads(engine.fingerprint, engine.geometry.layers, engine.heads)
        self._vectors: FloatArray | None = None
        self._kept = False  # a conversation has begun
        self._asked: list[AskedTurn] = []
        self._intent: IntentModel | None = None

    def _new_scheduler(self, tiers: TierHierarchy, sizes: SchedulerSettings) -> Scheduler:
        stream = self.stream
        ids = [block.id for block in stream.blocks]
        scheduler = Scheduler(self.engine, tiers, self._policy, stream.token_ids, ids, sizes)
        scheduler.table.features[:, len(KEY_FEATURES) :] = self._features
        return scheduler

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the whole document. After an early answer it is another one."""
        return self._reader.scheduler

    @property
    def answers_early(self) -> bool:
        """Whether the next question would be answered before the document is read, from what it points at."""
        return not self._reader.finished and self._reader.early.worthwhile(self.settings.early_share)

    @property
    def is_read(self) -> bool:
        """Whether `read` has come to the document's end."""
        return self._reader.finished

    @property
    def full_kv_bytes(self) -> int:
        """Bytes that the whole document's KV would take on the device."""
        return len(self.stream.token_ids) * self.engine.geometry.token_bytes

    def read(
        self,
        on_progress: Callable[[ReadProgress], None] | None = None,
        until: Callable[[], bool] | None = None,
    ) -> ReadReport:
        """Read what storage does not hold yet, as long as `until` is false. Stops and resumes at block granularity."""
        return self._reader.read(on_progress, until, prepare=self._encode)

    @property
    def read_report(self) -> ReadReport:
        """How far reading has come in this session."""
        return self._reader.report()

    def ask(
        self,
        question: str,
        on_text: Callable[[str], None] | None = None,
        keep: bool = False,
        max_new_tokens: int | None = None,
    ) -> Answer:
        """Answer one question. With `keep`, later questions see this turn.

        Before `read` it is answered early where that pays (`answers_early`); otherwise the document is read first.
        `on_text` hears the answer piece by piece. Raises QuestionTooLongError.
        """
        return self.answer(question, on_text, keep, max_new_tokens)[0]

    def answer(
        self,
        question: str,
        on_text: Callable[[str], None] | None = None,
        keep: bool = False,
        max_new_tokens: int | None = None,
    ) -> tuple[Answer, TurnResult]:
        """As `ask`, with all that was observed: attention, match, instructions."""
        pieces = TextPieces(self.engine.tokenizer, on_text)
        early = self.answers_early
        if not early and not self._reader.finished:
            self.read()
        turn = self._reader.early_turn if early else self.scheduler.turn
        result = turn(
            self.question_ids(question), self.signals(question), pieces.add, max_new_tokens, keep=keep
        )
        self._kept = self._kept or keep
        if not early:  # an early answer has an arena of its own
            path = self._store.directory(self._info.id) / SNAPSHOT_NAME
            save_snapshot(path, self.scheduler, self.stream.blocks, result.metrics)
        citations = cite(self.stream, result.attended, result.match, self._heads)
        text = pieces.finish()
        places = sorted(result.used, key=lambda block: -float(result.match[block]))
        inside = [block for block in places if block < len(self.stream.blocks)][:INTENT_PLACES]
        self._asked.append(AskedTurn(question, tuple(inside), text))
        return Answer(question, text, citations, result.metrics, early), result

    def forecast_intent(self, history: Sequence[str] | None = None) -> IntentForecast:
        """Where the next question is likely to go, and the entropy of that forecast.

        `history` are questions, oldest first; None: those of this session, with the blocks their answers used.
        """
        if self._intent is None:
            spans = [(block.char_start, block.char_end) for block in self.stream.blocks]
            pages = [(block.page_first, block.page_last) for block in self.stream.blocks]
            self._intent = IntentModel(self.stream.text, spans, pages, self._lexical)
        turns = self._asked if history is None else [AskedTurn(question) for question in history]
        return self._intent.forecast(turns)

    def predict_next_intent(self, history: Sequence[str] | None = None) -> tuple[NextNeed, ...]:
        """The three most likely needs of the next question, best first; their probabilities sum to at most 1.

        `history` as in `forecast_intent`.
        """
        return self.forecast_intent(history).needs

    def prefetch_intent(self, history: Sequence[str] | None = None) -> PrefetchReport:
        """Warm the blocks of the likeliest needs: into host memory, and onto the device where slots are free.

        Nothing leaves the device for it. Raises StoreFullError.
        """
        forecast = self.forecast_intent(history)
        mass = forecast.block_probability
        blocks = sorted((b for need in forecast.needs for b in need.blocks), key=lambda b: -float(mass[b]))
        reserve = -(-(QUESTION_TOKENS + self.settings.max_new_tokens) // self.settings.block_tokens)
        return self.scheduler.prefetcher.prefetch(self.scheduler.policy, mass, blocks, reserve + FAULT_ROOM)

    def set_entropy_thresholds(
        self, p0_min: float = 0.17, p1_min: float = 0.10, p2_min: float = 0.05
    ) -> None:
        """Move the cuts: the least persistence of P0, P1 and P2. What has been graded is graded again.

        Raises SettingError unless 1 >= p0_min > p1_min > p2_min >= 0, and where the policy does not grade.
        """
        thresholds, policy = Thresholds(p0_min, p1_min, p2_min), self.scheduler.policy
        if not isinstance(policy, GradingPolicy):
            raise SettingError(
                f"policy {policy.name!r} does not grade, so there are no thresholds to set; use --policy graded"
            )
        policy.set_thresholds(self.scheduler.table, thresholds)

    def question_ids(self, question: str) -> list[int]:
        """Tokens of a question in the model's chat template, up to where its answer begins."""
        framed = self._frame.follow_up(question) if self._kept else self._frame.question(question)
        ids: list[int] = self.engine.tokenizer(framed, add_special_tokens=False)["input_ids"]
        return ids

    def signals(self, question: str) -> Signals:
        """What the question's words and meaning point at, [blocks] each, before any key is looked at."""
        words, dense = self._lexical.signals(question), None
        if self._vectors is not None and self._encoder is not None:
            dense = self._vectors @ self._encoder.encode([question])[0]
        elif self._shortlist is not None:
            dense = self._shortlist.cosines(question, words.words)
        return replace(words, meaning=dense)

    def _encode(self) -> None:
        """Sentence vectors of the blocks, computed once per document and kept beside its blocks."""
        if self._encoder is None or self._vectors is not None:
            return
        path = cache_dir() / "vectors" / f"{self._info.id}-{self._encoder.name}-3.npy"
        if path.is_file():
            vectors: FloatArray = np.load(path)
            if len(vectors) == len(self.stream.blocks):
                self._vectors = vectors
                return
        spans = [(block.char_start, block.char_end) for block in self.stream.blocks]
        vectors = encode_blocks(self._encoder, self.stream.text, spans)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{time.time_ns()}.tmp")
        with temporary.open("wb") as stream:
            np.save(stream, vectors)
        temporary.replace(path)
        self._vectors = vectors

    def close(self) -> None:
        """Give the stored session free for others; nothing is lost."""
        self._reader.forget_conversation()
        self._store.close(self._info.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TextPieces:
    """Turns token ids into text as they come: a piece is given out once, when it can no longer change."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None) -> None:
        self._tokenizer, self._on_text = tokenizer, on_text
        self._ids: list[int] = []
        self._given = 0

    def add(self, token: int) -> None:
        """Take in a token; what it settles is given out."""
        self._ids.append(token)
        text = self._text()
        if not text.endswith("\ufffd"):  # half a character: the next token completes it
            self._give(text)

    def finish(self) -> str:
        """The whole text; gives out what is left."""
        text = self._text()
        self._give(text)
        return text.strip()

    def _text(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _give(self, text: str) -> None:
        if self._on_text is not None and len(text) > self._given:
            self._on_text(text[self._given :])
        self._given = max(self._given, len(text))


def open_session(paths: Sequence[Path], settings: Settings) -> Session:
    """Open documents with a model. Nothing is prefilled yet: call `read`.

    Raises DocumentError, UnknownNameError, ModelError, BudgetError, StoreError.
    """
    documents = read_documents(paths)
    create_policy(settings.policy)
    from zerolayer.engines.hf.loading import load_encoder, load_engine

    return session_of(documents, load_engine(settings), settings, load_encoder(settings))


def session_of(
    documents: Sequence[Document],
    engine: HFEngine,
    settings: Settings,
    encoder: SentenceEncoder | None = None,
) -> Session:
    """A session of documents and a model that are loaded already."""
    width = settings.block_tokens
    # How KV is computed is part of every block's id: positions and neighbours shape keys and values.
    provenance = xxh3_128_hexdigest(f"{engine.fingerprint}:{engine.dtype}:prefill-2:{width}".encode())
    stream = build_stream(documents, engine.tokenizer, prompt_frame(engine.tokenizer), width, provenance)
    identity = xxh3_128_hexdigest(f"{stream.blocks[-1].id}:{settings.codec}".encode())
    info = SessionInfo(
        identity,
        ", ".join(document.name for document in documents),
        engine.fingerprint,
        settings.codec,
        width,
        len(stream.token_ids),
        block_ids=tuple(block.id for block in stream.blocks),
    )
    store = SessionStore(cache_dir() / "sessions", parse_size(settings.disk_budget, "disk budget"))
    return Session(engine, stream, store, info, settings, encoder)


def _scheduler_settings(settings: Settings, engine: HFEngine, tokens: int) -> SchedulerSettings:
    """Sizes from settings and model. Raises BudgetError when the smallest working set does not fit."""
    width = settings.block_tokens
    slot_bytes = width * engine.geometry.token_bytes
    # The last question and its answer lie behind the document's blocks: a budget of 100 % includes them.
    tail = -(-(QUESTION_TOKENS + settings.max_new_tokens) // width) + FAULT_ROOM
    smallest = 3 + tail
    full = tokens * engine.geometry.token_bytes
    if settings.device_budget == "auto":
        budget = max(parse_budget(AUTO_SHARE, full), AUTO_LEAST_TOKENS * engine.geometry.token_bytes)
    else:
        budget = parse_budget(settings.device_budget, full)
    if budget >= full:
        budget = max(full + tail * slot_bytes, smallest * slot_bytes)
    slots = min(budget // slot_bytes, engine.window // width)
    if slots < smallest:
        raise BudgetError(
            f"device budget {settings.device_budget} is {budget:,} bytes, room for {slots} blocks of {width} tokens; "
            f"sinks, one block, a window of one block and {tail} blocks for question and answer need {smallest}; "
            f"use at least --device-budget {-(-smallest * slot_bytes // 2**20)}MiB, or lower --max-new-tokens"
        )
    return SchedulerSettings(
        slots=slots,
        block_tokens=width,
        chunk_tokens=settings.chunk_tokens,
        codec=settings.codec,
        knit_share=settings.knit_share,
        attend_blocks=settings.attend_blocks,
        max_new_tokens=settings.max_new_tokens,
        heatmap_side=settings.heatmap_side,
        pin_blocks=settings.pin_blocks,
    )
