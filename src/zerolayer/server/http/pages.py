"""The page at `/`: files of the folder dashboard/, each a route of its own, so that no other file can be asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

DASHBOARD = Path(__file__).parent.parent / "dashboard"

HEADERS = {
    # Everything comes from here, and no other page may frame it.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def router(folder: Path = DASHBOARD) -> APIRouter:
    """A route for every file of `folder`, and `/` for its index.html. Without the folder there are none."""
    routes = APIRouter(include_in_schema=False)
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if not path.is_file() or path.name.startswith("."):
            continue
        name = f"/{path.relative_to(folder).as_posix()}"
        for route in ["/", name] if name == "/index.html" else [name]:
            routes.add_api_route(route, partial(_send, path), methods=["GET", "HEAD"], response_model=None)
    return routes


def _send(path: Path) -> FileResponse:
    return FileResponse(path, headers=HEADERS)
