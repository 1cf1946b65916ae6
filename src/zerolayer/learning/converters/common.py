"""What the converters share: reading records, numbering chains, collecting requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from zerolayer.errors import TraceError
from zerolayer.learning.requests import UNKNOWN, RequestTrace
from zerolayer.learning.trace_lines import damaged, json_object, read_lines

Row = TypeVar("Row")


def source_files(path: Path) -> list[Path]:
    """The file, or the .jsonl files of a directory by name. Raises TraceError if there are none."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith((".jsonl", ".jsonl.zst")))
    if not files:
        raise TraceError(f"{path} holds no .jsonl files; name the directory that does")
    return files


def first_record(path: Path) -> dict[str, Any] | None:
    """The first line as an object, or None where it is none. Raises TraceError as `read_lines` does."""
    try:
        return json_object(read_lines(source_files(path)[0])[0])
    except ValueError:
        return None


def read_rows(path: Path, row: Callable[[Mapping[str, Any]], Row]) -> list[Row]:
    """`row` of every line. Raises TraceError with the number of the line that it cannot make sense of."""
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            rows.append(row(json_object(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(path, number, error, "delete the line or get the file again") from error
    return rows


def check_order(path: Path, times: Iterable[float]) -> None:
    """Raises TraceError, with the number of the line, where time goes backwards."""
    for number, (before, after) in enumerate(pairwise(times), start=2):
        if after < before:
            error = ValueError(f"its time {after} comes after {before}")
            raise damaged(path, number, error, "sort the lines by time")


def number_of(record: Mapping[str, Any], key: str) -> float:
    """A finite number. Raises KeyError, ValueError."""
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} {value!r} is not a number")
    return float(value)


def tokens_of(record: Mapping[str, Any], key: str) -> int:
    """A whole number from 0, or -1 where the record has none. Raises ValueError."""
    value = record.get(key)
    if value is None:
        return UNKNOWN
    if type(value) is not int or value < 0:
        raise ValueError(f"{key} {value!r} must be a whole number from 0")
    return value


def hashes_of(record: Mapping[str, Any], key: str = "hash_ids") -> list[int | str]:
    """The ids of a prompt's blocks. Raises KeyError, ValueError; a negative number is none."""
    hashes = record[key]
    if not isinstance(hashes, list) or not all(type(item) in (int, str) for item in hashes):
        raise ValueError(f"{key} must be a list of block ids")
    negative = [item for item in hashes if isinstance(item, int) and item < 0]
    if negative:
        raise ValueError(f"{key} has {negative[0]}; a block id must not be negative")
    return hashes


class ChainNumbers:
    """Numbers blocks by what they hold and what stands before it: the same text elsewhere is another block.

    That is what a prefix cache can serve. Ids that are chained hashes already get one number each.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Hashable], int] = {}

    def chain(self, pieces: Iterable[Hashable]) -> list[int]:
        """Block numbers of one prompt, in order of first reference over all calls."""
        numbers, parent = [], UNKNOWN
        for piece in pieces:
            parent = self._numbers.setdefault((parent, piece), len(self._numbers))
            numbers.append(parent)
        return numbers

    def __len__(self) -> int:
        return len(self._numbers)


class SessionNumbers:
    """Numbers sessions in order of first appearance, so that a trace names nobody."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, name: Hashable | None) -> int:
        """The number of a session; -1 for None."""
        return UNKNOWN if name is None else self._numbers.setdefault(name, len(self._numbers))


class RequestRows:
    """Collects requests in order of time and builds the trace."""

    def __init__(self) -> None:
        self._numbers = ChainNumbers()
        self._sessions = SessionNumbers()
        self._blocks: list[int] = []
        self._starts = [0]
        self._columns: list[tuple[float, int, int, int]] = []

    def add(
        self,
        time_s: float,
        pieces: Iterable[Hashable],
        session: Hashable | None = None,
        input_tokens: int = UNKNOWN,
        output_tokens: int = UNKNOWN,
    ) -> None:
        """Append one request, `pieces` being whatever tells a block from others at its place in the prompt."""
        self._blocks += self._numbers.chain(pieces)
        self._starts.append(len(self._blocks))
        self._columns.append((time_s, self._sessions.number(session), input_tokens, output_tokens))

    def trace(self, block_tokens: int, source: str) -> RequestTrace:
        """The trace, times counted from its first request."""
        times, sessions, inputs, outputs = zip(*self._columns, strict=True) if self._columns else ((),) * 4
        origin = times[0] if times else 0.0
        return RequestTrace.build(
            self._blocks,
            self._starts,
            [round(time - origin, 6) for time in times],  # microseconds, as on disk
            block_tokens=block_tokens,
            source=source,
            sessions=sessions,
            input_tokens=inputs,
            output_tokens=outputs,
            num_blocks=len(self._numbers),
        )
