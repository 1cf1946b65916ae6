"""`zerolayer bench cold`: seconds to the first answer about a document that is not stored, and how good it is."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import model_option, report, seed_option
from zerolayer.bench.contract import LEAST_PAGES, write_contract
from zerolayer.cli.options import json_option
from zerolayer.cli.output import progress
from zerolayer.config import load_settings
from zerolayer.documents import read_documents
from zerolayer.errors import UsageError
from zerolayer.learning.labelled import LabelledQuestion, contract_named, labelled_contracts

if TYPE_CHECKING:
    from zerolayer.core import Answer, Citation, ReadProgress
    from zerolayer.session import Session

LEAST_SPEEDUP = 5.0
"""An early first answer comes at least this many times sooner than one after reading."""

LEAST_RIGHT = 0.9
"""Early answers cite the right place at least this often, over answers after reading."""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question, and how to tell that a citation is right; None where that is not known."""

    text: str
    is_right: Callable[[Citation], bool] | None = None


@contextmanager
def empty_home() -> Iterator[None]:
    """Sessions and sentence vectors lie in a new folder: whatever the user's cache holds, the document is cold."""
    before = os.environ.get("ZEROLAYER_HOME")
    with tempfile.TemporaryDirectory(prefix="zerolayer-cold-") as home:
        os.environ["ZEROLAYER_HOME"] = home
        try:
            yield
        finally:
            del os.environ["ZEROLAYER_HOME"]
            if before is not None:
                os.environ["ZEROLAYER_HOME"] = before


def contract_questions(path: Path, pages: int, seed: int) -> list[AskedQuestion]:
    """Write the synthetic contract to `path`; its questions know their pages."""
    key = write_contract(path, pages, seed)
    return [AskedQuestion(q.question, partial(_on_pages, q.pages)) for q in key.questions]


def _on_pages(pages: Sequence[int], citation: Citation) -> bool:
    return citation.page in pages


def labelled_questions(data: Path, contract: str) -> tuple[Path, list[AskedQuestion]]:
    """A labelled contract's file and its answerable questions: a citation is right that overlaps the evidence."""
    labelled = contract_named(labelled_contracts(data), contract)
    return labelled.path, [
        AskedQuestion(question.question, partial(_on_evidence, question))
        for question in labelled.questions
        if question.evidence
    ]


def _on_evidence(question: LabelledQuestion, citation: Citation) -> bool:
    return question.evidence_in(citation.char_start, citation.char_end) > 0


def measure(
    session: Session, questions: Sequence[AskedQuestion], answer_tokens: int, opened_s: float
) -> dict[str, Any]:
    """Answer all questions early, read the document, answer them again. `opened_s` went before.

    An early answer does not depend on those before it, so each could have been the first: times are of the median one.
    """
    early, early_s = _answers(session, questions, answer_tokens, "early answers")
    with progress("reading") as update:

        def on_progress(state: ReadProgress) -> None:
            update(state.tokens_done, state.tokens_total)

        read = session.read(on_progress)
    after, after_s = _answers(session, questions, answer_tokens, "answers after reading")
    first, read_first = opened_s + common.middle(early_s), opened_s + read.seconds + common.middle(after_s)
    rows = [
        _row(question, a, b, seconds)
        for question, a, b, seconds in zip(questions, early, after, early_s, strict=True)
    ]
    known = [row for row in rows if row["right_early"] is not None]
    return {
        "document_tokens": read.tokens_total,
        "questions": len(questions),
        "first_answer_s": first,
        "read_first_answer_s": read_first,
        "speedup": read_first / first,
        "first_question_s": opened_s + early_s[0],
        "open_s": opened_s,
        "read_s": read.seconds,
        "early_answer_s": common.middle(early_s),
        "answer_s": common.middle(after_s),
        "tokens_before_first_answer": early[0].metrics.prefilled_document_tokens,
        "early_document_tokens": read.tokens_early,
        "prefilled_document_tokens": read.tokens_prefilled,
        "recomputed_tokens": read.recomputed_tokens,
        "discarded_tokens": max(answer.metrics.discarded_tokens for answer in (*early, *after)),
        "device_bytes": max(answer.metrics.device_bytes for answer in (*early, *after)),
        "labelled_questions": len(known),
        "right_early": sum(row["right_early"] for row in known),
        "right_after": sum(row["right_after"] for row in known),
        "same_first_page": sum(row["same_first_page"] for row in rows),
        "same_answer": sum(row["early"] == row["after"] for row in rows),
        "answers": rows,
    }


def _answers(
    session: Session, questions: Sequence[AskedQuestion], answer_tokens: int, label: str
) -> tuple[list[Answer], list[float]]:
    answers, seconds = [], []
    with progress(label, unit="questions") as update:
        for number, question in enumerate(questions, start=1):
            started = time.perf_counter()
            answers.append(session.ask(question.text, max_new_tokens=answer_tokens))
            seconds.append(time.perf_counter() - started)
            update(number, len(questions))
    return answers, seconds


def _row(question: AskedQuestion, early: Answer, after: Answer, seconds: float) -> dict[str, Any]:
    def right(answer: Answer) -> bool | None:
        judge = question.is_right
        return None if judge is None else any(judge(citation) for citation in answer.citations)

    def pages(answer: Answer) -> list[int]:
        return [citation.page for citation in answer.citations]

    return {
        "question": question.text,
        "answered_early": early.early,
        "early": early.text,
        "after": after.text,
        "early_pages": pages(early),
        "after_pages": pages(after),
        "right_early": right(early),
        "right_after": right(after),
        "same_first_page": pages(early)[:1] == pages(after)[:1],
        "early_answer_s": seconds,
        "early_tokens": early.metrics.prefilled_document_tokens,
    }


def run(path: Path, questions: Sequence[AskedQuestion], flags: dict[str, Any]) -> dict[str, Any]:
    """Load the model, open the document cold and measure; every question is answered early."""
    from zerolayer.engines.hf.loading import load_encoder, load_engine
    from zerolayer.session import session_of

    answer_tokens = flags.pop("answer_tokens")
    settings = load_settings(**flags, early_share=1.0)
    started = time.perf_counter()
    engine, encoder = load_engine(settings), load_encoder(settings)
    with empty_home(), session_of(read_documents([path]), engine, settings, encoder) as session:
        return measure(session, questions, answer_tokens, time.perf_counter() - started)


@click.command()
@click.option("--pages", default=127, show_default=True, type=click.IntRange(LEAST_PAGES))
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Another document."
)
@click.option("-q", "--question", "asked", multiple=True, help="A question about --file; may be repeated.")
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Labelled contracts."
)
@click.option("--contract", help="Part of the file name of a contract in --data.")
@click.option("--limit", type=click.IntRange(1), help="Most questions asked [default: all].")
@click.option("--device-budget", default="auto", show_default=True)
@click.option("--answer-tokens", default=48, show_default=True)
@model_option
@seed_option
@json_option
def command(
    pages: int,
    file: Path | None,
    asked: tuple[str, ...],
    data: Path | None,
    contract: str | None,
    limit: int | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Seconds to the first answer about a cold document, against reading all of it first.

    Asks the synthetic contract, a document of your own (--file, -q) or a labelled one (--data, --contract). Exits with
    3 unless the first answer comes 5 times sooner and early answers cite the right place 0.9 times as often.
    """
    with tempfile.TemporaryDirectory(prefix="zerolayer-cold-") as folder:
        if file is not None:
            if not asked:
                raise UsageError("--file needs at least one question: -q 'When does the term end?'")
            questions, path = [AskedQuestion(text) for text in asked], file
        elif data is not None:
            path, questions = labelled_questions(data, contract or "")
        else:
            path = Path(folder) / "contract.pdf"
            questions = contract_questions(path, pages, flags["seed"])
        measured = run(path, questions[:limit], dict(flags))
    quick = measured["speedup"] >= LEAST_SPEEDUP
    right = measured["right_early"] >= LEAST_RIGHT * measured["right_after"]
    result = {
        "bench": "cold",
        "document": path.name,
        "baseline": "the same questions after the whole document was read, in the same run",
        "threshold": f"speedup >= {LEAST_SPEEDUP}, right_early >= {LEAST_RIGHT} x right_after",
        "passed": quick and right,
        **measured,
        **common.conditions(flags["model"], flags["seed"]),
    }
    columns = ("question", "s", "tokens", "pages early", "pages after", "right early", "right after")
    keys = (
        "question",
        "early_answer_s",
        "early_tokens",
        "early_pages",
        "after_pages",
        "right_early",
        "right_after",
    )
    title = (
        f"{measured['first_answer_s']:.1f} s to the first answer, "
        f"{measured['read_first_answer_s']:.1f} s by reading first"
    )
    return report(
        result, as_json, title, columns, [[row[key] for key in keys] for row in measured["answers"]]
    )
