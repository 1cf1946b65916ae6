"""Asking a server what it is, with nothing but the standard library."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from zerolayer.errors import ServerError

DEFAULT_URL = "http://127.0.0.1:8765"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_BYTES = 64 << 20  # of an answer that is read


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a zerolayer server answers at an address; true where it does, else `reason` says why not."""

    ok: bool
    base_url: str
    reason: str = ""
    version: str = ""
    ready: bool = False
    """Whether turns are answered without delay; else `reason` says what stands against it."""

    def __bool__(self) -> bool:
        return self.ok


def is_available(
    base_url: str | None = None, api_key: str | None = None, timeout_s: float = 3.0
) -> Availability:
    """Whether a zerolayer server can be used at `base_url` (else ANTHROPIC_BASE_URL, else the default address).

    Never raises for what a network or a server may do.
    """
    url = (base_url or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_URL).rstrip("/")
    try:
        version = fetch_json(f"{url}/version", api_key, timeout_s)
    except ServerError as error:
        return Availability(False, url, str(error))
    if not isinstance(version, dict) or version.get("name") != "zerolayer":
        return Availability(False, url, f"the server at {url} answers, but it is not zerolayer")
    known = str(version.get("version", ""))
    try:
        fetch_json(f"{url}/ready", api_key, timeout_s)
    except ServerError as error:
        return Availability(True, url, str(error), known)
    missing = _missing_client()
    return Availability(not missing, url, missing, known, ready=True)


def _missing_client() -> str:
    from importlib.util import find_spec

    if find_spec("anthropic") is None:
        return "anthropic is not installed; run: pip install 'zerolayer[client]'"
    return ""


def fetch_json(url: str, api_key: str | None = None, timeout_s: float = 10.0) -> Any:
    """What a server answers to GET, as plain data. Raises ServerError naming the address and what it said."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ServerError(f"{url!r} is no address of a server; write one such as {DEFAULT_URL}")
    request = urllib.request.Request(url, headers={"accept": "application/json"})
    if api_key:
        request.add_header("x-api-key", api_key)
    handlers = [urllib.request.ProxyHandler({})] if urlsplit(url).hostname in _LOOPBACK else []
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise ServerError(f"{url} answers {error.code}: {_said(error)}") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(
            f"no server answers at {url} ({reason}); start one with: zerolayer serve"
        ) from error
    except (HTTPException, ValueError) as error:
        raise ServerError(f"{url} does not answer with JSON: it is not a zerolayer server") from error


def _said(error: urllib.error.HTTPError) -> str:
    """The message of an error's body, in either form, or the standard phrase."""
    try:
        body = json.loads(error.read(_MOST_BYTES))
    except (ValueError, OSError):
        return str(error.reason)
    if isinstance(body, dict):
        if isinstance(body.get("reasons"), list):
            return "; ".join(map(str, body["reasons"]))
        inner = body.get("error")
        if isinstance(inner, dict) and inner.get("message"):
            return str(inner["message"])
    return str(error.reason)
