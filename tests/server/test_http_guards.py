"""What stands before the routes: keys, hosts, sizes, places; probes, metrics, and clients that leave."""

from __future__ import annotations

import json
import socket
import threading
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from http_server import serving, until
from prometheus_client.parser import text_string_to_metric_families
from scripted_service import ANSWER, ScriptedService

from zerolayer import __version__
from zerolayer.errors import SettingError
from zerolayer.metrics import METRICS
from zerolayer.server.http.app import create_app
from zerolayer.server.http.auth import Keys
from zerolayer.server.http.exposition import SHOWN, exposed_name
from zerolayer.server.http.latest import LatestTotals
from zerolayer.server.http.options import HttpOptions
from zerolayer.server.views import SessionView, Totals

ASK = {"model": "smollm2", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi?"}]}


def client_of(service: ScriptedService | None = None, **options) -> TestClient:
    app = create_app(service or ScriptedService(), HttpOptions(**options))
    return TestClient(app, raise_server_exceptions=False, base_url="http://127.0.0.1:8765")


def session(name: str, tenant: str) -> SessionView:
    return SessionView(name, "lease", "smollm2", tenant, "idle", "graded", 100, 0, 100, 2, 64)


class TestKeys:
    options = MappingProxyType({"api_keys": ("k1=acme", "k2")})

    def test_no_key_no_answer(self):
        client = client_of(**self.options)
        for headers in (
            {},
            {"x-api-key": "k3"},
            {"authorization": "Bearer k1 "[:-2]},
            {"x-api-key": "k1=acme"},
        ):
            response = client.post("/v1/messages", json=ASK, headers=headers)
            assert response.status_code == 401 and response.json()["error"]["type"] == "authentication_error"
            assert response.json()["request_id"] == response.headers["request-id"]
        assert client.get("/metrics").status_code == client.get("/openapi.json").status_code == 401

    def test_probes_need_none(self):
        client = client_of(**self.options)
        assert [client.get(path).status_code for path in ("/health", "/ready", "/version")] == [200] * 3

    @pytest.mark.parametrize("headers", [{"x-api-key": "k1"}, {"authorization": "Bearer k1"}])
    def test_a_key_stands_for_its_tenant(self, headers):
        service = ScriptedService()
        assert (
            client_of(service, **self.options).post("/v1/messages", json=ASK, headers=headers).status_code
            == 200
        )
        assert service.asked[0].tenant == "acme"

    def test_a_key_without_a_tenant_is_its_own(self):
        service = ScriptedService()
        client_of(service, **self.options).post("/v1/messages", json=ASK, headers={"x-api-key": "k2"})
        assert service.asked[0].tenant.startswith("key-") and "k2" not in service.asked[0].tenant

    def test_a_tenant_sees_its_own_sessions_only(self):
        service = ScriptedService()
        service.known = [session("a", "acme"), session("b", "other")]
        client = client_of(service, **self.options)
        client.headers["x-api-key"] = "k1"
        assert [s["id"] for s in client.get("/v1/rtls/sessions").json()["sessions"]] == ["a"]
        assert client.get("/v1/rtls/sessions/a").status_code == 200
        for path in ("/v1/rtls/sessions/b", "/v1/rtls/blocks?session_id=b"):
            assert client.get(path).json()["error"]["type"] == "not_found_error"

    @pytest.mark.parametrize("key", ["", "=tenant", "a b", "ключ"])
    def test_a_key_that_no_header_carries_is_refused(self, key):
        with pytest.raises(SettingError, match="API key 1"):
            Keys([key])


class TestHosts:
    def test_a_local_server_answers_to_local_names_only(self):
        client = client_of(local_only=True)
        assert client.get("/health").status_code == 200
        for host in ("localhost:8765", "[::1]:8765", "LOCALHOST"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        response = client.get("/v1/rtls/sessions", headers={"host": "attacker.example:8765"})
        assert response.status_code == 403 and response.json()["error"]["type"] == "permission_error"

    @pytest.mark.parametrize("host", ["[", "a b", "", "x" * 5000, "é"])
    def test_a_host_that_is_none(self, host):
        for options in ({}, {"local_only": True}):
            for path in ("/v1/messages/", "/v1/messages", "/nothing"):
                headers = {"host": host.encode()}
                assert client_of(**options).post(path, json={}, headers=headers).status_code in {
                    400,
                    403,
                    404,
                }

    def test_no_other_page_is_let_in(self):
        response = client_of().options(
            "/v1/messages",
            headers={"origin": "https://attacker.example", "access-control-request-method": "POST"},
        )
        assert "access-control-allow-origin" not in response.headers
        assert (
            client_of().post("/v1/messages", content=json.dumps(ASK)).status_code == 400
        )  # no JSON content type


class TestSizes:
    def test_an_announced_size(self):
        response = client_of(max_request_bytes=300).post("/v1/messages", json=ASK | {"pad": "x" * 300})
        assert response.status_code == 413 and response.json()["error"]["type"] == "request_too_large"

    def test_a_size_that_is_not_announced(self):
        pieces = (b"x" * 100 for _ in range(20))
        headers = {"content-type": "application/json"}
        response = client_of(max_request_bytes=300).post("/v1/messages", content=pieces, headers=headers)
        assert response.status_code == 413 and response.json()["error"]["type"] == "request_too_large"


class TestPlaces:
    def test_one_tenant_cannot_take_every_place_and_gives_back_what_it_took(self):
        service = ScriptedService([*ANSWER[:2], 3.0, *ANSWER[2:]])
        app = create_app(service, HttpOptions(max_turns_per_tenant=1))
        with serving(app) as url, open_request(url, ASK | {"stream": True}) as stream:
            assert b"message_start" in read_until(stream, b"content_block_delta")
            with open_request(url, ASK) as second:
                answer = read_until(second, b"request_id")
                assert b"429 " in answer and b"rate_limit_error" in answer and b"retry-after: 1" in answer
            stream.close()
            assert until(lambda: service.turns[0].cancelled)
            service.script = ANSWER
            with open_request(url, ASK) as third:
                assert b"200 OK" in read_until(third, b"end_turn")


class TestClientLeaves:
    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("script", [[30.0], [*ANSWER[:2], 30.0]])
    def test_the_turn_is_cancelled(self, stream, script):
        service = ScriptedService(script)
        with serving(create_app(service, HttpOptions(ping_s=0.2))) as url:
            with open_request(url, ASK | {"stream": stream}):
                assert until(lambda: service.turns)
            assert until(lambda: service.turns[0].cancelled)


class TestProbes:
    def test_ready_says_why_not_and_tells_no_path(self):
        service = ScriptedService()
        assert client_of(service).get("/ready").json() == {"ready": True, "reasons": []}
        service.ok = False
        response = client_of(service).get("/ready")
        assert response.status_code == 503 and response.json()["reasons"] == ["the model of … is loading"]

    def test_health_and_version(self):
        assert client_of().get("/health").json() == {"status": "ok", "version": __version__}
        assert client_of().get("/version").json()["name"] == "zerolayer"

    def test_nothing_there(self):
        for path in ("/v1/nothing", "/../../etc/passwd", "/index.php"):
            response = client_of().get(path)
            assert response.status_code == 404 and response.json()["error"]["type"] == "not_found_error"
        response = client_of().get("/v1/messages")
        assert response.status_code == 405 and response.json()["type"] == "error"


class TestMetrics:
    def test_counters_come_from_the_service_with_their_units(self):
        client = client_of()
        client.post("/v1/messages", json=ASK)
        client.post("/v1/messages", json={})
        families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
        assert families["zerolayer_loads"].samples[0].value == 3
        tiers = {s.labels["tier"]: s.value for s in families["zerolayer_tier_bytes"].samples}
        assert tiers == {"device": 5, "host": 6, "disk": 7}
        assert families["zerolayer_ttft_seconds"].type == "histogram"
        assert (
            sum(s.value for s in families["zerolayer_ttft_seconds"].samples if s.name.endswith("_count")) == 1
        )
        requests = families["zerolayer_http_requests"].samples
        counts = {
            (s.labels["route"], s.labels["status"]): s.value for s in requests if s.name.endswith("_total")
        }
        assert counts["/v1/messages", "200"] == counts["/v1/messages", "400"] == 1

    @pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.metric)
    def test_names_are_declared_and_say_their_unit(self, shown):
        unit, name = METRICS[shown.metric].unit, exposed_name(shown.metric)
        assert name.startswith("zerolayer_")
        assert {"s": "_seconds", "B": "_bytes", "tokens": "token", "blocks": "block"}.get(unit, "") in name

    def test_names_are_unique(self):
        assert len({exposed_name(shown.metric) for shown in SHOWN}) == len(SHOWN)

    def test_totals_that_take_long_are_told_as_they_were(self):
        service = ScriptedService()
        latest, free = LatestTotals(service, wait_s=0.1), threading.Event()
        taken, age = latest.get()
        assert taken.loads == 3 and age < 0.1
        service.totals = lambda: (free.wait(5), Totals(loads=4))[1]
        taken, age = latest.get()
        assert taken.loads == 3 and age >= 0.1
        free.set()
        assert until(lambda: latest.get()[0].loads == 4)

    def test_a_path_is_no_label(self):
        client = client_of()
        client.get("/v1/rtls/sessions/abc")
        client.get("/nothing/at/all")
        text = client.get("/metrics").text
        assert (
            'route="/v1/rtls/sessions/{session_id}"' in text and "abc" not in text and "/nothing" not in text
        )


class Connection:
    """A raw connection with a request on it."""

    def __init__(self, url: str, body: dict) -> None:
        self._socket = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))
        self._socket.settimeout(10)
        data = json.dumps(body).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
        self._socket.sendall(head.encode() + b"\r\n\r\n" + data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> bytes:
        return self._socket.recv(65536)


def open_request(url: str, body: dict) -> Connection:
    return Connection(url, body)


def read_until(connection: Connection, mark: bytes) -> bytes:
    found = b""
    while mark not in found:
        piece = connection.read()
        if not piece:
            break
        found += piece
    return found
