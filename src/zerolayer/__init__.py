"""zerolayer: the scheduler between a language model and its memory.

The client SDK is at hand here: `zerolayer.Anthropic`, `zerolayer.AsyncAnthropic`, `zerolayer.is_available`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerolayer.client import Anthropic, AsyncAnthropic, RtlsMetrics, is_available

__version__ = "0.1.0"

__all__ = ["Anthropic", "AsyncAnthropic", "RtlsMetrics", "__version__", "is_available"]


def __getattr__(name: str) -> Any:
    """The client's names, imported when one is asked for (PEP 562). Raises AttributeError."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zerolayer import client

    return getattr(client, name)
