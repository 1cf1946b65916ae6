"""zerolayer: the scheduler between a language model and its memory."""

from __future__ import annotations

__version__ = "0.1.0"
