"""Reading one session's documents: in order, in pieces if need be, and early what a question points at.

There is one arena at a time. An early answer takes the place of the document's scheduler, of which everything is
stored; reading on makes a new one, which starts from storage as after an interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerolayer.core import ReadProgress
from zerolayer.execution.tiers import SessionInfo, SessionStore, TierHierarchy
from zerolayer.perception.recall import Signals
from zerolayer.runtime.answering import Decoding
from zerolayer.runtime.early import EarlyReader
from zerolayer.runtime.keeping import adopt, forget
from zerolayer.runtime.working_set import SchedulerSettings
from zerolayer.scheduler import Scheduler, TurnSteps

if TYPE_CHECKING:
    from zerolayer.documents.stream import DocumentStream
    from zerolayer.engines.hf.engine import HFEngine


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What reading the documents took in this session so far.

    `tokens_prefilled` + `tokens_early` were computed. `recomputed_tokens` counts those that had been computed before,
    and those of damaged blocks.
    """

    tokens_total: int
    tokens_prefilled: int  # computed in order
    tokens_from_storage: int
    seconds: float  # reading in order
    tokens_early: int = 0  # computed for questions that came before the whole document was read
    recomputed_tokens: int = 0

    @property
    def tokens_read(self) -> int:
        """Tokens of the document that have been read in order."""
        return self.tokens_prefilled + self.tokens_from_storage


class Reader:
    """Reads the documents of one session, which `store` has open as `info`."""

    def __init__(
        self,
        engine: HFEngine,
        stream: DocumentStream,
        tiers: TierHierarchy,
        store: SessionStore,
        info: SessionInfo,
        settings: SchedulerSettings,
        new_scheduler: Callable[[], Scheduler],
    ) -> None:
        self._store, self._info = store, store.info(info.id)  # with what an earlier process noted
        self._new_scheduler = new_scheduler
        self._scheduler: Scheduler | None = None
        self._restored = False  # the scheduler has taken over what is stored
        self.finished = False
        """Whether the document has been read to its end and its scheduler is ready for questions."""
        self._blocks, self._width = len(stream.blocks), settings.block_tokens
        self._seconds = 0.0
        self._prefilled = 0  # tokens computed in order
        self._again = (
            0  # of these, tokens that had an early form; and tokens of damaged blocks computed again
        )
        self._from_storage: int | None = None
        self._history: list[list[int]] = []  # turns of a conversation that began before the document was read
        self.early = EarlyReader(
            engine,
            tiers,
            stream.token_ids,
            [block.id for block in stream.blocks],
            settings,
            {form: block for form, block in self._info.early_forms.items() if form in tiers},
            self._note_forms,
        )

    @property
    def scheduler(self) -> Scheduler:
        """The document's scheduler; a new one after an early answer took its place."""
        if self._scheduler is None:
            self._scheduler = self._new_scheduler()
            self._restored = False
        return self._scheduler

    @property
    def has_scheduler(self) -> bool:
        """Whether the document has a scheduler now, with an arena or waiting for one."""
        return self._scheduler is not None

    def report(self) -> ReadReport:
        """How far reading has come."""
        early = self.early
        return ReadReport(
            self._blocks * self._width,
            self._prefilled,
            self._from_storage or 0,
            self._seconds,
            early.computed_tokens,
            early.recomputed_tokens + self._again,
        )

    def read(
        self,
        on_progress: Callable[[ReadProgress], None] | None = None,
        until: Callable[[], bool] | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> ReadReport:
        """Read what storage does not hold yet, chunk by chunk, as long as `until` is false.

        `prepare` is called once beside it: first, or, since it may take long, last where `until` may end the reading.
        """
        scheduler, started = self.scheduler, time.perf_counter()
        before, already, repaired = self._seconds, self._prefilled, scheduler.executor.recomputed_tokens
        if not self._restored:
            stored = scheduler.restore() * self._width
            if self._from_storage is None:
                self._from_storage = stored
            self._restored = True
        if prepare is not None and until is None:
            prepare()
        total, early = self._blocks * self._width, self.early.computed_blocks()
        prefill_started = time.perf_counter()

        def tell() -> None:
            self._seconds = before + time.perf_counter() - started
            if on_progress is not None:
                rate = (self._prefilled - already) / max(time.perf_counter() - prefill_started, 1e-9)
                stored = self._from_storage or 0
                on_progress(ReadProgress(stored + self._prefilled, total, rate, stored))

        tell()
        while not (until is not None and until()):
            first = scheduler.working_set.done
            tokens = scheduler.read_chunk()
            if not tokens:
                self._finish()
                if prepare is not None and until is not None:
                    prepare()
                break
            self._prefilled += tokens
            self._again += self._width * len(early.intersection(range(first, first + tokens // self._width)))
            tell()
        self._again += scheduler.executor.recomputed_tokens - repaired
        self._seconds = before + time.perf_counter() - started
        if self.finished:
            self._info = replace(self._info, tokens_total=total, last_used=time.time())
            self._store.save(self._info)
        return self.report()

    def early_turn_steps(
        self, question_ids: Sequence[int], signals: Signals, decoding: Decoding
    ) -> TurnSteps:
        """Answer from what the question points at. Raises as `EarlyReader.turn_steps`."""
        self.give_up_arena()
        history = [token for turn in self._history for token in turn]
        result = yield from self.early.turn_steps(question_ids, signals, decoding, history)
        if decoding.keep:
            kept = result.token_ids if decoding.kept_ids is None else decoding.kept_ids
            self._history.append([*question_ids, *kept])
        return result

    def give_up_arena(self) -> None:
        """Free the device memory of the document's scheduler; what it needs is loaded when it is next used."""
        if self._scheduler is not None:
            self._scheduler.working_set.release()
            if (
                not self.finished
            ):  # reading on needs its window: it starts from storage, as after an interruption
                self._scheduler = None

    @property
    def said(self) -> list[int]:
        """Tokens of the kept turns, in order."""
        early = [token for turn in self._history for token in turn]
        if self._scheduler is None:
            return early
        ws = self._scheduler.working_set
        return [*ws.tokens[ws.document_blocks * self._width :].tolist(), *ws.pending, *early]

    def remember(self, token_ids: Sequence[int]) -> None:
        """A turn from before the document is read: its tokens are computed when they are needed."""
        self._history.append(list(token_ids))

    def adopt(self, token_ids: Sequence[int], block_ids: Sequence[str]) -> None:
        """Take over kept turns, once the document is read; see `keeping.adopt`."""
        self.scheduler.attach()
        adopt(self.scheduler.working_set, token_ids, block_ids)

    def forget_conversation(self) -> None:
        """Drop the kept turns from the tiers: what persists is the document, and early forms until it is read."""
        self.early.forget(self._blocks)
        if self._scheduler is not None:
            forget(self._scheduler.working_set)

    def _finish(self) -> None:
        """The document is read: early forms go, and what was said meanwhile is kept behind the document."""
        self.finished = True
        self.early.forget()
        self._info = replace(self._info, early_forms=self._forms_of_others())
        for turn in self._history:
            for _ in self.scheduler.replay_steps(turn):
                pass
        self._history.clear()

    def _note_forms(self, forms: Mapping[str, int]) -> None:
        """Before they are computed: a process that is killed leaves no block that nobody knows of."""
        self._info = replace(self._info, early_forms={**self._forms_of_others(), **forms})
        self._store.save(self._info)

    def _forms_of_others(self) -> dict[str, int]:
        """Forms that another process, which has the same documents open, noted since this one opened them."""
        noted = self._store.info(self._info.id).early_forms
        return {form: block for form, block in noted.items() if form not in self._info.early_forms}
