"""The demand trace: which blocks each turn of a session used, as a file that any policy can be replayed on.

JSON lines, UTF-8. The first line is the header, every further line one turn; docs/traces.md shows an example.

Header: `format` ("zerolayer-demand"), `version` (1), `model`, `document` (names), `block_tokens`,
`block_lengths` (tokens of each block, in document order), `tokens` (their sum), `sink_blocks` (how many
leading blocks hold sinks and never leave the device), `labelled_by` (the reference run that labels use),
`seed`, `commit` (optional).

Turn: `turn` (rising), `question`, `used` ([[block, mass], …] in order of first use), `match`
([[block, score], …], what perception gave before the answer, 0 to 1; blocks left out score 0), `gold`
(optional: blocks that hold the labelled evidence).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.errors import TraceError

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
        previous = -1
        for turn in self.turns:
            check_turn(turn, len(self.block_lengths), previous)
            previous = turn.turn

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def tokens(self) -> int:
        """Tokens of the document."""
        return sum(self.block_lengths)


def check_turn(turn: DemandTurn, num_blocks: int, previous: int = -1) -> None:
    """Raise TraceError unless the turn's number rises and its blocks, masses and scores are possible."""
    if turn.turn <= previous:
        raise TraceError(f"turn {turn.turn} follows turn {previous}; turn numbers must rise")
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
    """Write the trace; the file appears whole or not at all."""
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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read(path: Path) -> DemandTrace:
    """Read a trace. Raises TraceError for no trace, another version, or a damaged line (by its number)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read as a demand trace: {error}") from error
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
        raise _damaged(path, 1, error) from error
    turns: list[DemandTurn] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            turn = _turn(json.loads(line))
            check_turn(turn, len(trace.block_lengths), turns[-1].turn if turns else -1)
        except (KeyError, TypeError, ValueError, TraceError) as error:
            raise _damaged(path, number, error) from error
        turns.append(turn)
    return DemandTrace(
        trace.model,
        trace.document,
        trace.block_tokens,
        trace.block_lengths,
        trace.sink_blocks,
        trace.labelled_by,
        trace.seed,
        tuple(turns),
        trace.commit,
    )


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
    gold = record.get("gold")
    return DemandTurn(
        turn=int(record["turn"]),
        question=str(record["question"]),
        used=_pairs(record["used"]),
        match=_pairs(record["match"]),
        gold=None if gold is None else tuple(int(block) for block in gold),
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
    return record


def _damaged(path: Path, line: int, error: Exception) -> TraceError:
    what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
    return TraceError(f"{path} line {line} is damaged: {what}; record the trace again")
