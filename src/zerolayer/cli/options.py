"""Options that several commands share, and how they become one `Settings`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from zerolayer.config import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

# Help texts stand here, not on the settings model, because importing that costs more than all of --help may.
_SETTINGS: dict[str, tuple[Any, str]] = {
    "model": (str, "Model name, directory, .gguf file or Hugging Face id [default: smollm2]"),
    "device": (str, "auto, cpu, cuda, cuda:1, … [default: auto]"),
    "policy": (str, "Who decides what lives where: a registered policy or module:Class [default: graded]"),
    "device_budget": (
        str,
        "Device memory for KV: 64MiB, 10%, or auto (10%, at least 2048 tokens) [default: auto]",
    ),
    "host_budget": (str, "Host memory for compressed blocks [default: 4GiB]"),
    "disk_budget": (str, "Disk space for sessions [default: 16GiB]"),
    "codec": (str, "How blocks are stored off the device [default: K8V4]"),
    "encoder": (
        click.Choice(["auto", "none"]),
        "Sentence vectors for recall, where they can be had [default: auto]",
    ),
    "block_tokens": (int, "Tokens in a block [default: 64]"),
    "attend_blocks": (int, "Most blocks that an answer sees beside the sinks [default: 24]"),
    "max_new_tokens": (int, "Longest answer, in tokens [default: 96]"),
}

_ANY_SIZE = 1 << 50  # bytes; stands for the full KV while it is not known yet

files_argument = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout."
)

reading_option = click.option(
    "--read-first",
    is_flag=True,
    help="Read the whole document before the first answer, instead of what the question points at.",
)


def questions_options(command: Command) -> Command:
    """Add `-q` (questions) and `--questions` (questions_file) to a command."""
    one = click.option(
        "-q", "--question", "questions", multiple=True, metavar="TEXT", help="A question; may be repeated."
    )
    many = click.option(
        "--questions",
        "questions_file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="A file with one question a line (# starts a comment), or - for stdin.",
    )
    return one(many(command))


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Add the options of these settings to a command (all of them when none is named)."""

    def decorate(command: Command) -> Command:
        for name in reversed(names or tuple(_SETTINGS)):
            kind, text = _SETTINGS[name]
            command = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)(command)
        return command

    return decorate


def build_settings(flags: dict[str, Any]) -> Settings:
    """Settings from a command's flags, with everything checked that can be checked before a model is loaded.

    Raises SettingError for an impossible value and UnknownNameError for an unknown name.
    """
    from zerolayer.config import load_settings, parse_budget
    from zerolayer.decision.registry import create_policy
    from zerolayer.execution.codecs import get_codec

    read_first = flags.pop("read_first", False)
    settings = load_settings(early_share=0.0 if read_first else None, **flags)
    if settings.device_budget != "auto":
        parse_budget(settings.device_budget, _ANY_SIZE)
    create_policy(settings.policy)
    get_codec(settings.codec)
    return settings
