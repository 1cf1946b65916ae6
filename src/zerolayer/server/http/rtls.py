"""`/v1/rtls/*`: what the scheduler knows and may be told. A caller sees the sessions of its own tenant only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException

from zerolayer.server.http.auth import caller_of
from zerolayer.server.http.extensions import ThresholdsObject
from zerolayer.server.http.latest import LatestTotals
from zerolayer.server.http.plain import plain
from zerolayer.server.http.schema import InputMessage, Loose, TextBlock
from zerolayer.server.service import Service
from zerolayer.server.views import SessionView

HEAT_DIGITS = 4
MOST_EVENTS = 5000

SessionQuery = Annotated[str | None, Query(max_length=256, description="none: the latest used")]


class ThresholdsBody(ThresholdsObject):
    """Cuts of one session, or of all sessions of the caller and those to come."""

    session_id: str | None = None


class IntentBody(Loose):
    """A session and what was asked so far, oldest first; none: what the session was asked."""

    session_id: str | None = None
    history: list[str | InputMessage] | None = None

    def questions(self) -> list[str] | None:
        """The user's texts."""
        if self.history is None:
            return None
        asked = [_question(item) for item in self.history]
        return [text for text in asked if text]


def _question(item: str | InputMessage) -> str:
    if isinstance(item, str):
        return item
    if item.role != "user":
        return ""
    if isinstance(item.content, str):
        return item.content
    return "\n".join(block.text for block in item.content if isinstance(block, TextBlock))


class Sessions:
    """A service as one caller may see it."""

    def __init__(self, service: Service, request: Request) -> None:
        self.service, self.tenant = service, caller_of(request).sees

    def all(self) -> list[SessionView]:
        """Latest used first."""
        return self.service.sessions(self.tenant)

    def id(self, given: str | None) -> str:
        """The session that is meant; none given: the latest used. Raises HTTPException 404 where there is none."""
        if given is not None:
            return given
        live = [view for view in self.all() if view.state != "stored"]
        if not live:
            raise HTTPException(404, "There is no session yet: ask something first.")
        return live[0].id


def router(service: Service, totals: LatestTotals) -> APIRouter:
    """All routes under /v1/rtls."""
    routes = APIRouter(prefix="/v1/rtls", tags=["rtls"])
    _show_sessions(routes, service)
    _show_service(routes, service, totals)
    _tell(routes, service)
    return routes


def _show_sessions(routes: APIRouter, service: Service) -> None:
    @routes.get("/sessions")
    def sessions(request: Request) -> dict[str, Any]:
        """Conversations, live and stored, the latest used first."""
        return {"sessions": plain(Sessions(service, request).all())}

    @routes.get("/sessions/{session_id}")
    def session(request: Request, session_id: str) -> dict[str, Any]:
        """One conversation."""
        found = next((view for view in Sessions(service, request).all() if view.id == session_id), None)
        if found is None:
            raise HTTPException(404, f"There is no session {session_id[:64]!r}.")
        return _record(found)

    @routes.get("/blocks")
    def blocks(request: Request, session_id: SessionQuery = None) -> dict[str, Any]:
        """A session's blocks in order: where each lies, its grade and why, and what happened to it."""
        own = Sessions(service, request)
        chosen = own.id(session_id)
        return {"session_id": chosen, "blocks": plain(service.blocks(chosen, own.tenant))}

    @routes.get("/heat")
    def heat(request: Request, session_id: SessionQuery = None) -> dict[str, Any]:
        """A session's heat map: decayed accesses by cell of the device's address space; null before its first turn."""
        own = Sessions(service, request)
        chosen = own.id(session_id)
        view = service.heat(chosen, own.tenant)
        if view is None:
            return {"session_id": chosen, "heat": None}
        record = _record(view) | {"cells": [[_short(cell) for cell in row] for row in view.cells]}
        return {"session_id": chosen, "heat": record}


def _show_service(routes: APIRouter, service: Service, latest: LatestTotals) -> None:
    @routes.get("/events")
    def events(
        request: Request,
        since: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 500,
    ) -> dict[str, Any]:
        """What happened, oldest first; `last` is the `since` of the next request."""
        found = service.events(since, limit, caller_of(request).sees)
        return {"events": plain(found), "last": found[-1].id if found else since}

    @routes.get("/totals")
    def totals() -> dict[str, Any]:
        """Counters since the server started, over all sessions, as they were `age_s` seconds ago."""
        found, age_s = latest.get()
        return _record(found) | {"age_s": round(age_s, 3)}

    @routes.get("/history")
    def history() -> dict[str, Any]:
        """What of the totals is drawn over time, since the server started, oldest first: evenly thinned samples."""
        return _record(service.history())

    @routes.get("/policies")
    def policies() -> dict[str, Any]:
        """Policies and presets that a request may name."""
        return {"policies": plain(service.policies())}

    @routes.get("/thresholds")
    def thresholds(request: Request) -> dict[str, Any]:
        """The cuts of each live session whose policy grades."""
        views: Sequence[SessionView] = Sessions(service, request).all()
        return {"sessions": {view.id: view.thresholds for view in views if view.thresholds is not None}}


def _tell(routes: APIRouter, service: Service) -> None:
    @routes.post("/thresholds")
    def set_thresholds(request: Request, body: ThresholdsBody) -> dict[str, Any]:
        """Move the cuts; what has been graded is graded again."""
        cuts = body.checked("thresholds")
        service.set_thresholds(cuts, body.session_id, caller_of(request).sees)
        return {"session_id": body.session_id, **_record(cuts)}

    @routes.post("/intent")
    def intent(request: Request, body: IntentBody) -> dict[str, Any]:
        """Where the next question is likely to go."""
        own = Sessions(service, request)
        chosen = own.id(body.session_id)
        return _record(service.predict_intent(chosen, own.tenant, body.questions()))

    @routes.post("/prefetch_intent")
    def prefetch_intent(request: Request, body: IntentBody) -> dict[str, Any]:
        """Warm the blocks that the next question is likely to need. Nothing leaves the device for it."""
        own = Sessions(service, request)
        chosen = own.id(body.session_id)
        return _record(service.prefetch_intent(chosen, own.tenant, body.questions()))


def _record(view: object) -> dict[str, Any]:
    record = plain(view)
    assert isinstance(record, dict)
    return record


def _short(value: float) -> float:
    return float(f"{float(value):.{HEAT_DIGITS}g}")
