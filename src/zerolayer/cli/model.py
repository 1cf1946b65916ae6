"""`zerolayer model`: list, add and locate models."""

from __future__ import annotations

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, table


@click.group()
def model() -> None:
    """List, add and locate models."""


@model.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """Known models, the sentence encoder, and those you added."""
    from zerolayer.engines.hf.models import list_models

    models = list_models()
    if as_json:
        emit_json({"models": models})
        return
    rows = [
        (m.name, m.kind, "yes" if m.present else "no", m.size / 1e6 if m.present else None, m.description)
        for m in models
    ]
    table("", ("name", "kind", "here", "MB", "description"), rows)


@model.command("add")
@click.argument("source")
@click.option("--name", help="Name to use it by [default: that of the file or directory]")
def add_command(source: str, name: str | None) -> None:
    """Fetch a known model, or take in SOURCE: a .gguf file or a model directory. Prints where it lies."""
    from zerolayer.engines.hf.models import add_model

    click.echo(add_model(source, name, on_progress=note))


@model.command("path")
@click.argument("name")
def path_command(name: str) -> None:
    """Print the directory of a model that is here."""
    from zerolayer.engines.hf.models import model_path

    click.echo(model_path(name))
