"""`zerolayer demo`: the main job on a synthetic contract."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click

from zerolayer.cli.options import build_settings, json_option, settings_options
from zerolayer.cli.output import emit_json, note


@click.command()
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the contract and the record go."
)
@settings_options("model", "device", "device_budget")
@json_option
def demo(out: Path | None, as_json: bool, **flags: Any) -> None:
    """Write a 127-page contract, ask it 19 questions in bounded memory, and compare four policies.

    The last line of stdout is one JSON object; with --json it is the only one.
    """
    settings = build_settings(flags)

    from zerolayer.bench.demo import run_demo
    from zerolayer.config import cache_dir
    from zerolayer.engines.hf.models import resolve_model

    resolve_model(settings.model, on_progress=note)  # may take a minute the first time: say so
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = run_demo(settings, out or cache_dir() / "demo")
    emit_json(result)
