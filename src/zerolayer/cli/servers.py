"""Asking a running server from the command line."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlencode

import click

from zerolayer.errors import ServerError

url_option = click.option("--url", help="Address of a running server, such as http://127.0.0.1:8765.")
key_option = click.option(
    "--api-key", help="Key for the server; else the first of ZEROLAYER_API_KEYS, where that is set."
)


def server_json(
    url: str, path: str, field: str | None = None, api_key: str | None = None, **query: str | int
) -> Any:
    """What the server at `url` answers to GET `path`: the object, or its `field`. Raises ServerError."""
    from zerolayer.client.probe import fetch_json

    address = f"{url.rstrip('/')}/{path}" + (f"?{urlencode(query)}" if query else "")
    answer = fetch_json(address, api_key or _own_key())
    if not isinstance(answer, dict) or (field is not None and field not in answer):
        raise ServerError(f"{address} does not answer as a zerolayer server does; check the address")
    return answer if field is None else answer[field]


def _own_key() -> str | None:
    """On the server's own machine its keys are at hand: the first of them, without the tenant's name."""
    first = os.environ.get("ZEROLAYER_API_KEYS", "").split(",")[0].strip()
    return first.partition("=")[0] or None
