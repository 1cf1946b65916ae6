"""The page at `/` and its files: those, with their headers, and nothing else of the machine."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from scripted_service import ScriptedService

from zerolayer.server.http.app import create_app
from zerolayer.server.http.pages import DASHBOARD, router


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(ScriptedService()))


def test_every_file_of_the_folder_is_there_and_may_load_nothing_from_elsewhere(client):
    names = [path.relative_to(DASHBOARD).as_posix() for path in DASHBOARD.rglob("*") if path.is_file()]
    assert "index.html" in names
    for name in ["", *names]:
        response = client.get(f"/{name}")
        assert response.status_code == 200 and client.head(f"/{name}").status_code == 200
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "path", ["/pages.py", "/../pages.py", "/%2e%2e/pages.py", "/vendor", "/vendor/", "/.git"]
)
def test_nothing_else_is(client, path):
    response = client.get(path)
    assert response.status_code == 404 and response.json()["error"]["type"] == "not_found_error"


def test_without_the_folder_there_is_no_page(tmp_path):
    app = FastAPI()
    app.include_router(router(tmp_path / "none"))
    assert TestClient(app).get("/").status_code == 404
