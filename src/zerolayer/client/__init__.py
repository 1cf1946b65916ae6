"""The client SDK: the official Anthropic client with what a zerolayer server adds. Nothing is imported until used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerolayer.client.client import Anthropic, AsyncAnthropic, Intent, Prefetch
    from zerolayer.client.metrics import RtlsMetrics
    from zerolayer.client.probe import Availability, is_available
    from zerolayer.client.streaming import RtlsMessage

__all__ = [
    "Anthropic",
    "AsyncAnthropic",
    "Availability",
    "Intent",
    "Prefetch",
    "RtlsMessage",
    "RtlsMetrics",
    "is_available",
]

_HOME = {
    "Anthropic": "client",
    "AsyncAnthropic": "client",
    "Availability": "probe",
    "Intent": "client",
    "Prefetch": "client",
    "RtlsMessage": "streaming",
    "RtlsMetrics": "metrics",
    "is_available": "probe",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562). Raises AttributeError, and ModuleNotFoundError naming the extra."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "anthropic":
            raise
        raise ModuleNotFoundError(
            "anthropic is not installed; run: pip install 'zerolayer[client]'", name="anthropic"
        ) from error
