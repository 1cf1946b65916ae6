"""What commands print: JSON and tables on stdout, progress and notes on stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

Update = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

_PLAIN_INTERVAL_S = 10.0
_PIPE_WIDTH = 200  # columns of a table that is not shown on a terminal


def emit_json(payload: object) -> None:
    """Print one JSON object on one line, as the last line of stdout.

    Dataclasses, paths and numpy values are turned into plain ones; a number that is not finite becomes null.
    """
    click.echo(json.dumps(_plain(payload), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def note(text: str) -> None:
    """One line for people, on stderr."""
    click.echo(text, err=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout; columns of numbers are right-aligned, None is shown as a dash."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    grid = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], (int, float)) or row[index] is None for row in rows)
        grid.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(_cell(value)) for value in row))
    console.print(grid)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@contextmanager
def progress(label: str, unit: str = "tokens") -> Iterator[Update]:
    """Progress on stderr: a bar with rate and time left on a terminal, else a line every ten seconds.

    Yields a function to call with (done, total).
    """
    if sys.stderr.isatty():
        with _bar(label, unit) as update:
            yield update
    else:
        lines = _Lines(label, unit)
        yield lines.update
        lines.finish()


@contextmanager
def _bar(label: str, unit: str) -> Iterator[Update]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=0, rate=0.0)

        def update(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total, rate=_rate(done, started))

        yield update


class _Lines:
    """Progress as lines, for logs and pipes."""

    def __init__(self, label: str, unit: str) -> None:
        self.label, self.unit = label, unit
        self.started = self.printed = time.monotonic()
        self.done = self.total = 0

    def update(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if time.monotonic() - self.printed >= _PLAIN_INTERVAL_S and done < total:
            self._print()

    def finish(self) -> None:
        if self.total and time.monotonic() - self.started >= 1.0:
            self._print()

    def _print(self) -> None:
        self.printed = time.monotonic()
        rate = _rate(self.done, self.started)
        text = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}, {rate:,.0f} {self.unit}/s"
        if rate and self.done < self.total:
            text += f", {(self.total - self.done) / rate:,.0f} s left"
        note(text)


def _rate(done: int, started: float) -> float:
    return done / max(time.monotonic() - started, 1e-9)
