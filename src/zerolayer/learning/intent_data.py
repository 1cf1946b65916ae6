"""What intent is fitted and measured on: labelled contracts in several orders of asking, and dialogues.

The order of questions in the file of contracts is its authors' list of categories, the same for every contract: an
artefact. So questions are also asked in a shuffled order and in the order of their evidence (reading order).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from xxhash import xxh3_64_intdigest

from zerolayer.errors import UsageError
from zerolayer.learning.labelled import LabelledContract, Wording
from zerolayer.perception.intent import AskedTurn, IntentModel
from zerolayer.perception.intent_features import PlacedTurn
from zerolayer.perception.intent_model import IntentParameters

Order = Literal["file", "shuffled", "reading"]
ORDERS: tuple[Order, ...] = get_args(Order)
BLOCK_CHARS = 300
"""About 64 tokens."""

_TEST_SHARE = 3  # one dialogue in this many is kept for the test


@dataclass(frozen=True, slots=True)
class IntentCase:
    """A contract and its answerable questions in the order of the file, with the blocks of their evidence."""

    name: str
    model: IntentModel
    turns: tuple[PlacedTurn, ...]
    asked: tuple[AskedTurn, ...]
    evidence: tuple[tuple[int, ...], ...]  # blocks
    starts: tuple[int, ...]  # first character of the evidence

    def order(self, order: Order, seed: int) -> list[int]:
        """Indices of the questions as they are asked in that order. A shuffle depends on seed and name alone."""
        if order == "reading":
            return sorted(range(len(self.starts)), key=lambda i: (self.starts[i], i))
        if order == "shuffled":
            generator = np.random.default_rng([seed, xxh3_64_intdigest(self.name.encode())])
            return [int(i) for i in generator.permutation(len(self.starts))]
        return list(range(len(self.starts)))


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Messages of a user and the answers to them."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]


def block_spans(text: str, width: int = BLOCK_CHARS) -> list[tuple[int, int]]:
    """Spans of blocks of `width` characters that tile the text."""
    return [(start, min(len(text), start + width)) for start in range(0, len(text), width)]


def intent_case(
    contract: LabelledContract,
    wording: Wording,
    parameters: IntentParameters | None = None,
    model: IntentModel | None = None,
) -> IntentCase:
    """A labelled contract as history: every question used the blocks that hold its evidence.

    `model`, of the same contract, saves building its index again.
    """
    text = contract.text()
    spans = block_spans(text)
    model = model or IntentModel(text, spans, parameters=parameters)
    questions = [q for q in contract.questions if q.evidence]
    evidence = tuple(
        tuple(sorted({b for a, z in q.evidence for b in range(a // BLOCK_CHARS, (z - 1) // BLOCK_CHARS + 1)}))
        for q in questions
    )
    asked = tuple(AskedTurn(q.wording(wording), b) for q, b in zip(questions, evidence, strict=True))
    placed = [model.place(turn) for turn in asked]
    starts = tuple(min(a for a, _ in q.evidence) for q in questions)
    return IntentCase(
        contract.name, model, tuple(p for p in placed if p is not None), asked, evidence, starts
    )


def dialogues(data: Path, test: bool) -> list[Dialogue]:
    """The test third of the dialogues of `data`/dialogue/*.jsonl, or the rest. Raises UsageError.

    A line holds `history` [{`user`, `bot`}]; its task label is not looked at. The split hangs on the first message.
    """
    files = sorted((data / "dialogue").glob("*.jsonl"))
    if not files:
        raise UsageError(
            f"{data / 'dialogue'} has no *.jsonl; give the folder that holds dialogue/ and cuad/"
        )
    found = []
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            turns = json.loads(line)["history"]
            if not turns:
                continue
            in_test = xxh3_64_intdigest(turns[0]["user"].encode()) % _TEST_SHARE == 0
            if in_test is test:
                found.append(Dialogue(tuple(t["user"] for t in turns), tuple(t["bot"] for t in turns)))
    return found
