"""`/v1/models`, as both the Messages API's clients and OpenAI's read it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from zerolayer.server.http.parsing import resolve_model
from zerolayer.server.service import Service
from zerolayer.server.views import ModelView


def record(model: ModelView) -> dict[str, Any]:
    """One model under the names of both APIs."""
    return {
        "id": model.id,
        "type": "model",
        "display_name": model.display_name,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": None,  # a document may be longer than the window
        "max_tokens": model.max_output_tokens,
        "object": "model",
        "created": int(model.created),
        "owned_by": "zerolayer",
        "context_window": model.context_window,
    }


def router(service: Service) -> APIRouter:
    """The two routes."""
    routes = APIRouter(prefix="/v1/models", tags=["models"])

    @routes.get("")
    def models() -> dict[str, Any]:
        """The models that answer."""
        data = [record(model) for model in service.models()]
        ends = (
            {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
            if data
            else {"first_id": None, "last_id": None}
        )
        return {"object": "list", "data": data, "has_more": False, **ends}

    @routes.get("/{model_id:path}")
    def model(model_id: str) -> dict[str, Any]:
        """One model."""
        return record(resolve_model(model_id, service.models()))

    return routes
