"""The root command: global options, the table of commands, and how errors reach the user.

Exit codes: 0 ok, 1 failure, 2 usage, 3 ran but missed a threshold, 130 interrupted. A command may return its
exit code; returning None means 0.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import click

from zerolayer import __version__, logs
from zerolayer.cli.lazy import LazyCommand, LazyGroup
from zerolayer.errors import ZerolayerError

COMMANDS = {
    "ask": LazyCommand("zerolayer.cli.ask:ask", "Ask questions about documents; answers name their page."),
    "chat": LazyCommand("zerolayer.cli.chat:chat", "Talk about documents in the terminal."),
    "serve": LazyCommand(
        "zerolayer.cli.serve:serve", "Answer over HTTP: Messages API, sessions, a page to look at."
    ),
    "demo": LazyCommand("zerolayer.cli.demo:demo", "A 127-page contract, 19 questions, bounded memory."),
    "bench": LazyCommand("zerolayer.cli.bench:bench", "Measure: exactness, growth, recall, overhead, speed."),
    "calibrate": LazyCommand(
        "zerolayer.cli.calibrate:calibrate", "Fit the prediction of use to your own documents."
    ),
    "trace": LazyCommand("zerolayer.cli.trace:trace", "Record, describe, convert and replay traces."),
    "policy": LazyCommand("zerolayer.cli.policy:policy", "List, compare and fit policies."),
    "doctor": LazyCommand(
        "zerolayer.cli.doctor:doctor", "Say what works on this machine and how to fix the rest."
    ),
    "heatmap": LazyCommand("zerolayer.cli.heatmap:heatmap", "Draw where attention fell in device memory."),
    "top": LazyCommand("zerolayer.cli.top:top", "Watch a session: tiers, grades, heat, the last turn."),
    "ps": LazyCommand("zerolayer.cli.ps:ps", "List sessions: tokens by tier, and until when they are kept."),
    "model": LazyCommand("zerolayer.cli.model:model", "List, add and locate models."),
}

_EXTRA_OF = {
    "torch": "hf",
    "transformers": "hf",
    "accelerate": "hf",
    "safetensors": "hf",
    "gguf": "hf",
    "huggingface_hub": "hf",
    "filelock": "hf",
    "reportlab": "demo",
    "matplotlib": "plots",
    "sklearn": "learn",
    "gymnasium": "train",
    "stable_baselines3": "train",
    "sb3_contrib": "train",
    "fastapi": "server",
    "uvicorn": "server",
    "prometheus_client": "server",
    "anthropic": "client",
}


class RootGroup(LazyGroup):
    """The group that turns exceptions into one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit with its code; with `standalone_mode=False` click's own behaviour."""
        run: Callable[[], Any] = partial(
            super().main, args, prog_name, complete_var, standalone_mode=False, **extra
        )
        if not standalone_mode:
            return run()
        try:
            code = run()
        except click.Abort:  # click's name for Ctrl-C
            _fail("interrupted", 130)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.UsageError as error:
            hint = f"\nTry '{error.ctx.command_path} --help' for help." if error.ctx else ""
            _fail(error.format_message() + hint, error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except ZerolayerError as error:
            _fail(str(error), error.exit_code)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRA_OF:
                raise  # a defect, not a missing extra
            _fail(f"{package} is not installed; run: pip install 'zerolayer[{_EXTRA_OF[package]}]'", 1)
        except OSError as error:
            _fail(str(error), 1)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    if logs.wants_tracebacks():
        traceback.print_exc()
    click.echo(f"error: {message}", err=True)
    sys.exit(code)


@click.group(cls=RootGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zerolayer", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Say more on stderr; -vv adds tracebacks.")
@click.option("--home", type=click.Path(file_okay=False), help="Directory for models and sessions.")
@click.pass_context
def cli(ctx: click.Context, verbose: int, home: str | None) -> None:
    """Ask long documents questions in bounded memory, and lose no token.

    Data goes to stdout, everything for people to stderr.
    """
    logs.configure(verbose)
    if home:
        _set_home(ctx, home)


def _set_home(ctx: click.Context, home: str) -> None:
    """Set ZEROLAYER_HOME for this command line only, so that in-process callers are not left with it."""
    before = os.environ.get("ZEROLAYER_HOME")
    os.environ["ZEROLAYER_HOME"] = home

    def restore() -> None:
        os.environ.pop("ZEROLAYER_HOME", None)
        if before is not None:
            os.environ["ZEROLAYER_HOME"] = before

    ctx.call_on_close(restore)


def main() -> None:
    """Entry point of the `zerolayer` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a document may hold characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    cli()


if __name__ == "__main__":
    main()
