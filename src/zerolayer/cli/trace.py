"""`zerolayer trace`: record, describe, convert and replay traces of block references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, table
from zerolayer.cli.trace_record import record
from zerolayer.cli.trace_replay import replay
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.learning.trace_files import Trace
    from zerolayer.learning.trace_info import TraceInfo

trace_argument = click.argument("file", type=click.Path(exists=True, path_type=Path))


@click.group()
def trace() -> None:
    """Record, describe, convert and replay traces of block references."""


@trace.command()
@trace_argument
@click.option(
    "--windows", default=10, show_default=True, type=click.IntRange(1, 1000), help="Parts of the working set."
)
@json_option
def info(file: Path, windows: int, as_json: bool) -> None:
    """Describe FILE: requests, blocks, reuse, sessions, and the working set by time.

    FILE is a trace of zerolayer's, or of a source that `trace convert` knows.
    """
    from zerolayer.learning.trace_files import load_trace
    from zerolayer.learning.trace_info import describe

    found = describe(load_trace(file), windows)
    if as_json:
        emit_json(found)
    else:
        _print_info(found)


@trace.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--from", "source_name", metavar="SOURCE", help="mooncake, bailian or taubench [default: as SRC looks]"
)
@click.option(
    "--tokenizer",
    metavar="MODEL",
    help="Cut texts (taubench) into tokens of this model [default: 4 bytes a token].",
)
@json_option
def convert(
    source: Path, target: Path, source_name: str | None, tokenizer: str | None, as_json: bool
) -> None:
    """Convert SRC to zerolayer's format in DST, compressed with zstd if DST ends in .zst.

    SRC is a trace of another source (a file, or a directory of agent sessions), or one of zerolayer's.
    """
    from zerolayer.learning.trace_files import write_trace

    if target.resolve() == source.resolve():
        raise UsageError(f"DST {target} is SRC, which would be overwritten; name another file")
    found = _converted(source, source_name, tokenizer)
    write_trace(found, target)
    result = {
        "file": target,
        "source": _source(found),
        "requests": len(found),
        "bytes": target.stat().st_size,
    }
    if as_json:
        emit_json(result)
    else:
        note(f"{len(found):,} requests, {target.stat().st_size:,} bytes")
        click.echo(target)


def _converted(source: Path, source_name: str | None, tokenizer: str | None) -> Trace:
    from zerolayer.learning.converters import convert as convert_source
    from zerolayer.learning.converters import detect, taubench
    from zerolayer.learning.trace_files import load_trace

    if tokenizer is None:
        return load_trace(source) if source_name is None else convert_source(source, source_name)
    looks = source_name or detect(source)
    if looks != "taubench":
        raise UsageError(
            f"--tokenizer {tokenizer} cuts texts, and {source} holds block ids; leave the option out"
        )
    from zerolayer.cli.calibrate import tokenizer_of

    encode = tokenizer_of(tokenizer)

    def tokenize(text: str) -> Sequence[int]:
        ids: list[int] = encode(text, add_special_tokens=False)["input_ids"]
        return ids

    found = taubench.convert(source, tokenize)
    return replace(found, source=f"{found.source} of {tokenizer}")


def _source(found: Trace) -> str:
    from zerolayer.learning.requests import RequestTrace

    return found.source if isinstance(found, RequestTrace) else found.document


trace.add_command(replay)
trace.add_command(record)


def _print_info(found: TraceInfo) -> None:
    shown = [
        ("kind", found.kind),
        ("source", found.source),
        ("requests", found.requests),
        ("sessions", found.sessions),
        ("duration", None if found.duration_s is None else f"{found.duration_s:,.1f} s"),
        ("references", found.references),
        ("unique blocks", found.unique_blocks),
        ("… of", found.num_blocks),
        ("… used once", found.blocks_used_once),
        ("references per block", f"{found.references_per_block:.2f}"),
        ("references to a known block", f"{100 * found.reused_references:.1f} % (no cache hits more)"),
        (
            "blocks per request",
            f"{found.mean_blocks_per_request:.1f}, at most {found.max_blocks_per_request:,}",
        ),
        ("tokens per block", found.block_tokens),
        ("input tokens", found.input_tokens),
        ("output tokens", found.output_tokens),
        *((f"found in {tier}", count) for tier, count in found.tiers.items()),
    ]
    table(
        "",
        ("trace", ""),
        [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in shown],
    )
    rows = [
        (
            str(number) if w.begin_s is None else f"{w.begin_s:,.0f} to {w.end_s:,.0f} s",
            w.requests, w.references, w.working_set_blocks, w.new_blocks, w.blocks_so_far,
        )
        for number, w in enumerate(found.windows, start=1)
    ]  # fmt: skip
    table("Working set", ("part", "requests", "references", "blocks", "new", "so far"), rows)
