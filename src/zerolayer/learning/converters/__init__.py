"""Traces of other sources, converted to `RequestTrace`. One source a file, one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zerolayer.errors import TraceError, UnknownNameError
from zerolayer.learning.converters import bailian, mooncake, taubench
from zerolayer.learning.converters.common import first_record
from zerolayer.learning.requests import RequestTrace


@dataclass(frozen=True, slots=True)
class Source:
    """How a source is told and converted."""

    keys: frozenset[str]  # that every line has
    directory: bool  # may also be a directory of .jsonl files
    convert: Callable[[Path], RequestTrace]


SOURCES = {
    "bailian": Source(bailian.KEYS, False, bailian.convert),
    "mooncake": Source(mooncake.KEYS, False, mooncake.convert),
    "taubench": Source(taubench.KEYS, True, taubench.convert),
}
"""Known sources; the first whose keys a file's first line has is taken."""


def detect(path: Path) -> str | None:
    """The source whose keys the first line of a file (or of a directory's first file) has; None if there is none.

    Raises TraceError for a path that cannot be read or holds nothing.
    """
    record = first_record(path)
    for name, source in SOURCES.items():
        if record is not None and source.keys <= record.keys() and (source.directory or not path.is_dir()):
            return name
    return None


def convert(path: Path, source: str | None = None) -> RequestTrace:
    """Convert a file or directory of `source` (None: as it looks), block numbers in order of first reference.

    Raises UnknownNameError for an unknown source, TraceError for a file of none or a damaged line (by its number).
    """
    name = detect(path) if source is None else source
    if name is None:
        raise TraceError(
            f"{path} looks like no known source ({', '.join(SOURCES)}); name one with --from, "
            "or write zerolayer's own format, which docs/traces.md documents"
        )
    if name not in SOURCES:
        raise UnknownNameError("trace source", name, SOURCES)
    return SOURCES[name].convert(path)
