"""`zerolayer chat`: a conversation about documents, answers streamed as they are made."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import build_settings, files_argument, reading_option, settings_options
from zerolayer.cli.output import note
from zerolayer.cli.reading import citation_line, note_early, open_documents, read_on, warn_about
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.core import Answer
    from zerolayer.session import Session

_HELP = "/sources shows where the last answer came from, /quit (or Ctrl-D) ends"


@click.command()
@files_argument
@reading_option
@settings_options()
def chat(files: tuple[Path, ...], **flags: Any) -> None:
    """Talk about FILES (.pdf, .txt, .md); each line is a question, earlier turns are remembered.

    /sources shows the quotes behind the last answer, /quit or Ctrl-D ends. Questions about a long document that has
    not been read are answered from the blocks they point at, the pages cited; at a terminal it is read between them.
    """
    settings = build_settings(flags)
    interactive = sys.stdin.isatty()
    last: Answer | None = None
    with open_documents(files, settings) as session:
        if not session.answers_early:
            read_on(session)
        note(f"{session.read_report.tokens_total:,} tokens{' read' if session.is_read else ''}; {_HELP}")
        for line in _lines(interactive):
            if line == "/quit":
                return
            if line == "/sources":
                _print_sources(last, name_document=len(files) > 1)
            elif line.startswith("/"):
                note(f"unknown command {line}; {_HELP}")
            else:
                last = _answer(session, line, interactive) or last
                if interactive:
                    read_on(session, until=_line_waits)


def _lines(interactive: bool) -> Iterator[str]:
    """Non-blank lines of the terminal or of stdin, until they end."""
    if interactive:
        import readline  # noqa: F401  gives input() its history and line editing
    while True:
        try:
            line = (input("> ") if interactive else input()).strip()
        except EOFError:
            if interactive:
                note("")
            return
        if line:
            yield line


def _line_waits() -> bool:
    """Whether the terminal holds a line; also true where that cannot be told."""
    try:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _answer(session: Session, question: str, interactive: bool) -> Answer | None:
    """Stream one answer. At a terminal a question that cannot be asked is reported and the chat goes on."""
    started = time.perf_counter()
    try:
        if not session.answers_early:
            read_on(session)
        answer = session.ask(question, on_text=_echo_piece, keep=True)
    except UsageError as error:
        if not interactive:
            raise
        note(f"error: {error}")
        return None
    click.echo()
    warn_about(answer)
    note_early(session, answer, time.perf_counter() - started)
    pages = sorted({citation.page for citation in answer.citations})
    if pages:
        click.echo(f"  [p. {', '.join(map(str, pages))}]")
    return answer


def _print_sources(answer: Answer | None, name_document: bool) -> None:
    if answer is None:
        note("nothing has been answered yet")
        return
    for citation in answer.citations:
        click.echo("  " + citation_line(citation, name_document))


def _echo_piece(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()
