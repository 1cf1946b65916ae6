"""Probes: `/health`, `/ready`, `/version`, and `/metrics` for Prometheus. All are asked without a key but the last."""

from __future__ import annotations

import platform
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry

from zerolayer import __version__
from zerolayer.server.http.errors import without_paths
from zerolayer.server.http.exposition import exposition
from zerolayer.server.service import Service


def router(service: Service, registry: CollectorRegistry) -> APIRouter:
    """The four routes."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health")
    def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok", "version": __version__}

    @routes.get("/ready", responses={503: {"description": "Not yet, or not now: the reasons are given."}})
    def ready() -> JSONResponse:
        """Whether turns are answered without delay: the model is loaded and warm, and there is room."""
        state = service.ready()
        reasons = [without_paths(reason) for reason in state.reasons]
        return JSONResponse({"ready": state.ok, "reasons": reasons}, 200 if state.ok else 503)

    @routes.get("/version")
    def version() -> dict[str, Any]:
        """What this server is."""
        return {"name": "zerolayer", "version": __version__, "python": platform.python_version()}

    @routes.get("/metrics")
    def metrics(request: Request) -> Response:
        """What the service counts, in Prometheus' text format."""
        body, content_type = exposition(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return routes
