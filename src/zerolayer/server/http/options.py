"""What the HTTP side is allowed, beside the service's own options."""

from __future__ import annotations

from dataclasses import dataclass

MAX_REQUEST_BYTES = 32 << 20
"""As the Messages API has it."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Who may ask, how much at once, and how silence is filled."""

    api_keys: tuple[str, ...] = ()
    """`KEY` or `KEY=TENANT`; with none, everybody may ask and all are one tenant."""
    max_request_bytes: int = MAX_REQUEST_BYTES
    max_turns_per_tenant: int | None = None
    """Turns of one tenant that may run and wait at once; the next one is refused with 429. None: no bound but the
    service's own, for all together."""
    ping_s: float = 5.0
    """A stream that has nothing to say says so this often."""
    local_only: bool = False
    """Answer only to names of this machine: a page in a browser cannot reach the server under a name of its own."""
