"""Every request has an id, on its response and in the log, and is counted."""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from typing import Any

from prometheus_client import Counter
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestIds:
    """Gives each request an id and counts it by its route and status (an ASGI middleware)."""

    def __init__(self, app: ASGIApp, counter: Counter) -> None:
        self._app, self._counter = app, counter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; the response has the header `request-id`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex[:24]}"
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500  # what a request that ends in a defect is answered with

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["request-id"] = request_id
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, with_id)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._counter.labels(_route(scope), method, str(status)).inc()


def _route(scope: MutableMapping[str, Any]) -> str:
    """The route's template: a path with an id in it would be a label without end."""
    return str(getattr(scope.get("route"), "path", "none"))
