"""`zerolayer chat`: a conversation about documents, answers streamed as they are made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import build_settings, files_argument, settings_options
from zerolayer.cli.output import note
from zerolayer.cli.reading import citation_line, read_session, warn_about
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.core import Answer
    from zerolayer.session import Session

_HELP = "/sources shows where the last answer came from, /quit (or Ctrl-D) ends"


@click.command()
@files_argument
@settings_options()
def chat(files: tuple[Path, ...], **flags: Any) -> None:
    """Talk about FILES (.pdf, .txt, .md); each line is a question, earlier turns are remembered.

    /sources shows the quotes behind the last answer, /quit or Ctrl-D ends.
    """
    settings = build_settings(flags)
    interactive = sys.stdin.isatty()
    last: Answer | None = None
    with read_session(files, settings) as (session, report):
        note(f"{report.tokens_total:,} tokens read; {_HELP}")
        for line in _lines(interactive):
            if line == "/quit":
                return
            if line == "/sources":
                _print_sources(last, name_document=len(files) > 1)
            elif line.startswith("/"):
                note(f"unknown command {line}; {_HELP}")
            else:
                last = _answer(session, line, interactive) or last


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


def _answer(session: Session, question: str, interactive: bool) -> Answer | None:
    """Stream one answer. At a terminal a question that cannot be asked is reported and the chat goes on."""
    try:
        answer = session.ask(question, on_text=_echo_piece, keep=True)
    except UsageError as error:
        if not interactive:
            raise
        note(f"error: {error}")
        return None
    click.echo()
    warn_about(answer)
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
