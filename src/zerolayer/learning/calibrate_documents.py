"""From documents to the sessions that a calibration is fitted on and reported on, each part with its own questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import BLOCK_TOKENS
from zerolayer.decision.grading import HORIZON_TURNS
from zerolayer.documents import Document, read_document
from zerolayer.documents.stream import build_stream, prompt_frame
from zerolayer.learning.calibrate_questions import anchor_questions
from zerolayer.learning.calibrate_sessions import MOST_TURNS, Asked, Recorded, evidence_session, shuffled
from zerolayer.learning.labelled import LabelledContract

Progress = Callable[[int, int], None]
"""Called with how many documents are done and how many there are."""

SESSIONS = 6
"""At most so many sessions a document that asks questions of itself."""

_WHOLE_DOCUMENTS = 3
"""From so many documents on, every third one is for the report; fewer are split by their questions."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Sessions to fit on, and others to report on."""

    fit: list[Recorded]
    report: list[Recorded]


def block_spans(document: Document, tokenizer: Any) -> list[tuple[int, int]]:
    """(start, end) characters of the blocks that a session would cut the document into."""
    stream = build_stream([document], tokenizer, prompt_frame(tokenizer), BLOCK_TOKENS, "")
    return [(block.char_start, block.char_end) for block in stream.blocks]


def labelled_sessions(
    contracts: Sequence[LabelledContract], tokenizer: Any, seed: int, on_progress: Progress | None = None
) -> list[Recorded]:
    """One session of gold evidence for each contract with enough questions for a horizon of turns."""
    sessions = []
    for number, contract in enumerate(contracts, start=1):
        asked = shuffled(contract.questions, seed)
        if len(asked) > HORIZON_TURNS:
            document = read_document(contract.path)
            spans = block_spans(document, tokenizer)
            sessions.append(evidence_session(contract.name, document.text, spans, asked, seed, BLOCK_TOKENS))
        if on_progress is not None:
            on_progress(number, len(contracts))
    return sessions


def own_sessions(
    document: Document, tokenizer: Any, asked: Sequence[Asked], seed: int, most: int = SESSIONS
) -> list[Recorded]:
    """Sessions of a document's questions about itself, no question in two of them."""
    order = np.random.default_rng(seed).permutation(len(asked))
    pieces = [order[i : i + MOST_TURNS] for i in range(0, len(order), MOST_TURNS)][:most]
    pieces = [piece for piece in pieces if len(piece) > HORIZON_TURNS]
    spans = block_spans(document, tokenizer) if pieces else []
    return [
        evidence_session(document.name, document.text, spans, [asked[i] for i in piece], seed, BLOCK_TOKENS)
        for piece in pieces
    ]


def split_documents(
    paths: Sequence[Path], tokenizer: Any, seed: int, on_progress: Progress | None = None
) -> Parts:
    """Documents without labels: every third one for the report, or, of one or two, every third clause and term."""
    parts = Parts([], [])
    for number, path in enumerate(paths):
        document = read_document(path)
        asked = anchor_questions(document.text)
        if len(paths) >= _WHOLE_DOCUMENTS:
            chosen = parts.report if number % 3 == 2 else parts.fit
            chosen += own_sessions(document, tokenizer, asked, seed)
        else:
            # The place of the evidence decides: both wordings of a question, and all about one clause, stay together.
            third = [question.evidence[0][0] % 3 == 2 for question in asked]
            fit = [question for question, held in zip(asked, third, strict=True) if not held]
            report = [question for question, held in zip(asked, third, strict=True) if held]
            parts.fit.extend(own_sessions(document, tokenizer, fit, seed))
            parts.report.extend(own_sessions(document, tokenizer, report, seed))
        if on_progress is not None:
            on_progress(number + 1, len(paths))
    return parts
