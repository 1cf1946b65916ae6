"""What the service is allowed to take, beside the settings that every session has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Budgets and limits of the whole service. Sizes as in settings (`512MiB`); shares lie within 0 to 1."""

    device_budget: str = "2GiB"
    """Device memory for the arenas of all sessions together. A session's own share is `Settings.device_budget`."""
    max_waiting: int = 64
    """Turns that may wait; the next one is refused (OverloadedError)."""
    max_running: int = 16
    """Turns that are read and answered in turns of a quantum; the others wait."""
    decode_tokens: int = 8
    """Answer tokens in one quantum."""
    conversation_tokens: int = 1024
    """Tokens of a session's turns and long answers that its device memory has room for, beside the documents' share. A
    session budget in bytes is hard, and has none."""
    max_output_tokens: int = 4096
    """Longest answer that may be asked for."""
    max_sessions: int = 64
    """Conversations kept at hand, with or without device memory; older ones are read back from disk. One takes about
    1/32 of its documents' KV in host memory."""
    share_tenants: bool = False
    """Whether tenants may share KV of equal documents. Timing then tells one tenant what another has asked."""
    tenant_disk_budget: str | None = None
    """Most bytes on disk of one tenant's sessions; None: all of `Settings.disk_budget`."""
    pin_share: float = 0.5
    """Most of a session's slots that hints may pin."""
    tenant_pin_share: float = 0.5
    """Most of the device budget that the pins of one tenant may hold."""
    least_host_bytes: int = 2 << 30
    """Host memory that must be available for the service to be ready."""
    events: int = 2000
    """Events that are kept."""
