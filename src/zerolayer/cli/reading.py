"""What `ask` and `chat` share: fetching the model, reading with progress, and showing citations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zerolayer.cli.output import note, progress

if TYPE_CHECKING:
    from zerolayer.config import Settings
    from zerolayer.core import Answer, Citation, ReadProgress
    from zerolayer.session import ReadReport, Session


@contextmanager
def read_session(files: Sequence[Path], settings: Settings) -> Iterator[tuple[Session, ReadReport]]:
    """Open a session on documents and read them, with progress on stderr; closes the session at the end."""
    from zerolayer.engines.hf.models import resolve_model

    resolve_model(settings.model, on_progress=note)  # may take a minute the first time: say so

    from zerolayer.session import open_session

    with open_session(files, settings) as session:
        with progress("reading") as update:

            def on_progress(state: ReadProgress) -> None:
                update(state.tokens_done, state.tokens_total)

            report = session.read(on_progress)
        if report.tokens_from_storage:
            note(f"{report.tokens_from_storage:,} of {report.tokens_total:,} tokens came from storage")
        yield session, report


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
