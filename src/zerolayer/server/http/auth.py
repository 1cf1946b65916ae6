"""Who is asking. A key stands for a tenant; without keys everybody is one tenant, which sees everything."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from zerolayer.errors import SettingError
from zerolayer.server.http.errors import respond

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

GUARDED = ("/v1/", "/metrics", "/openapi.json")
"""Paths that need a key, where there are keys. The page at `/` holds no data; probes have no key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant` keeps KV apart; `sees` is whose sessions are shown, None: everybody's."""

    tenant: str = ""
    sees: str | None = None


def caller_of(request: Request) -> Caller:
    """Who asks, as `Gate` found out."""
    caller = getattr(request.state, "caller", None)
    return caller if isinstance(caller, Caller) else Caller()


class Keys:
    """The keys of a server, kept as digests only."""

    def __init__(self, keys: Iterable[str]) -> None:
        """`KEY` or `KEY=TENANT` each. Without a tenant every key is its own. Raises SettingError."""
        self._tenants: dict[bytes, str] = {}
        for number, given in enumerate(keys, start=1):
            key, _, tenant = given.partition("=")
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise SettingError(
                    f"API key {number} is empty or holds characters that no header carries; write KEY or KEY=TENANT, "
                    "KEY of ASCII letters, digits and signs without spaces"
                )
            digest = _digest(key)
            self._tenants[digest] = tenant or f"key-{digest.hex()[:12]}"

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def caller(self, key: str) -> Caller | None:
        """Who has this key; None for nobody. Takes as long for a wrong key as for a right one."""
        digest, found = _digest(key), None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, digest):
                found = Caller(tenant, tenant)
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


class Gate:
    """Lets in who may come in (an ASGI middleware)."""

    def __init__(self, app: ASGIApp, keys: Keys, local_only: bool) -> None:
        self._app, self._keys, self._local_only = app, keys, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 403."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, headers = Request(scope), Headers(scope=scope)
        host = headers.get("host", "")
        if self._local_only and _name(host) not in LOCAL_NAMES:
            text = (
                f"This server answers to names of its own machine only, not to {host[:64]!r}; "
                "to open it to others, start it with --host and --api-key."
            )
            await respond(request, 403, text)(scope, receive, send)
            return
        caller: Caller | None = Caller()
        if self._keys and scope["path"].startswith(GUARDED):
            caller = self._keys.caller(_given_key(headers))
        if caller is None:
            text = "No valid API key: give one in the header x-api-key, or as authorization: Bearer KEY."
            await respond(request, 401, text, headers={"www-authenticate": "Bearer"})(scope, receive, send)
            return
        request.state.caller = caller
        await self._app(scope, receive, send)


def _name(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _given_key(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")
