"""`zerolayer ask`: questions about documents, answered with the pages they came from."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import (
    build_settings,
    files_argument,
    json_option,
    questions_options,
    reading_option,
    settings_options,
)
from zerolayer.cli.output import emit_json, note
from zerolayer.cli.reading import citation_line, note_early, open_documents, read_on, warn_about
from zerolayer.errors import EncodingError, UsageError

if TYPE_CHECKING:
    from zerolayer.config import Settings
    from zerolayer.core import Answer
    from zerolayer.runtime.reading import ReadReport


@click.command()
@files_argument
@questions_options
@reading_option
@settings_options()
@json_option
def ask(
    files: tuple[Path, ...],
    questions: tuple[str, ...],
    questions_file: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Ask questions about FILES (.pdf, .txt, .md), which are read as one document.

    Reading is paid once: the next time the same files start from storage. A question about a long document that has
    not been read is answered within seconds from the blocks that its words and meaning point at, the pages cited; the
    whole document is read after the last answer. Ctrl-C ends that and keeps what has been read. Early answers do not
    change by it: ask again, or give --read-first, for an answer over the whole document.
    """
    asked = gather_questions(questions, questions_file)
    settings = build_settings(flags)
    answers, started, first_answer_s = [], time.perf_counter(), 0.0
    with open_documents(files, settings) as session:
        for question in asked:
            if not session.answers_early:
                read_on(session)
            stream = not as_json and sys.stdout.isatty()
            if not as_json and len(asked) > 1:
                click.echo(f"Q: {question}")
            answer = session.ask(question, on_text=_echo_piece if stream else None)
            first_answer_s = first_answer_s or time.perf_counter() - started
            warn_about(answer)
            answers.append(answer)
            if not as_json:
                print_answer(answer, streamed=stream, name_document=len(files) > 1)
            note_early(session, answer, time.perf_counter() - started)
        if not session.is_read:
            note("reading on, so that the next questions start from storage; Ctrl-C keeps what has been read")
            read_on(session)
        report = session.read_report
    if as_json:
        emit_json(to_json(files, settings, report, answers, first_answer_s))


def gather_questions(given: Sequence[str], path: str | None) -> list[str]:
    """Questions of the flags, then those of the file or stdin. Raises UsageError when there is none."""
    lines = list(given)
    if path is not None:
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise EncodingError(
                f"questions file {path} is not UTF-8 ({error.reason}); save it as UTF-8"
            ) from error
        lines += [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise UsageError(
            "no question: give -q 'When does the term end?', --questions FILE, or --questions - for stdin"
        )
    return questions


def print_answer(answer: Answer, streamed: bool, name_document: bool) -> None:
    """The answer (unless it was streamed already), then one line a citation."""
    click.echo("" if streamed else answer.text.strip())
    for citation in answer.citations:
        click.echo("  " + citation_line(citation, name_document))
    click.echo()


def to_json(
    files: Sequence[Path],
    settings: Settings,
    report: ReadReport,
    answers: Sequence[Answer],
    first_answer_s: float,
) -> dict[str, object]:
    """The object that --json prints."""
    return {
        "documents": [str(path) for path in files],
        "model": settings.model,
        "policy": settings.policy,
        "document_tokens": report.tokens_total,
        "prefilled_document_tokens": report.tokens_prefilled,
        "document_tokens_from_storage": report.tokens_from_storage,
        "early_document_tokens": report.tokens_early,
        "recomputed_tokens": report.recomputed_tokens,
        "first_answer_s": first_answer_s,
        "read_s": report.seconds,
        "questions": [
            {
                "question": a.question,
                "answer": a.text,
                "early": a.early,
                "citations": a.citations,
                "metrics": a.metrics,
            }
            for a in answers
        ],
    }


def _echo_piece(text: str) -> None:
    click.echo(text, nl=False)
