"""Contracts with labelled questions: which characters of a text answer which question, in two wordings.

A folder holds `contracts/*.txt` and `questions.jsonl`, one line a contract: `contract` (file name), `split`,
`questions` [{`category`, `question`, `paraphrase`, `answer`, `evidence` [[start, end] character offsets]}].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from zerolayer.errors import UsageError

Wording = Literal["question", "paraphrase"]
WORDINGS: tuple[Wording, ...] = get_args(Wording)


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question in both wordings, and the characters [start, end) of its evidence; none where nothing answers it."""

    question: str
    paraphrase: str
    category: str
    answer: str
    evidence: tuple[tuple[int, int], ...]

    def wording(self, wording: Wording) -> str:
        """The question as it is put in that wording."""
        return self.question if wording == "question" else self.paraphrase

    def evidence_in(self, start: int, end: int) -> int:
        """Characters of evidence between `start` and `end`."""
        return sum(max(0, min(end, b) - max(start, a)) for a, b in self.evidence)


@dataclass(frozen=True, slots=True)
class LabelledContract:
    """A contract's text file and the questions about it."""

    path: Path
    split: str
    questions: tuple[LabelledQuestion, ...]

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def text(self) -> str:
        """The whole text; offsets of evidence count its characters."""
        return self.path.read_text(encoding="utf-8")


def labelled_contracts(data: Path, split: str | None = None) -> list[LabelledContract]:
    """All contracts of a folder in the order of its index, of one split where given. Raises UsageError."""
    index = data / "questions.jsonl"
    if not index.is_file():
        raise UsageError(f"--data {data} has no questions.jsonl; give a folder with it and contracts/*.txt")
    contracts = []
    for number, line in enumerate(index.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                contracts.append(_contract(data, json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{index} line {number} is no labelled contract: {error!r}") from error
    found = [contract for contract in contracts if split is None or contract.split == split]
    if not found:
        known = ", ".join(sorted({contract.split for contract in contracts})) or "none"
        raise UsageError(f"--split {split!r} names no contract of {index}; its splits are: {known}")
    return found


def contract_named(contracts: Sequence[LabelledContract], name: str) -> LabelledContract:
    """The one contract whose file name contains `name`, case aside. Raises UsageError for none or several."""
    found = [contract for contract in contracts if name.lower() in contract.name.lower()]
    if len(found) != 1:
        names = ", ".join(contract.name[:40] for contract in (found or list(contracts))[:3])
        raise UsageError(f"--contract {name!r} names {len(found)} contracts, it must name one of: {names}, …")
    return found[0]


def _contract(data: Path, line: dict[str, object]) -> LabelledContract:
    questions = line["questions"]
    if not isinstance(questions, list):
        raise TypeError("questions must be a list")
    return LabelledContract(
        data / "contracts" / str(line["contract"]),
        str(line.get("split", "")),
        tuple(
            LabelledQuestion(
                q["question"],
                q.get("paraphrase", q["question"]),
                q.get("category", ""),
                q.get("answer", ""),
                tuple((int(start), int(end)) for start, end in q["evidence"]),
            )
            for q in questions
        ),
    )
