"""The HTTP side of a service: routes, and what stands before them."""

from __future__ import annotations

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from zerolayer import __version__
from zerolayer.server.http import completions, errors, health, messages, models, pages, rtls
from zerolayer.server.http.auth import Gate, Keys
from zerolayer.server.http.exposition import ServiceCollector, TurnTimes, request_counter
from zerolayer.server.http.latest import LatestTotals
from zerolayer.server.http.limits import BodyLimit, TurnGate
from zerolayer.server.http.options import HttpOptions
from zerolayer.server.http.running import Turns
from zerolayer.server.http.tracing import RequestIds
from zerolayer.server.service import Service


def create_app(service: Service, options: HttpOptions | None = None) -> FastAPI:
    """The app over a service that the caller starts and closes. Raises SettingError for a key that is none."""
    options = options or HttpOptions()
    registry = CollectorRegistry()
    totals = LatestTotals(service)
    registry.register(ServiceCollector(totals))
    turns = Turns(service, TurnGate(options.max_turns_per_tenant), TurnTimes(registry), options.ping_s)
    # No /docs: that page would load its scripts from elsewhere.
    app = FastAPI(
        title="zerolayer",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client claims
        responses=errors.RESPONSES,
    )
    errors.install(app)
    for routes in (
        messages.router(turns),
        completions.router(turns),
        models.router(service),
        rtls.router(service, totals),
        health.router(service, registry),
        pages.router(),
    ):
        app.include_router(routes)
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, most_bytes=options.max_request_bytes)
    app.add_middleware(Gate, keys=Keys(options.api_keys), local_only=options.local_only)
    app.add_middleware(RequestIds, counter=request_counter(registry))
    return app
