"""Logging of the command line: one handler on stderr, its level from -v."""

from __future__ import annotations

import logging
import sys

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure(verbosity: int) -> None:
    """Send zerolayer's log to stderr: warnings, with -v information, with -vv everything and tracebacks.

    A library must leave logging to its caller, so only the command line calls this. Calling it again replaces
    the handler.
    """
    logger = logging.getLogger("zerolayer")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])


def include(name: str) -> None:
    """Send the log of another library where zerolayer's goes, as much of it. Call `configure` first."""
    ours, other = logging.getLogger("zerolayer"), logging.getLogger(name)
    other.handlers = list(ours.handlers)
    other.setLevel(ours.level)


def wants_tracebacks() -> bool:
    """Whether -vv was given."""
    return logging.getLogger("zerolayer").isEnabledFor(logging.DEBUG)
