"""`zerolayer trace record`: questions about documents, recorded as a demand trace or as a request stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import (
    build_settings,
    files_argument,
    json_option,
    questions_options,
    settings_options,
)
from zerolayer.cli.output import emit_json, note, progress
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.learning.recording import Arrival
    from zerolayer.learning.trace_files import Trace
    from zerolayer.learning.trace_info import TraceInfo
    from zerolayer.scheduler import TurnResult
    from zerolayer.session import Session


@click.command()
@files_argument
@questions_options
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write."
)
@click.option(
    "--kind",
    type=click.Choice(["demand", "requests"]),
    default="demand",
    show_default=True,
    help="What each answer used (a reference run of every answer), or the blocks that each prompt holds.",
)
@settings_options()
@json_option
def record(
    files: tuple[Path, ...],
    questions: tuple[str, ...],
    questions_file: str | None,
    output: Path,
    kind: str,
    as_json: bool,
    **flags: Any,
) -> None:
    """Ask questions about FILES and record which blocks they reference, with time and tier, in a trace.

    A demand trace is labelled after the last answer. A request stream is written while the questions are asked, as a
    server does it (`zerolayer.learning.request_recording`).
    """
    from zerolayer.cli.ask import gather_questions
    from zerolayer.cli.reading import open_documents, read_on
    from zerolayer.learning.trace_info import describe

    asked, settings = gather_questions(questions, questions_file), build_settings(flags)
    if output.exists():
        raise UsageError(f"{output} exists and is not overwritten; name another file or remove it")
    with open_documents(files, settings) as session:
        read_on(session)
        found = (_record_demand if kind == "demand" else _record_requests)(session, asked, output)
    if as_json:
        emit_json({"file": output, **_summary(describe(found))})
    else:
        note(f"{len(found)} questions recorded")
        click.echo(output)


def _record_demand(session: Session, asked: Sequence[str], output: Path) -> Trace:
    import time

    from zerolayer.learning.recording import Arrival, block_tiers, record_demand
    from zerolayer.learning.traces import write

    turns: list[TurnResult] = []
    arrivals: list[Arrival] = []
    begun = time.monotonic()
    with progress("asking", "questions") as update:
        for number, question in enumerate(asked, start=1):
            arrivals.append(Arrival(time.monotonic() - begun, block_tiers(session)))
            turns.append(session.answer(question)[1])
            update(number, len(asked))
    with progress("labelling", "questions") as update:
        found = record_demand(
            session, turns, asked, on_progress=lambda done: update(done, len(asked)), arrivals=arrivals
        )
    write(found, output)
    return found


def _record_requests(session: Session, asked: Sequence[str], output: Path) -> Trace:
    from zerolayer.learning.recording import block_tiers
    from zerolayer.learning.request_recording import RequestRecorder
    from zerolayer.learning.trace_files import read_trace

    ids = [block.id for block in session.stream.blocks]
    name = ", ".join(document.name for document in session.stream.documents)
    with (
        RequestRecorder(output, session.settings.block_tokens, f"questions about {name}") as recorder,
        progress("asking", "questions") as update,
    ):
        for number, question in enumerate(asked, start=1):
            tokens = len(session.stream.token_ids) + len(session.question_ids(question))
            ticket = recorder.arrive(ids, name, tokens, block_tiers(session))
            recorder.finish(ticket, len(session.answer(question)[1].token_ids))
            update(number, len(asked))
    return read_trace(output)


def _summary(found: TraceInfo) -> dict[str, object]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(found).items() if name != "windows"}
