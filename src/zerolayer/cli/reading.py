"""What `ask` and `chat` share: fetching the model, reading with progress, and showing citations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zerolayer.cli.output import note, progress

if TYPE_CHECKING:
    from zerolayer.config import Settings
    from zerolayer.core import Answer, Citation, ReadProgress
    from zerolayer.session import Session


def open_documents(files: Sequence[Path], settings: Settings) -> Session:
    """Open a session on documents, after fetching the model where that is needed. Close it, or use `with`."""
    from zerolayer.engines.hf.models import resolve_model

    resolve_model(settings.model, on_progress=note)  # may take a minute the first time: say so

    from zerolayer.session import open_session

    return open_session(files, settings)


def read_on(session: Session, until: Callable[[], bool] | None = None) -> None:
    """Read what is not read yet, with progress on stderr, as long as `until` is false."""
    if session.is_read:
        return
    with progress("reading") as update:

        def on_progress(state: ReadProgress) -> None:
            update(state.tokens_done, state.tokens_total)

        report = session.read(on_progress, until)
    if session.is_read and report.tokens_from_storage:
        note(f"{report.tokens_from_storage:,} of {report.tokens_total:,} tokens came from storage")


def note_early(session: Session, answer: Answer, seconds: float) -> None:
    """Say on stderr from how little an early answer was given; silent for any other one."""
    if answer.early:
        report = session.read_report
        note(
            f"answered after {seconds:.1f} s from {answer.metrics.tier_tokens['device']:,} of "
            f"{report.tokens_total:,} tokens; {report.tokens_read:,} have been read in order"
        )


def citation_line(citation: Citation, name_document: bool) -> str:
    """`p. 12, clause 4.2: "quoted line"`, with the document's name in front when there are several."""
    place = f"{citation.document}, " if name_document else ""
    place += f"p. {citation.page}"
    if citation.clause:
        place += f", clause {citation.clause}"
    return f'{place}: "{" ".join(citation.quote.split())}"'


def warn_about(answer: Answer) -> None:
    """Say on stderr what went less than well while answering; silent when nothing did."""
    metrics = answer.metrics
    if metrics.status != "active":
        note(f"warning: {metrics.status}: {metrics.reason}")
    if metrics.corrupt_blocks:
        note(f"warning: {metrics.corrupt_blocks} stored blocks were damaged and have been recomputed")
    if metrics.discarded_tokens:
        note(f"warning: {metrics.discarded_tokens} tokens were lost; please report this")
