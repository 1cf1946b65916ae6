"""Records a live request stream: a line a request, in the format of `request_files`, readable while it grows."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from zerolayer.core import Tier
from zerolayer.errors import UsageError
from zerolayer.learning.request_files import header_line, request_line
from zerolayer.learning.requests import TIERS, UNKNOWN
from zerolayer.learning.trace_lines import ZSTD_SUFFIX

_TIER_NUMBERS = {tier: number for number, tier in enumerate(TIERS)}


@dataclass(slots=True)
class _Pending:
    """A request that has arrived; it is written when it and all before it are finished."""

    time_s: float
    blocks: list[int]
    session: int
    turn: int
    input_tokens: int
    tiers: list[int]
    output_tokens: int = UNKNOWN
    finished: bool = False

    def line(self) -> str:
        return request_line(
            self.time_s,
            self.blocks,
            self.session,
            self.turn,
            self.input_tokens,
            self.output_tokens,
            self.tiers,
        )


class RequestRecorder:
    """Takes in requests of any threads and writes them in order of arrival.

    Block and session ids are replaced by numbers: the file holds no text and names nobody. A killed process loses
    the requests that were not finished, and those that arrived after them.
    """

    def __init__(self, path: Path, block_tokens: int, source: str) -> None:
        """Create the file. Raises UsageError if it exists, or is to be compressed, and OSError."""
        if path.suffix == ZSTD_SUFFIX:
            raise UsageError(f"{path} cannot grow compressed; record plain, then: zerolayer trace convert")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = path.open("x", encoding="utf-8", buffering=1)
        except FileExistsError as error:
            raise UsageError(
                f"{path} exists and is not overwritten; name another file or remove it"
            ) from error
        self._file.write(header_line(source, block_tokens) + "\n")
        self._lock = threading.Lock()
        self._origin = time.monotonic()
        self._numbers: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._tickets = 0
        self._pending: OrderedDict[int, _Pending] = OrderedDict()

    def arrive(
        self,
        block_ids: Sequence[str],
        session: str | None = None,
        input_tokens: int = UNKNOWN,
        tiers: Sequence[Tier | None] = (),
    ) -> int:
        """Note a request when its blocks are looked up; returns the ticket to `finish` it with.

        `block_ids` are the chained ids of its prompt's blocks in order; `tiers` where each was found, None nowhere.
        Raises ValueError unless `tiers` is empty or as long as `block_ids`.
        """
        if tiers and len(tiers) != len(block_ids):
            raise ValueError(f"{len(tiers)} tiers for {len(block_ids)} blocks; give one each, or none")
        found = [UNKNOWN if tier is None else _TIER_NUMBERS[tier] for tier in tiers]
        with self._lock:
            blocks = [self._numbers.setdefault(block_id, len(self._numbers)) for block_id in block_ids]
            number = turn = UNKNOWN
            if session is not None:
                number = self._sessions.setdefault(session, len(self._sessions))
                turn = self._turns.get(session, 0)
                self._turns[session] = turn + 1
            when = time.monotonic() - self._origin
            ticket, self._tickets = self._tickets, self._tickets + 1
            self._pending[ticket] = _Pending(when, blocks, number, turn, input_tokens, found)
            return ticket

    def finish(self, ticket: int, output_tokens: int = UNKNOWN) -> None:
        """Note that a request is answered, failed or cancelled. Raises KeyError for a ticket that is not open."""
        with self._lock:
            request = self._pending[ticket]
            if request.finished:
                raise KeyError(ticket)
            request.output_tokens, request.finished = output_tokens, True
            while self._pending and next(iter(self._pending.values())).finished:
                self._file.write(self._pending.popitem(last=False)[1].line() + "\n")

    def record(
        self,
        block_ids: Sequence[str],
        session: str | None = None,
        input_tokens: int = UNKNOWN,
        output_tokens: int = UNKNOWN,
        tiers: Sequence[Tier | None] = (),
    ) -> None:
        """Note a request of which everything is known, as one call."""
        self.finish(self.arrive(block_ids, session, input_tokens, tiers), output_tokens)

    def close(self) -> None:
        """Write what has arrived, finished or not, and close the file."""
        with self._lock:
            while self._pending:
                self._file.write(self._pending.popitem(last=False)[1].line() + "\n")
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
