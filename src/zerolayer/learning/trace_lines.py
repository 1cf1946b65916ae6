"""Traces as lines of text: JSON lines, UTF-8, plain or compressed with zstd."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from zerolayer.errors import TraceError

ZSTD_SUFFIX = ".zst"

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def read_lines(path: Path) -> list[str]:
    """The lines of a file; one that begins as a zstd frame does is decompressed, whatever its name.

    Raises TraceError for a file that cannot be read, is damaged, is not UTF-8, or is empty.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_ZSTD_MAGIC):
            data = _decompressed(path, data)
        # Not splitlines(): JSON leaves characters such as U+2028 in a question as they are.
        lines = [line.removesuffix("\r") for line in data.decode("utf-8").removesuffix("\n").split("\n")]
    except (OSError, UnicodeDecodeError, zstandard.ZstdError) as error:
        raise TraceError(f"{path} cannot be read as a trace: {error}") from error
    if lines == [""]:
        raise TraceError(f"{path} is empty: a trace begins with a header line; record or convert it again")
    return lines


def _decompressed(path: Path, data: bytes) -> bytes:
    """All frames of `data`. The library's stream reader ends a cut frame without a word, hence the check."""
    pieces = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        pieces.append(frame.decompress(data))
        if not frame.eof:
            raise TraceError(f"{path} is cut off in its compressed data; copy or record it again")
        data = frame.unused_data
    return b"".join(pieces)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, compressed if the name ends in .zst. The file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    if path.suffix == ZSTD_SUFFIX:
        data = zstandard.ZstdCompressor(level=9, write_checksum=True).compress(data)
    partial.write_bytes(data)
    partial.replace(path)


def json_object(line: str) -> dict[str, Any]:
    """One line as an object. Raises ValueError where it is none, cut-off lines included."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no whole JSON object, perhaps cut off ({error})") from error
    if not isinstance(record, dict):
        raise ValueError("no JSON object")
    return record


def damaged(path: Path, line: int, error: Exception, fix: str = "record the trace again") -> TraceError:
    """The error that names a line (from 1) and what is wrong with it."""
    what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
    return TraceError(f"{path} line {line} is damaged: {what}; {fix}")
