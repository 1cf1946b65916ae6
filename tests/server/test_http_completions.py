"""Chat completions, models and what the scheduler shows, as bytes; the SDKs themselves are in test_http_sdks.py."""

from __future__ import annotations

import base64
import json

import pytest
from fastapi.testclient import TestClient
from scripted_service import ScriptedService, Stage, failing

from zerolayer.errors import BlockMissingError, OverloadedError
from zerolayer.server.http.app import create_app
from zerolayer.server.turns import DocumentPart, TextPart

PDF_URL = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.4").decode()


STAGE = Stage()
APP = create_app(STAGE)


def client_of(service: ScriptedService) -> TestClient:
    STAGE.service = service
    return TestClient(APP, raise_server_exceptions=False)


def ask(service: ScriptedService | None = None, **fields):
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Rent?"}], **fields}
    return client_of(service or ScriptedService()).post("/v1/chat/completions", json=body)


def test_roles_and_parts_become_the_same_turn():
    service = ScriptedService()
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": PDF_URL, "filename": "lease.pdf"}},
                                     {"type": "text", "text": "Rent?"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "When?"},
    ]  # fmt: skip
    more = {
        "max_completion_tokens": 7,
        "temperature": 1.7,
        "seed": 3,
        "stop": "END",
        "context_hints": ["rent"],
    }
    assert ask(service, messages=messages, **more).status_code == 200
    turn = service.asked[0]
    assert turn.system == (TextPart("Be brief."),)
    assert turn.messages[0].parts == (
        DocumentPart(b"%PDF-1.4", "application/pdf", "lease.pdf"),
        TextPart("Rent?"),
    )
    sampling = turn.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.seed) == (7, 1.7, 3)
    assert sampling.stop_sequences == ("END",) and turn.hints[0].text == "rent"


def test_whole():
    told = ask().json()
    assert told["choices"][0]["message"]["content"] == "The rent is 5\u2028£."
    assert told["choices"][0]["finish_reason"] == "stop" and told["object"] == "chat.completion"
    assert (
        told["usage"]["prompt_tokens"] == 64 and told["usage"]["prompt_tokens_details"]["cached_tokens"] == 21
    )
    assert told["rtls_metrics"]["status"] == "active"


@pytest.mark.parametrize("with_usage", [True, False])
def test_stream(with_usage):
    response = ask(stream=True, stream_options={"include_usage": with_usage})
    lines = [line for line in response.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    deltas = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
    assert "".join(deltas) == "The rent is 5\u2028£."
    assert chunks[-1 - with_usage]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1 - with_usage]["rtls_metrics"]["status"] == "active"
    assert (chunks[-1].get("usage") or {}).get("total_tokens") == (73 if with_usage else None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "x"}}]}]},
         "messages.0.content.0.file.file_data"),
        ({"temperature": 3}, "temperature"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"stop": [""]}, "stop"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)  # fmt: skip
def test_a_wrong_value_names_its_field(fields, param):
    response = ask(**fields)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error"
    assert error["param"] == param and param in error["message"]


def test_errors():
    assert ask(ScriptedService(OverloadedError("full"))).status_code == 529
    assert ask(model="nobody").status_code == 404
    last = ask(ScriptedService(failing(BlockMissingError("x"))), stream=True).text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "api_error"


def test_models():
    client = client_of(ScriptedService())
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list" and listed["has_more"] is False
    model = client.get("/v1/models/smollm2").json()
    assert model == listed["data"][0] and (model["type"], model["object"]) == ("model", "model")
    assert client.get("/v1/models/nobody").status_code == 404


def test_rtls_without_a_session():
    client = client_of(ScriptedService())
    assert client.get("/v1/rtls/sessions").json() == {"sessions": []}
    assert client.get("/v1/rtls/blocks").status_code == 404
    assert client.post("/v1/rtls/intent", json={"history": ["a"]}).status_code == 404
    assert client.get("/v1/rtls/totals").json()["loads"] == 3
    for body in ({"p0_min": 0.05}, {"p0_min": 7}, {"p1_min": "x"}):
        response = client.post("/v1/rtls/thresholds", json=body)
        assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"
    assert client.get("/v1/rtls/events?limit=0").json()["error"]["message"].startswith("limit: ")
