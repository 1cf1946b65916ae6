"""Errors as a client sees them: status, envelope and type, the field at fault, and nothing of the server's inside.

The envelope is https://docs.anthropic.com/en/api/errors; under `/v1/chat/` it also has what OpenAI clients read
(`param` and `code`). No answer holds a path, a traceback or the name of an exception class.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from zerolayer.errors import (
    DocumentError,
    OverloadedError,
    RequestError,
    StoreFullError,
    UnknownNameError,
    UsageError,
    ZerolayerError,
)

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

UNION_TAGS = frozenset({"string", "blocks", "switch", "object"})
"""How schema.py and extensions.py name the members of unions that no field tells apart."""

RETRY_AFTER_S = 1
"""What a client is told to wait where trying again helps."""


class ErrorObject(BaseModel):
    """What went wrong."""

    type: str
    message: str


class ErrorBody(BaseModel):
    """Every error that this server tells."""

    type: Literal["error"]
    error: ErrorObject
    request_id: str


RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}
"""For the OpenAPI document."""

_PATH = re.compile(r"(?<![\w.:/])(?:/[\w.+@~-]+){2,}/?|\b[A-Za-z]:\\[^\s'\"]+")
_MOST_CHARACTERS = 2000
_log = logging.getLogger(__name__)


def envelope(
    status: int, message: str, request_id: str, field: str | None = None, openai: bool = False
) -> dict[str, Any]:
    """The body of an error. `field` is told apart only to OpenAI clients; the message names it to all."""
    kind = TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": _clean(message)}
    if openai:
        error |= {"param": _clean(field) if field else None, "code": kind}
    return {"type": "error", "error": error, "request_id": request_id}


def respond(
    request: Request,
    status: int,
    message: str,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error as a response."""
    request_id = str(getattr(request.state, "request_id", ""))
    body = envelope(status, message, request_id, field, _path(request).startswith("/v1/chat/"))
    more = {"request-id": request_id, **(headers or {})}
    if status in {429, 529}:
        more.setdefault("retry-after", str(RETRY_AFTER_S))
    return JSONResponse(body, status, more)


def status_of(error: Exception) -> int:
    """The status that stands for an error of the service."""
    if isinstance(error, UnknownNameError):
        return 404 if error.kind.endswith(("model", "session")) else 400
    if isinstance(error, (UsageError, DocumentError)):
        return 400
    return 529 if isinstance(error, (OverloadedError, StoreFullError)) else 500


def message_of(error: Exception) -> str:
    """What a client may read of an error of the service; the whole of it stands in the server's log."""
    status = status_of(error)
    if isinstance(error, StoreFullError):
        return "The server has no room left to store what this request would compute; try again later."
    if status >= 500 and not isinstance(error, OverloadedError):
        return "The server could not answer. Its log says why, beside this request's id."
    return without_paths(str(error))


def without_paths(text: str) -> str:
    """The text with … for every path in it."""
    return _PATH.sub("…", text)


def log_failure(error: Exception, request_id: str) -> None:
    """Leave in the log what the client is not told."""
    if status_of(error) >= 500:
        _log.error("request %s failed: %s: %s", request_id, type(error).__name__, error)


def install(app: FastAPI) -> None:
    """Every error of the app takes this form."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ZerolayerError, _service)
    app.add_exception_handler(Exception, _service)  # a defect: whoever runs the app logs its traceback


async def _service(request: Request, error: Exception) -> JSONResponse:
    field = error.field if isinstance(error, RequestError) else None
    log_failure(error, str(getattr(request.state, "request_id", "")))
    return respond(request, status_of(error), message_of(error), field)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    text = str(error.detail)
    if error.status_code == 404 and text == "Not Found":
        text = f"There is nothing at {request.method} {_path(request)}."
    if error.status_code == 405:
        text = f"{request.method} is not allowed at {_path(request)}."
    return respond(request, error.status_code, text, headers=error.headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    field, text = describe(error.errors()[0], error.body)
    return respond(request, 400, f"{field}: {text}" if field else text, field or None)


def describe(problem: Mapping[str, Any], body: Any) -> tuple[str, str]:
    """The field at fault (`messages.0.content`) and what is wrong with it, of one of pydantic's errors."""
    kind, where = problem["type"], list(problem["loc"])
    if kind == "json_invalid":
        return "", f"The body is not JSON ({problem['ctx']['error']} at character {where[-1]})."
    if where == ["body"]:
        is_json = not isinstance(body, bytes)
        form = "a JSON object" if is_json else "JSON, with the header content-type: application/json"
        return "", f"The body must be {form}."
    path = _field(where[1:], body) if where[0] == "body" else [str(part) for part in where[1:]]
    text = str(problem["msg"])
    if kind in {"model_type", "model_attributes_type"}:
        text = "Input should be an object"
    elif kind in {"union_tag_invalid", "union_tag_not_found"}:
        ctx = problem["ctx"]
        path.append(str(ctx["discriminator"]).strip("'"))
        known = ctx.get("expected_tags")
        text = f"{str(ctx['tag'])[:64]!r} is not supported; known: {known}" if known else "Field required"
    return ".".join(path), text


def _field(where: Sequence[int | str], body: Any) -> list[str]:
    """The path without what pydantic puts in for the members of a union."""
    path: list[str] = []
    at, tagged = body, False
    for n, part in enumerate(where):
        last = n == len(where) - 1
        if part in UNION_TAGS and not (isinstance(at, dict) and part in at):
            continue  # which member of a union was tried
        if isinstance(at, dict) and not tagged and part == at.get("type") and (not last or part not in at):
            tagged = True
            continue
        if isinstance(at, dict) and part not in at and not last:
            continue
        path.append(str(part))
        tagged = False
        if isinstance(at, dict):
            at = at.get(part)
        elif isinstance(at, list) and isinstance(part, int) and part < len(at):
            at = at[part]
        else:
            at = None
    return path


def _path(request: Request) -> str:
    """Not `request.url`, which takes the client's word for the host and fails where that is none."""
    return str(request.scope["path"])


def _clean(text: str) -> str:
    """Valid Unicode of bounded length."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
