"""One reader for every trace: its own formats by their header, other sources by their look."""

from __future__ import annotations

from pathlib import Path

from zerolayer.errors import TraceError
from zerolayer.learning import request_files, traces
from zerolayer.learning.converters import convert, detect
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.trace_lines import json_object, read_lines
from zerolayer.learning.traces import DemandTrace

Trace = DemandTrace | RequestTrace


def read_trace(path: Path) -> Trace:
    """A trace in one of zerolayer's formats, plain or zstd; its header says which kind it is.

    Raises TraceError for anything else, another version, or a damaged line (by its number).
    """
    lines = read_lines(path)
    try:
        header = json_object(lines[0])
    except ValueError:
        header = {}
    if header.get("format") == request_files.FORMAT:
        return request_files.parse_requests(path, header, lines)
    if header.get("format") == traces.FORMAT:
        return traces.parse_demand(path, lines)
    raise TraceError(
        f'{path} is no trace: the format in its first line must be "{request_files.FORMAT}" or '
        f'"{traces.FORMAT}"; a trace of another source is taken in with: zerolayer trace convert {path} OUT'
    )


def load_trace(path: Path) -> Trace:
    """A trace of zerolayer's or of any source that `converters` knows. Raises TraceError as `read_trace` does."""
    source = detect(path)
    return read_trace(path) if source is None else convert(path, source)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace of either kind, compressed if the name ends in .zst."""
    if isinstance(trace, RequestTrace):
        request_files.write_requests(trace, path)
    else:
        traces.write(trace, path)
