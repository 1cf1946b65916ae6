"""Context hints and `cache_control`: what a client wants kept on the device, how long, and within which budget."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerolayer.core import Grade
from zerolayer.runtime.answering import FAULT_ROOM
from zerolayer.runtime.keeping import RECENT_SHARE, pin_latest
from zerolayer.runtime.sizes import QUESTION_TOKENS
from zerolayer.server.options import ServiceOptions
from zerolayer.server.turns import ContextHint
from zerolayer.session import Session

Clock = Callable[[], float]

_MOST_WORDS = 64  # of a hint's text, for the search that forgives white space and case


@dataclass(slots=True)
class Pin:
    """A hint that lives. `blocks` are those in the documents; in the conversation it is looked for at every turn."""

    hint: ContextHint
    blocks: tuple[int, ...]
    expires: float | None  # by the clock
    expires_at: float | None  # seconds since the epoch, for people


@dataclass(frozen=True, slots=True)
class HintReport:
    """What became of a hint."""

    hint: ContextHint
    status: str  # pinned | not_found | over_budget | expired
    occurrences: int = 0
    blocks: tuple[int, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `rtls_metrics` tells it."""
        return {
            "text": self.hint.text,
            "start": self.hint.start,
            "end": self.hint.end,
            "grade": self.hint.grade,
            "status": self.status,
            "occurrences": self.occurrences,
            "blocks": list(self.blocks),
            "reason": self.reason,
        }


class Pins:
    """The hints of one conversation. Lifetimes are of a clock that never jumps."""

    def __init__(self, session: Session, options: ServiceOptions, clock: Clock = time.monotonic) -> None:
        self._session, self._options, self._clock = session, options, clock
        with_text = [block for block in session.stream.blocks if block.char_end > block.char_start]
        self._starts = [block.char_start for block in with_text]
        self._ends = [block.char_end for block in with_text]
        self._indices = [block.index for block in with_text]
        self.live: dict[ContextHint, Pin] = {}
        self._floors: dict[tuple[int, int], float] = {}  # characters of the joined text → when their P1 ends
        self._expired: list[HintReport] = []
        self.blocks: set[int] = set()
        """Blocks that are pinned now."""

    @property
    def limit(self) -> int:
        """Blocks that may be pinned: a share of the slots, and room for a question and its answer stays."""
        sizes = self._session.sizes
        tail = -(-(QUESTION_TOKENS + sizes.max_new_tokens) // sizes.block_tokens) + FAULT_ROOM
        recent = max(1, sizes.slots // RECENT_SHARE)
        room = sizes.slots - sizes.sink_blocks - recent - tail - 1
        return max(0, min(int(self._options.pin_share * sizes.slots), room))

    def take(self, hints: Sequence[ContextHint], quota_blocks: int) -> list[HintReport]:
        """Take in a request's hints; `quota_blocks` is what the tenant may pin beside what is pinned here.

        Returns one report a hint, those of hints that have expired since the last time first.
        """
        self.expire()
        reports, self._expired = self._expired, []
        for hint in hints:
            found = self._occurrences(hint)
            inside = tuple(sorted({block for span in found for block in self._blocks_of(*span)}))
            said = self._said(hint)
            if not inside and not said:
                reason = "the text occurs nowhere in the documents or the kept turns"
                if hint.start is not None:
                    reason = f"characters {hint.start} to {hint.end} lie outside the documents' text"
                reports.append(HintReport(hint, "not_found", reason=reason))
                continue
            new = {*inside, *said} - self.blocks
            room = min(self.limit - len(self.blocks), quota_blocks)
            if hint.grade == "P0" and len(new) > room:
                reason = (
                    f"it needs {len(new)} blocks beside the {len(self.blocks)} pinned ones; {max(0, room)} are "
                    f"left of the session's {self.limit} and the tenant's quota; hint shorter texts or less often"
                )
                reports.append(HintReport(hint, "over_budget", len(found) + len(said), inside, reason))
                continue
            ttl = hint.ttl_s
            self.live[hint] = Pin(
                hint,
                inside,
                None if ttl is None else self._clock() + ttl,
                None if ttl is None else time.time() + ttl,
            )
            if hint.grade == "P0":
                self.blocks |= new
                quota_blocks -= len(new)
            reports.append(HintReport(hint, "pinned", len(found) + len(said), (*inside, *said)))
        return reports

    def floor(self, start: int, end: int, ttl_s: float) -> None:
        """Characters of the joined text are at least P1 for `ttl_s` from now (`cache_control`)."""
        self._floors[start, end] = self._clock() + ttl_s

    def expire(self) -> bool:
        """End what has lived its time; whether anything did."""
        now = self._clock()
        gone = [pin for pin in self.live.values() if pin.expires is not None and pin.expires <= now]
        for pin in gone:
            del self.live[pin.hint]
            reason = f"its time to live of {pin.hint.ttl_s:g} s is over"
            self._expired.append(HintReport(pin.hint, "expired", blocks=pin.blocks, reason=reason))
        over = [span for span, until in self._floors.items() if until <= now]
        for span in over:
            del self._floors[span]
        if gone or over:
            self.apply()
        return bool(gone or over)

    def apply(self) -> None:
        """Have the session's table say what is pinned and what has a floor. Before the first turn nothing is to do."""
        wanted: set[int] = set()
        for pin in self.live.values():
            if pin.hint.grade == "P0":
                wanted |= {*pin.blocks, *self._said(pin.hint)}
        # What the conversation has grown since is pinned as far as the budget goes.
        self.blocks = set(sorted(wanted)[: self.limit])
        if not self._session.is_read:
            return
        scheduler = self._session.scheduler
        ws, table = scheduler.working_set, scheduler.table
        freed = [block for block in ws.hinted - self.blocks if block >= scheduler.settings.sink_blocks]
        table.pinned[freed], table.grade[freed] = False, int(Grade.P1)
        ws.hinted = set(self.blocks)
        pin_latest(ws)
        pinned = sorted(self.blocks)
        table.pinned[pinned], table.grade[pinned] = True, int(Grade.P0)
        floors = np.full(len(table), int(Grade.P3), dtype=np.int64)
        for start, end in self._floors:
            floors[self._blocks_of(start, end)] = int(Grade.P1)
        for pin in self.live.values():
            if pin.hint.grade == "P1":
                floors[[*pin.blocks, *self._said(pin.hint)]] = int(Grade.P1)
        floors[pinned] = int(Grade.P0)
        table.grade[:] = np.minimum(table.grade, floors)
        if hasattr(scheduler.policy, "floors"):
            scheduler.policy.floors = floors

    def until(self) -> float | None:
        """When the last of them ends, seconds since the epoch; None where none ends."""
        now = self._clock()
        ends = [pin.expires_at for pin in self.live.values() if pin.expires_at is not None]
        ends += [time.time() + until - now for until in self._floors.values()]
        return max(ends, default=None)

    def _occurrences(self, hint: ContextHint) -> list[tuple[int, int]]:
        """Characters of the joined text: exact, else with any white space and case."""
        text = self._session.stream.text
        if hint.start is not None:
            end = min(hint.end if hint.end is not None else hint.start + 1, len(text))
            return [(hint.start, end)] if 0 <= hint.start < end else []
        words = hint.text.split()
        if not words:
            return []
        exact = [(m.start(), m.end()) for m in re.finditer(re.escape(hint.text.strip()), text)]
        if exact or len(words) > _MOST_WORDS:
            return exact
        pattern = r"\s+".join(map(re.escape, words))
        return [(m.start(), m.end()) for m in re.finditer(pattern, text, re.IGNORECASE)]

    def _blocks_of(self, start: int, end: int) -> list[int]:
        """Blocks that hold characters of the joined text."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return self._indices[first:last]

    def _said(self, hint: ContextHint) -> list[int]:
        """Blocks of the kept turns that hold a hint's text."""
        session = self._session
        if not hint.text.strip() or not session.is_read:
            return []
        ws = session.scheduler.working_set
        tokenizer = session.engine.tokenizer
        found: list[int] = []
        texts = [
            str(tokenizer.decode(ws.tokens_of(block))) for block in range(ws.document_blocks, len(ws.table))
        ]
        joined, starts = "".join(texts), np.cumsum([0, *map(len, texts)]).tolist()
        for match in re.finditer(re.escape(hint.text.strip()), joined):
            first = bisect_right(starts, match.start()) - 1
            last = bisect_left(starts, match.end())
            found += range(ws.document_blocks + first, ws.document_blocks + last)
        return sorted(set(found))
