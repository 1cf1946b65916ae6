"""Sessions to calibrate on: what a grader sees after every turn, and whether each block is used within ten more.

Demand is a recorded trace, or the gold evidence of labelled questions, asked in an order shuffled by a seed in
both wordings. What the grader sees comes from the same code as in a live session (decision.planner).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zerolayer.core import BlockTable, BoolArray, FloatArray, IntArray
from zerolayer.decision.grading import HORIZON_TURNS
from zerolayer.decision.persistence import all_features
from zerolayer.decision.planner import end_turn
from zerolayer.learning.labelled import WORDINGS, LabelledQuestion
from zerolayer.learning.reference import ReferencePolicy
from zerolayer.learning.traces import DemandTrace, DemandTurn
from zerolayer.perception.block_features import document_features
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals, fuse

MOST_TURNS = 40
"""A session asks at most so many questions."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in one wording, and the characters [start, end) that answer it."""

    text: str
    evidence: tuple[tuple[int, int], ...]

    def evidence_in(self, start: int, end: int) -> int:
        """Characters of evidence between `start` and `end`."""
        return sum(max(0, min(end, b) - max(start, a)) for a, b in self.evidence)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Demand of one session, and `[blocks, BLOCK_FEATURES]` of its blocks."""

    trace: DemandTrace
    features: FloatArray


def by_evidence(recorded: Recorded) -> Recorded:
    """The same session with its gold evidence as demand, in equal shares; the match is the recorded one."""
    turns = []
    for turn in recorded.trace.turns:
        gold = turn.gold or ()
        turns.append(replace(turn, used=tuple((block, 1.0 / len(gold)) for block in gold)))
    return Recorded(
        replace(recorded.trace, turns=tuple(turns), labelled_by="gold evidence"), recorded.features
    )


@dataclass(frozen=True, slots=True)
class Snapshots:
    """What was known of blocks at the end of turns, and what came of it."""

    features: FloatArray  # [m, FEATURES]
    used: BoolArray  # [m] within the next 10 turns
    hand_set: FloatArray  # [m] persistence of the hand-set noisy-or
    document: IntArray  # [m] number of the session

    def __len__(self) -> int:
        return len(self.used)


def shuffled(questions: Sequence[LabelledQuestion], seed: int) -> list[Asked]:
    """Every question that has evidence, in both wordings, in an order of the seed's."""
    asked = [
        Asked(question.wording(wording), question.evidence)
        for question in questions
        if question.evidence
        for wording in WORDINGS
    ]
    order = np.random.default_rng(seed).permutation(len(asked))
    return [asked[i] for i in order]


def evidence_session(
    name: str, text: str, spans: Sequence[tuple[int, int]], asked: Sequence[Asked], seed: int, width: int
) -> Recorded:
    """A session whose turns use the blocks that hold the evidence. Needs no model: the match is that of words."""
    index, nothing = LexicalIndex(text, spans), np.zeros(len(spans), dtype=np.float32)
    turns = []
    for number, question in enumerate(asked[:MOST_TURNS]):
        held = [(i, question.evidence_in(start, end)) for i, (start, end) in enumerate(spans)]
        total = max(1, sum(characters for _, characters in held))
        used = tuple((i, characters / total) for i, characters in held if characters)
        match = fuse(Signals(index.scores(question.text)), nothing)
        scores = tuple((int(i), float(match[i])) for i in np.flatnonzero(match))
        turns.append(DemandTurn(number, question.text, used, scores, tuple(i for i, _ in used)))
    trace = DemandTrace("", name, width, (width,) * len(spans), 1, "gold evidence", seed, tuple(turns))
    table = BlockTable.create(trace.block_lengths, len(spans), width)
    document = document_features(text, spans, index)
    table.features[:, -document.shape[1] :] = document
    return Recorded(trace, table.features)


class _Watcher(ReferencePolicy):
    """Notes what a policy would see at the end of every turn."""

    def __init__(self) -> None:
        self.seen: list[FloatArray] = []
        self.hand_set: list[FloatArray] = []

    def end_turn(self, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
        """Keep the features."""
        from zerolayer.decision.grading import persistence

        self.seen.append(all_features(table))
        self.hand_set.append(persistence(table))


def snapshots(sessions: Sequence[Recorded]) -> Snapshots:
    """All blocks but the sinks, after every turn that ten more follow."""
    parts = [_snapshots(recorded, number) for number, recorded in enumerate(sessions)]
    parts = [part for part in parts if part[0].size]
    if not parts:
        return Snapshots(*_empty())
    columns: list[npt.NDArray[np.generic]] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Snapshots(*columns)  # type: ignore[arg-type]


def _snapshots(recorded: Recorded, number: int) -> tuple[FloatArray, BoolArray, FloatArray, IntArray]:
    trace, watcher = recorded.trace, _Watcher()
    n, turns = len(trace.block_lengths), len(trace)
    if turns <= HORIZON_TURNS:
        return _empty()
    table = BlockTable.create(trace.block_lengths, n, trace.block_tokens)
    table.features[:] = recorded.features
    use = np.zeros((turns, n), dtype=np.bool_)
    for row, turn in enumerate(trace.turns):
        use[row, turn.blocks] = True
        for block, score in turn.match:
            table.match[block] = score
        mass = np.zeros(n, dtype=np.float32)
        for block, share in turn.used:
            mass[block] = share
        end_turn(watcher, table, turn.blocks, mass)
    last, first = turns - HORIZON_TURNS, trace.sink_blocks
    seen = np.concatenate([features[first:] for features in watcher.seen[:last]])
    hand = np.concatenate([value[first:] for value in watcher.hand_set[:last]])
    soon = [use[turn + 1 : turn + 1 + HORIZON_TURNS, first:].any(axis=0) for turn in range(last)]
    return seen, np.concatenate(soon), hand, np.full(len(seen), number, dtype=np.int64)


def _empty() -> tuple[FloatArray, BoolArray, FloatArray, IntArray]:
    from zerolayer.decision.persistence import FEATURES

    none = np.zeros(0, dtype=np.float32)
    return np.zeros((0, len(FEATURES)), np.float32), np.zeros(0, np.bool_), none, np.zeros(0, np.int64)
