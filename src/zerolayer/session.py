"""One session: documents, a model, and everything between them, opened, read, asked and closed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xxhash import xxh3_128_hexdigest

from zerolayer.config import Settings, cache_dir, parse_size
from zerolayer.core import KEY_FEATURES, Answer, BlockTable, ReadProgress
from zerolayer.decision.grading import Thresholds
from zerolayer.decision.policy import GradingPolicy, Policy
from zerolayer.decision.registry import create_policy
from zerolayer.documents import read_documents
from zerolayer.documents.document import Document
from zerolayer.documents.stream import DocumentStream, PromptFrame, build_stream, prompt_frame
from zerolayer.errors import SettingError
from zerolayer.execution.tiers import HostTier, SessionInfo, SessionStore, TierHierarchy, TierStore
from zerolayer.learning.calibrate_files import persistence_for
from zerolayer.perception.citations import cite
from zerolayer.perception.intent import AskedTurn, IntentForecast, NextNeed
from zerolayer.perception.recall import Signals
from zerolayer.perception.retrieval_heads import retrieval_heads
from zerolayer.runtime.answering import FAULT_ROOM, Decoding
from zerolayer.runtime.indexing import DocumentIndex
from zerolayer.runtime.pieces import Pieces, TextPieces
from zerolayer.runtime.prefetching import PrefetchReport
from zerolayer.runtime.reading import Reader, ReadReport
from zerolayer.runtime.sizes import QUESTION_TOKENS, scheduler_settings
from zerolayer.runtime.snapshot import SNAPSHOT_NAME, save_snapshot
from zerolayer.runtime.working_set import SchedulerSettings
from zerolayer.scheduler import Scheduler, TurnResult, finish

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

INTENT_PLACES = 4
"""Of the blocks that an answer used, this many say where in the document it was: those that match best."""

AnswerSteps = Generator[int | None, None, tuple[Answer, TurnResult]]
"""An answer in steps: yields its tokens, and None where others may take their turn."""


@dataclass(frozen=True, slots=True)
class OpenDocuments:
    """Documents as a session takes them: their stream, what is known of it, and where it is stored."""

    stream: DocumentStream
    frame: PromptFrame
    info: SessionInfo
    index: DocumentIndex


class Session:
    """Questions about documents in bounded device memory. Use `open_session`; close it, or use `with`."""

    def __init__(
        self,
        engine: HFEngine,
        documents: OpenDocuments,
        store: SessionStore,
        settings: Settings,
        sizes: SchedulerSettings,
        host: TierStore | None = None,
    ) -> None:
        """`host` may be shared by several sessions; None: one of its own, as large as settings allow."""
        self.engine, self.settings, self.stream = engine, settings, documents.stream
        self.index, self._frame = documents.index, documents.frame
        self._store, self._info = store, documents.info
        disk = store.open(self._info)
        self.tiers = TierHierarchy(
            host or HostTier(parse_size(settings.host_budget, "host budget")),
            disk,
            lambda needed: store.reserve(needed, keep={documents.info.id}),
        )
        self._policy = self._prepared(create_policy(settings.policy))
        self.sizes = sizes
        self._reader = Reader(engine, self.stream, self.tiers, store, self._info, sizes, self._new_scheduler)
        self._heads = retrieval_heads(engine.fingerprint, engine.geometry.layers, engine.heads)
        self._kept = False  # a conversation has begun
        self._asked: list[AskedTurn] = []

    def _prepared(self, policy: Policy) -> Policy:
        """A policy with the calibrated persistence of this model and language, where there is one."""
        if isinstance(policy, GradingPolicy):
            policy.use_persistence(persistence_for(self.engine.fingerprint, self.index.language))
        return policy

    def _new_scheduler(self) -> Scheduler:
        stream = self.stream
        ids = [block.id for block in stream.blocks]
        scheduler = Scheduler(self.engine, self.tiers, self._policy, stream.token_ids, ids, self.sizes)
        scheduler.table.features[:, len(KEY_FEATURES) :] = self.index.features
        return scheduler

    @property
    def id(self) -> str:
        """Under which the documents are stored."""
        return self._info.id

    @property
    def info(self) -> SessionInfo:
        """What the store says of the documents."""
        return self._info

    @property
    def has_scheduler(self) -> bool:
        """Whether `scheduler` is there already: asking for it makes one, with an arena."""
        return self._reader.has_scheduler

    @property
    def policy(self) -> Policy:
        """Who decides."""
        return self._policy

    def use_policy(self, policy: Policy) -> None:
        """Have another policy decide from now on. What the one before had learned stays with it."""
        self._policy = self._prepared(policy)
        if self._reader.has_scheduler:
            self.scheduler.policy = self._policy

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
        encode: bool = True,
    ) -> ReadReport:
        """Read what storage does not hold yet, as long as `until` is false. Stops and resumes at block granularity.

        Without `encode` the blocks' sentence vectors are left to whoever calls `index.encode`.
        """
        return self._reader.read(on_progress, until, prepare=self.index.encode if encode else None)

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
        if not self.answers_early and not self._reader.finished:
            self.read()
        pieces = TextPieces(self.engine.tokenizer, on_text)
        decoding = Decoding(max_new_tokens or self.settings.max_new_tokens, keep=keep)
        return finish(self.answer_steps(question, decoding, pieces), pieces.add)

    def answer_steps(self, question: str, decoding: Decoding, pieces: Pieces, begun: str = "") -> AnswerSteps:
        """As `answer`, in steps, of a document that has been read or is answered early.

        Whoever takes the steps adds each token to `pieces`. `begun` is how the answer begins, where that is given.
        """
        early = self.answers_early
        turn = self._reader.early_turn_steps if early else self.scheduler.turn_steps
        ids = self.asked_ids(question, begun)
        result = yield from turn(ids, self.index.signals(question), decoding)
        self._kept = self._kept or decoding.keep
        if not early:  # an early answer has an arena of its own
            path = self._store.directory(self._info.id) / SNAPSHOT_NAME
            save_snapshot(path, self.scheduler, self.stream.blocks, result.metrics)
        citations = cite(self.stream, result.attended, result.match, self._heads)
        text = begun + pieces.finish()
        self.note_asked(question, text, result)
        return Answer(question, text, citations, result.metrics, early), result

    def note_asked(self, question: str, answer: str, result: TurnResult | None = None) -> None:
        """A turn of the past, for the forecast of the next one: with the places that its answer used, where known."""
        inside: list[int] | None = None
        if result is not None:
            places = sorted(result.used, key=lambda block: -float(result.match[block]))
            inside = [block for block in places if block < len(self.stream.blocks)][:INTENT_PLACES]
        self._asked.append(AskedTurn(question, None if inside is None else tuple(inside), answer))

    def replay_steps(self, question: str, answer: str) -> Generator[None, None, int]:
        """Keep a turn that was answered elsewhere, in steps; returns its tokens, which are computed again.

        Before the document is read they are only remembered, and computed with the next question.
        """
        ids = [*self.question_ids(question), *self._ids(answer)]
        self._kept = True
        self.note_asked(question, answer)
        if not self._reader.finished:
            self._reader.remember(ids)
            return len(ids)
        yield from self.scheduler.replay_steps(ids)
        return len(ids)

    def kept_turns(self) -> tuple[list[int], list[str]]:
        """Tokens of the kept turns, and the ids of the blocks that hold the first of them."""
        if not self._reader.has_scheduler:
            return self._reader.said, []
        ws = self.scheduler.working_set
        return self._reader.said, ws.executor.ids[ws.document_blocks :]

    @property
    def held_tokens(self) -> int:
        """Tokens of the kept turns that fill no block and need not be computed again with the next question."""
        return self.scheduler.working_set.held_tokens if self._reader.has_scheduler else 0

    def adopt(self, token_ids: Sequence[int], block_ids: Sequence[str]) -> None:
        """Take over turns that another session kept behind the same document, which has been read."""
        self._reader.adopt(token_ids, block_ids)
        self._kept = True

    def park(self) -> None:
        """Give the device memory back until the next question; everything is in the tiers."""
        self._reader.give_up_arena()

    @property
    def device_bytes(self) -> int:
        """Device memory that this session holds now."""
        return self.scheduler.arena.nbytes if self._reader.has_scheduler else 0

    def forecast_intent(self, history: Sequence[str] | None = None) -> IntentForecast:
        """Where the next question is likely to go, and the entropy of that forecast.

        `history` are questions, oldest first; None: those of this session, with the blocks their answers used.
        """
        turns = self._asked if history is None else [AskedTurn(question) for question in history]
        return self.index.forecast(turns)

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
        self.scheduler.attach()
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
        thresholds, policy = Thresholds(p0_min, p1_min, p2_min), self._policy
        if not isinstance(policy, GradingPolicy):
            raise SettingError(
                f"policy {policy.name!r} does not grade, so there are no thresholds to set; use --policy graded"
            )
        # Before the documents are read nothing has been graded.
        table = self.scheduler.table if self.has_scheduler else BlockTable.create([], 1)
        policy.set_thresholds(table, thresholds)

    def question_ids(self, question: str) -> list[int]:
        """Tokens of a question in the model's chat template, up to where its answer begins."""
        return self._ids(self._frame.follow_up(question) if self._kept else self._frame.question(question))

    def asked_ids(self, question: str, begun: str) -> list[int]:
        """As `question_ids`, and how the answer begins."""
        return [*self.question_ids(question), *self._ids(begun)]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.engine.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return ids

    def signals(self, question: str) -> Signals:
        """What the question's words and meaning point at, [blocks] each, before any key is looked at."""
        return self.index.signals(question)

    def close(self, forget: bool = True) -> None:
        """Give the stored session free for others; of the documents nothing is lost.

        The conversation's blocks are deleted, unless `forget` is False.
        """
        if forget:
            self._reader.forget_conversation()
        self._store.close(self._info.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(paths: Sequence[Path], settings: Settings) -> Session:
    """Open documents with a model. Nothing is prefilled yet: call `read`.

    Raises DocumentError, UnknownNameError, ModelError, BudgetError, StoreError.
    """
    documents = read_documents(paths)
    create_policy(settings.policy)
    from zerolayer.engines.hf.loading import load_encoder, load_engine

    return session_of(documents, load_engine(settings), settings, load_encoder(settings))


def open_documents(
    documents: Sequence[Document],
    engine: HFEngine,
    settings: Settings,
    encoder: SentenceEncoder | None = None,
    *,
    frame: PromptFrame | None = None,
    salt: str = "",
    titled: Sequence[bool] | None = None,
    tokenizer: Any = None,
) -> OpenDocuments:
    """Documents that are loaded already, cut into blocks and indexed.

    `frame` is the prompt around them; `salt` keeps their KV apart from that of others with equal documents;
    `tokenizer` is a copy of the engine's, where that may be in use on another thread.
    """
    tokenizer = tokenizer or engine.tokenizer
    width, frame = settings.block_tokens, frame or prompt_frame(tokenizer)
    # How KV is computed is part of every block's id: positions and neighbours shape keys and values.
    provenance = f"{engine.fingerprint}:{engine.dtype}:prefill-2:{width}" + (f":{salt}" if salt else "")
    seed = xxh3_128_hexdigest(provenance.encode())
    stream = build_stream(documents, tokenizer, frame, width, seed, titled)
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
    return OpenDocuments(stream, frame, info, DocumentIndex(stream, identity, encoder))


def session_of(
    documents: Sequence[Document],
    engine: HFEngine,
    settings: Settings,
    encoder: SentenceEncoder | None = None,
) -> Session:
    """A session of documents and a model that are loaded already."""
    opened = open_documents(documents, engine, settings, encoder)
    store = SessionStore(cache_dir() / "sessions", parse_size(settings.disk_budget, "disk budget"))
    sizes = scheduler_settings(settings, engine, len(opened.stream.token_ids))
    return Session(engine, opened, store, settings, sizes)
