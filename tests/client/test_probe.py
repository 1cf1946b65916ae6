"""`is_available`: what a program may ask before it trusts an address."""

from __future__ import annotations

import pytest

import zerolayer
from messages_server import MessagesServer
from shown_service import ShownService, serving
from zerolayer.client.probe import fetch_json
from zerolayer.errors import ServerError


def test_a_ready_server():
    with serving(ShownService()) as url:
        found = zerolayer.is_available(url)
    assert found and found.ready and found.reason == "" and found.version == zerolayer.__version__
    assert found.base_url == url.rstrip("/")


def test_one_that_is_not_ready_is_there_and_says_why():
    service = ShownService()
    service.ok = False
    with serving(service) as url:
        found = zerolayer.is_available(url)
    assert found and not found.ready and "the model is loading" in found.reason


def test_none_at_all_is_no_error(monkeypatch):
    with MessagesServer().running() as server:
        url = server.url
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    for found in (zerolayer.is_available(url), zerolayer.is_available()):
        assert not found and "no server answers" in found.reason and "zerolayer serve" in found.reason
    assert "is no address" in zerolayer.is_available("ftp://localhost").reason


@pytest.mark.parametrize("answer", [(200, {"version": "1"}), (200, []), (404, {}), (200, "<html>")])
def test_another_server_is_not_taken_for_one(answer):
    with MessagesServer().running() as server:
        server.get["/version"] = answer
        found = zerolayer.is_available(server.url)
    assert not found and found.reason


def test_the_server_s_own_words_are_passed_on():
    with MessagesServer().running() as server:
        server.get["/x"] = (
            429,
            {"type": "error", "error": {"type": "rate_limit_error", "message": "too many turns"}},
        )
        with pytest.raises(ServerError, match="429: too many turns"):
            fetch_json(f"{server.url}/x")
