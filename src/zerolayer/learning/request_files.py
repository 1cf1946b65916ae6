"""Request traces on disk: JSON lines, one header, then one line a request. docs/traces.md shows an example.

Header: `format` ("zerolayer-requests"), `version` (1), `source`, `block_tokens`; optional `requests` (how many lines
follow) and `num_blocks`.

Request: `time_s` (seconds since any origin, never falling) and `blocks` (numbers of the prompt's blocks, from its
beginning). Optional, left out where unknown: `session`, `turn`, `input_tokens`, `output_tokens`, `tiers` (runs
[[tier or null, blocks], …] of where the blocks were found when the request came).
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import IntArray
from zerolayer.errors import TraceError
from zerolayer.learning.requests import TIERS, UNKNOWN, RequestTrace
from zerolayer.learning.trace_lines import damaged, json_object, write_lines

FORMAT = "zerolayer-requests"
VERSION = 1

_COUNTS = (("session", "sessions"), ("turn", "turns"), ("input_tokens",) * 2, ("output_tokens",) * 2)
"""Key of a line, and field of the trace, of what may be unknown."""

_TIER_NUMBERS: dict[str | None, int] = {
    None: UNKNOWN,
    **{tier.value: number for number, tier in enumerate(TIERS)},
}
_TIER_NAMES = {number: name for name, number in _TIER_NUMBERS.items()}


def header_line(
    source: str, block_tokens: int, requests: int | None = None, num_blocks: int | None = None
) -> str:
    """The first line; a recorder that does not know the counts yet leaves them out."""
    header: dict[str, object] = {
        "format": FORMAT, "version": VERSION, "source": source, "block_tokens": block_tokens,
    }  # fmt: skip
    if requests is not None:
        header["requests"] = requests
    if num_blocks is not None:
        header["num_blocks"] = num_blocks
    return json.dumps(header, ensure_ascii=False)


def request_line(
    time_s: float,
    blocks: Sequence[int],
    session: int = UNKNOWN,
    turn: int = UNKNOWN,
    input_tokens: int = UNKNOWN,
    output_tokens: int = UNKNOWN,
    tiers: Sequence[int] = (),
) -> str:
    """One request as a line; `tiers` [blocks] are positions in TIERS, -1 nowhere, or nothing where unknown."""
    record: dict[str, object] = {"time_s": round(time_s, 6)}
    for name, value in zip(
        ("session", "turn", "input_tokens", "output_tokens"),
        (session, turn, input_tokens, output_tokens),
        strict=True,
    ):
        if value != UNKNOWN:
            record[name] = value
    record["blocks"] = list(blocks)
    if any(tier != UNKNOWN for tier in tiers):
        record["tiers"] = [[_TIER_NAMES[tier], len(list(run))] for tier, run in groupby(tiers)]
    return json.dumps(record)


def write_requests(trace: RequestTrace, path: Path) -> None:
    """Write the trace, compressed if the name ends in .zst; the file appears whole or not at all."""
    lines = [header_line(trace.source, trace.block_tokens, len(trace), trace.num_blocks)]
    blocks, tiers, starts = trace.blocks.tolist(), trace.tiers.tolist(), trace.starts.tolist()
    columns = [getattr(trace, field).tolist() for _, field in _COUNTS]
    for number, (when, *counts) in enumerate(zip(trace.times_s.tolist(), *columns, strict=True)):
        session, turn, input_tokens, output_tokens = counts
        here = slice(starts[number], starts[number + 1])
        lines.append(
            request_line(when, blocks[here], session, turn, input_tokens, output_tokens, tiers[here])
        )
    write_lines(path, lines)


def parse_requests(path: Path, header: Mapping[str, Any], lines: Sequence[str]) -> RequestTrace:
    """The trace of a file whose header is read; `path` and `lines` (header included) are for errors.

    Raises TraceError for another version or a damaged line, by its number from 1.
    """
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path} has version {header.get('version')!r}; this zerolayer reads version {VERSION}: convert it again"
        )
    try:
        block_tokens, source = _count(header["block_tokens"], "block_tokens", 1), str(header["source"])
        num_blocks = _count(header["num_blocks"], "num_blocks") if "num_blocks" in header else None
        expected = _count(header["requests"], "requests") if "requests" in header else None
    except (KeyError, ValueError) as error:
        raise damaged(path, 1, error) from error
    rows = _Rows(num_blocks)
    for number, line in enumerate(lines[1:], start=2):
        try:
            rows.add(json_object(line))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(path, number, error, "delete the line or record the trace again") from error
    if expected is not None and expected != len(rows):
        raise TraceError(
            f"{path} has {len(rows)} requests, its header says {expected}; copy or record it again"
        )
    return rows.trace(block_tokens, source)


class _Rows:
    """Collects requests line by line, so that an error can name its line."""

    def __init__(self, num_blocks: int | None) -> None:
        self._num_blocks = num_blocks
        self._known = 0  # blocks seen, where the header does not say how many there are
        self._blocks, self._tiers = array("q"), array("q")
        self._starts, self._times = array("q", [0]), array("d")
        self._counts = {field: array("q") for _, field in _COUNTS}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in one request. Raises KeyError, TypeError, ValueError or OverflowError for what cannot be."""
        when = record["time_s"]
        if isinstance(when, bool) or not isinstance(when, (int, float)) or not math.isfinite(when):
            raise ValueError(f"time_s {when!r} is not a number of seconds")
        if self._times and when < self._times[-1]:
            raise ValueError(f"time_s {when} comes after {self._times[-1]}; times must not go backwards")
        blocks = record["blocks"]
        self._check_blocks(blocks)
        tiers = _tier_numbers(record.get("tiers"), len(blocks))
        counts = {
            field: _count(record[key], key) if record.get(key) is not None else UNKNOWN
            for key, field in _COUNTS
        }
        self._blocks.extend(blocks)
        self._tiers.extend(tiers)
        self._starts.append(len(self._blocks))
        self._times.append(when)
        for field, value in counts.items():
            self._counts[field].append(value)

    def _check_blocks(self, blocks: object) -> None:
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            raise ValueError("blocks must be a list of whole numbers")
        if not blocks:
            return
        if min(blocks) < 0:
            raise ValueError(f"block {min(blocks)} is negative; blocks are numbered from 0")
        if self._num_blocks is not None:
            if max(blocks) >= self._num_blocks:
                raise ValueError(f"block {max(blocks)} is out of range; num_blocks is {self._num_blocks}")
            return
        for block in blocks:
            if block > self._known:
                raise ValueError(
                    f"block {block} is new, but {self._known} is the next number: "
                    "without num_blocks in the header, blocks are numbered in order of first reference"
                )
            self._known = max(self._known, block + 1)

    def trace(self, block_tokens: int, source: str) -> RequestTrace:
        """What has been collected."""
        return RequestTrace(
            blocks=_integers(self._blocks),
            starts=_integers(self._starts),
            times_s=np.array(self._times, dtype=np.float64),
            tiers=_integers(self._tiers),
            block_tokens=block_tokens,
            num_blocks=self._known if self._num_blocks is None else self._num_blocks,
            source=source,
            **{field: _integers(values) for field, values in self._counts.items()},
        )


def _integers(values: array[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _count(value: object, name: str, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} {value!r} must be a whole number from {least}")
    return value


def _tier_numbers(runs: Sequence[Sequence[Any]] | None, length: int) -> list[int]:
    """[length] positions in TIERS from runs [[tier or null, blocks], …]."""
    if runs is None:
        return [UNKNOWN] * length
    numbers: list[int] = []
    for tier, count in runs:
        if tier not in _TIER_NUMBERS:
            raise ValueError(f"tier {tier!r} is not known; allowed are {', '.join(TIERS)} and null")
        if _count(count, "blocks of a tier", 1) > length:
            break
        numbers.extend([_TIER_NUMBERS[tier]] * count)
    if len(numbers) != length:
        raise ValueError(f"tiers do not add up to the {length} blocks of the request")
    return numbers
