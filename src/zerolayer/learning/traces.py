"""The demand trace: which blocks each turn of a session used, as a file that any policy can be replayed on.

JSON lines, UTF-8. The first line is the header, every further line one turn; docs/traces.md shows an example.

Header: `format` ("zerolayer-demand"), `version` (1), `model`, `document` (names), `block_tokens`,
`block_lengths` (tokens of each block, in document order), `tokens` (their sum), `sink_blocks` (how many
leading blocks hold sinks and never leave the device), `labelled_by` (the reference run that labels use),
`seed`, `commit` (optional).

Turn: `turn` (rising), `question`, `used` ([[block, mass], …] in order of first use), `match`
([[block, score], …], what perception gave before the answer, 0 to 1; blocks left out score 0), and, where
known, `gold` (blocks that hold the labelled evidence), `time_s` (seconds since any origin, when the question came) and
`tiers` (where each used block lay then: [tier or null, …] beside `used`). A file is one session; `requests` holds the
streams of many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import FloatArray, Tier
from zerolayer.errors import TraceError
from zerolayer.learning.trace_lines import damaged, json_object, read_lines, write_lines

FORMAT = "zerolayer-demand"
VERSION = 1


@dataclass(frozen=True, slots=True)
class DemandTurn:
    """One question and the blocks its answer used."""

    turn: int
    question: str
    used: tuple[tuple[int, float], ...]  # (block, attention mass), in order of first use
    match: tuple[tuple[int, float], ...] = ()  # (block, score 0 to 1), known before the answer
    gold: tuple[int, ...] | None = None
    time_s: float | None = None  # when the question came, since any origin
    tiers: tuple[Tier | None, ...] | None = None  # where each used block lay then; None nowhere

    @property
    def blocks(self) -> list[int]:
        """The used blocks in order of first use."""
        return [block for block, _ in self.used]


@dataclass(frozen=True, slots=True)
class DemandTrace:
    """A session's demand. Raises TraceError for an index, a mass or a length that cannot be."""

    model: str
    document: str
    block_tokens: int
    block_lengths: tuple[int, ...]
    sink_blocks: int
    labelled_by: str
    seed: int
    turns: tuple[DemandTurn, ...] = field(default=())
    commit: str | None = None

    def __post_init__(self) -> None:
        lengths, limit = self.block_lengths, self.block_tokens
        if not lengths or not all(1 <= length <= limit for length in lengths):
            raise TraceError(f"block_lengths must be one or more lengths from 1 to {limit} tokens")
        if not 0 <= self.sink_blocks <= len(self.block_lengths):
            raise TraceError(f"sink_blocks {self.sink_blocks} must lie within 0 to {len(self.block_lengths)}")
        previous = None
        for turn in self.turns:
            check_turn(turn, len(self.block_lengths), previous)
            previous = turn

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def tokens(self) -> int:
        """Tokens of the document."""
        return sum(self.block_lengths)


def check_turn(turn: DemandTurn, num_blocks: int, previous: DemandTurn | None = None) -> None:
    """Raise TraceError unless the turn follows the previous one and its blocks, masses and scores are possible."""
    _check_order(turn, previous)
    gold = [] if turn.gold is None else list(turn.gold)
    for name, blocks in (("used", turn.blocks), ("match", [b for b, _ in turn.match]), ("gold", gold)):
        bad = [block for block in blocks if not 0 <= block < num_blocks]
        if bad:
            raise TraceError(f"turn {turn.turn}: {name} block {bad[0]} is out of range 0 to {num_blocks - 1}")
        if len(set(blocks)) != len(blocks):
            raise TraceError(f"turn {turn.turn}: {name} names a block twice")
    if not all(math.isfinite(mass) and mass >= 0 for _, mass in turn.used):
        raise TraceError(f"turn {turn.turn}: the mass of a used block is negative or not a number")
    if not all(0 <= score <= 1 for _, score in turn.match):
        raise TraceError(f"turn {turn.turn}: a match score lies outside 0 to 1")
    if turn.tiers is not None and len(turn.tiers) != len(turn.used):
        raise TraceError(
            f"turn {turn.turn}: tiers has {len(turn.tiers)} elements for {len(turn.used)} used blocks"
        )


def _check_order(turn: DemandTurn, previous: DemandTurn | None) -> None:
    last = -1 if previous is None else previous.turn
    if turn.turn <= last:
        raise TraceError(f"turn {turn.turn} follows turn {last}; turn numbers must rise")
    if turn.time_s is None:
        return
    if not math.isfinite(turn.time_s):
        raise TraceError(f"turn {turn.turn}: time_s {turn.time_s} is not a number of seconds")
    if previous is not None and previous.time_s is not None and turn.time_s < previous.time_s:
        raise TraceError(
            f"turn {turn.turn}: time_s {turn.time_s} comes after {previous.time_s}; times must not go backwards"
        )


def demand_set(mass: FloatArray, share: float = 0.9) -> list[int]:
    """The smallest set of blocks that holds `share` of the attention mass [n], heaviest first.

    This is the definition of "used" (DESIGN section 1); the caller has already zeroed sinks and the last
    tokens. Equal masses are taken in document order. Empty if there is no mass.
    """
    weights = np.asarray(mass, dtype=np.float64)
    total = float(weights.sum())
    if total <= 0.0:
        return []
    order = np.argsort(-weights, kind="stable")
    held = np.cumsum(weights[order])
    # A share that is met exactly must not need one more block because of float32 rounding.
    count = int(np.searchsorted(held, share * total * (1 - 1e-6), side="left")) + 1
    return [int(block) for block in order[: min(count, len(order))]]


def write(trace: DemandTrace, path: Path) -> None:
    """Write the trace, compressed if the name ends in .zst; the file appears whole or not at all."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": trace.model,
        "document": trace.document,
        "block_tokens": trace.block_tokens,
        "block_lengths": list(trace.block_lengths),
        "tokens": trace.tokens,
        "sink_blocks": trace.sink_blocks,
        "labelled_by": trace.labelled_by,
        "seed": trace.seed,
    }
    if trace.commit is not None:
        header["commit"] = trace.commit
    lines = [header, *(_turn_record(turn) for turn in trace.turns)]
    write_lines(path, (json.dumps(line, ensure_ascii=False) for line in lines))


def read(path: Path) -> DemandTrace:
    """Read a demand trace. Raises TraceError for no trace, another version, or a damaged line (by its number).

    `trace_files.read_trace` reads this and request traces.
    """
    return parse_demand(path, read_lines(path))


def parse_demand(path: Path, lines: Sequence[str]) -> DemandTrace:
    """The trace in `lines`; `path` is for errors, as in `read`."""
    header = _header(path, lines)
    try:
        trace = DemandTrace(
            model=str(header["model"]),
            document=str(header["document"]),
            block_tokens=int(header["block_tokens"]),
            block_lengths=tuple(int(length) for length in header["block_lengths"]),
            sink_blocks=int(header["sink_blocks"]),
            labelled_by=str(header["labelled_by"]),
            seed=int(header["seed"]),
            commit=header.get("commit"),
        )
        if trace.tokens != int(header["tokens"]):
            raise ValueError(f"tokens is {header['tokens']}, block_lengths add up to {trace.tokens}")
    except (KeyError, TypeError, ValueError, TraceError) as error:
        raise damaged(path, 1, error) from error
    turns: list[DemandTurn] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            turn = _turn(json_object(line))
            check_turn(turn, len(trace.block_lengths), turns[-1] if turns else None)
        except (KeyError, TypeError, ValueError, TraceError) as error:
            raise damaged(path, number, error) from error
        turns.append(turn)
    return replace(trace, turns=tuple(turns))


def _header(path: Path, lines: Sequence[str]) -> dict[str, Any]:
    try:
        header = json.loads(lines[0]) if lines else None
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise TraceError(f'{path} is not a demand trace: its first line must have format "{FORMAT}"')
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path} has version {header.get('version')!r}; "
            f"this zerolayer reads version {VERSION}: record it again"
        )
    return header


def _turn(record: Mapping[str, Any]) -> DemandTurn:
    gold, when, tiers = (record.get(key) for key in ("gold", "time_s", "tiers"))
    return DemandTurn(
        turn=int(record["turn"]),
        question=str(record["question"]),
        used=_pairs(record["used"]),
        match=_pairs(record["match"]),
        gold=None if gold is None else tuple(int(block) for block in gold),
        time_s=None if when is None else float(when),
        tiers=None if tiers is None else tuple(None if tier is None else Tier(tier) for tier in tiers),
    )


def _pairs(pairs: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(block), float(value)) for block, value in pairs)


def _turn_record(turn: DemandTurn) -> dict[str, object]:
    record: dict[str, object] = {
        "turn": turn.turn,
        "question": turn.question,
        "used": [list(pair) for pair in turn.used],
        "match": [list(pair) for pair in turn.match],
    }
    if turn.gold is not None:
        record["gold"] = list(turn.gold)
    if turn.time_s is not None:
        record["time_s"] = round(turn.time_s, 6)
    if turn.tiers is not None:
        record["tiers"] = list(turn.tiers)
    return record
