"""The Messages API: what is taken in, what is refused and how, and how answers are told."""

from __future__ import annotations

import base64
import json

import pytest
from fastapi.testclient import TestClient
from scripted_service import ANSWER, CITED, ScriptedService, Stage, failing

from zerolayer.errors import (
    BlockMissingError,
    OverloadedError,
    QuestionTooLongError,
    ScannedDocumentError,
    StoreFullError,
    UnknownNameError,
)
from zerolayer.server.http.app import create_app
from zerolayer.server.http.options import HttpOptions
from zerolayer.server.turns import DocumentPart, Failed, TextPart

PDF = base64.b64encode(b"%PDF-1.4 not much of one").decode()


STAGE = Stage()
APP = create_app(STAGE)


def client_of(service: ScriptedService, **options) -> TestClient:
    STAGE.service = service
    app = create_app(service, HttpOptions(**options)) if options else APP
    return TestClient(app, raise_server_exceptions=False)


def body_of(*blocks, **fields) -> dict:
    content = list(blocks) or "When is the rent due?"
    return {
        "model": "smollm2",
        "max_tokens": 16,
        "messages": [{"role": "user", "content": content}],
        **fields,
    }


def text(value: str, **more) -> dict:
    return {"type": "text", "text": value, **more}


def document(source: dict, **more) -> dict:
    return {"type": "document", "source": source, **more}


def plain_document(data: str, **more) -> dict:
    return document({"type": "text", "media_type": "text/plain", "data": data}, **more)


def events_of(raw: str) -> list[tuple[str, str, dict]]:
    """(event, id, data) of every server-sent event."""
    found = []
    for block in raw.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


def sent(**fields):
    """The turn that a body with these fields became."""
    service = ScriptedService()
    blocks = fields.pop("blocks", ())
    response = client_of(service).post("/v1/messages", json=body_of(*blocks, **fields))
    assert response.status_code == 200, response.text
    return service.asked[0]


def refused(*blocks, **fields) -> tuple[int, str]:
    response = client_of(ScriptedService()).post("/v1/messages", json=body_of(*blocks, **fields))
    assert response.json()["error"]["type"] == "invalid_request_error"
    return response.status_code, response.json()["error"]["message"]


class TestTakenIn:
    def test_text_alone(self):
        turn = sent()
        assert turn.messages[0].parts == (TextPart("When is the rent due?"),)
        assert (turn.sampling.temperature, turn.sampling.max_tokens, turn.tenant) == (0.0, 16, "")

    def test_everything(self):
        turn = sent(
            blocks=[
                document({"type": "base64", "media_type": "application/pdf", "data": PDF[:8] + "\n" + PDF[8:]},
                         title="lease", citations={"enabled": True}, cache_control={"type": "ephemeral"}),
                plain_document("One. Two.", context="a draft"),
                text("Why?", cache_control={"type": "ephemeral", "ttl": "1h"}),
            ],
            system=[text("Be brief."), text("Be kind.", cache_control={"type": "ephemeral"})],
            temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["\n\n", "END"], metadata={"user_id": "u"},
            context_hints=["rent", {"start": 3, "end": 9, "grade": "P1", "ttl_s": 60}],
            rtls={"policy": "lru", "thresholds": {"p0_min": 0.3}},
            service_tier="auto", thinking={"type": "adaptive"}, anything={"new": 1},
        )  # fmt: skip
        pdf, context, plain, question = turn.messages[0].parts
        assert pdf == DocumentPart(b"%PDF-1.4 not much of one", "application/pdf", "lease", True, 300.0)
        assert context == TextPart("a draft") and plain == DocumentPart(b"One. Two.", "text/plain")
        assert question == TextPart("Why?", 3600.0)
        assert turn.system == (TextPart("Be brief."), TextPart("Be kind.", 300.0))
        assert (turn.sampling.temperature, turn.sampling.top_p, turn.sampling.top_k) == (0.5, 0.9, 5)
        assert turn.sampling.stop_sequences == ("\n\n", "END")
        assert [(h.text, h.start, h.end, h.grade, h.ttl_s) for h in turn.hints] == [
            ("rent", None, None, "P0", None), ("", 3, 9, "P1", 60.0)
        ]  # fmt: skip
        assert turn.rtls.enabled and turn.rtls.policy == "lru" and turn.rtls.thresholds.p0_min == 0.3

    def test_messages_of_one_role_in_a_row_are_one(self):
        messages = [
            {"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "…"}, text("c")]},
            {"role": "user", "content": "d"},
        ]  # fmt: skip
        turn = sent(messages=messages)
        assert [(m.role, [p.text for p in m.parts]) for m in turn.messages] == [
            ("user", ["a", "b"]), ("assistant", ["c"]), ("user", ["d"])
        ]  # fmt: skip
        assert turn.system == (TextPart("S"),)

    def test_an_empty_answer_may_be_sent_back(self):
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [text("")]},
            {"role": "user", "content": "b"},
        ]
        assert sent(messages=messages).messages[1].parts == (TextPart(""),)

    def test_the_answer_may_be_begun(self):
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The rent is"}]
        assert sent(messages=messages).messages[-1].parts == (TextPart("The rent is"),)

    def test_cache_control_of_the_whole_marks_the_last_part(self):
        assert sent(cache_control={"type": "ephemeral"}).messages[0].parts[0].cache_ttl_s == 300.0

    def test_longer_answers_than_the_model_can_are_cut_to_what_it_can(self):
        assert sent(max_tokens=100_000).sampling.max_tokens == 1024

    @pytest.mark.parametrize("name", ["claude-sonnet-4-5", "gpt-4o", "smollm2"])
    def test_names_of_the_vendors_models_stand_for_ours_and_the_answer_says_which(self, name):
        response = client_of(ScriptedService()).post("/v1/messages", json=body_of(model=name))
        assert response.json()["model"] == "smollm2"

    def test_a_seed_is_kept_and_who_gives_none_gets_another_each_time(self):
        assert sent(seed=7, temperature=1).sampling.seed == 7
        assert sent(temperature=1).sampling.seed != sent(temperature=1).sampling.seed

    def test_rtls_may_be_switched_off(self):
        assert not sent(rtls=False).rtls.enabled and not sent(rtls={"enabled": False}).rtls.enabled

    def test_tools_that_must_not_be_called_are_no_hindrance(self):
        assert sent(tools=[{"name": "t"}], tool_choice={"type": "none"})


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "start"),
        [
            ({"max_tokens": 0}, "max_tokens: "),
            ({"max_tokens": "5"}, "max_tokens: "),
            ({"temperature": 1.5}, "temperature: "),
            ({"top_p": -0.1}, "top_p: "),
            ({"top_k": -1}, "top_k: "),
            ({"stop_sequences": [""]}, "stop_sequences.0: "),
            ({"messages": []}, "messages: "),
            ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: "),
            ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: "),
            ({"messages": [{"role": "user", "content": "  "}]}, "messages.0.content: "),
            ({"messages": [{"role": "assistant", "content": "x"}]}, "messages: "),
            ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": " "}]}, "messages: "),
            ({"tools": [{"name": "t"}]}, "tools: "),
            ({"tool_choice": {"type": "any"}}, "tool_choice: "),
            ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format: "),
            ({"metadata": {"user_id": "x" * 300}}, "metadata.user_id: "),
            ({"context_hints": [{"text": "a", "start": 1}]}, "context_hints.0: "),
            ({"context_hints": [{"start": 5, "end": 5}]}, "context_hints.0: "),
            ({"context_hints": [{"text": "a", "grade": "P9"}]}, "context_hints.0.grade: "),
            ({"rtls": {"preset": "fast"}}, "rtls.preset: "),
            ({"rtls": {"policy": "os:abort"}}, "rtls.policy: "),
            ({"rtls": {"preset": "balanced", "policy": "lru"}}, "rtls: "),
            ({"rtls": {"thresholds": {"p0_min": 0.05}}}, "rtls.thresholds: "),
        ],
    )  # fmt: skip
    def test_a_wrong_value_names_its_field(self, fields, start):
        status, message = refused(**fields)
        assert status == 400 and message.startswith(start)

    @pytest.mark.parametrize(
        ("block", "start"),
        [
            ({"type": "image", "source": {}}, "messages.0.content.0.type: 'image' is not supported"),
            ({"type": "tool_result"}, "messages.0.content.0.type: "),
            (text(" \n"), "messages.0.content.0.text: "),
            ({"type": "text"}, "messages.0.content.0.text: "),
            ({}, "messages.0.content.0.type: "),
            (document({"type": "url", "url": "https://x"}), "messages.0.content.0.source.type: 'url'"),
            (document({"type": "base64", "media_type": "application/pdf", "data": "%%%"}),
             "messages.0.content.0.source.data: "),
            (document({"type": "base64", "media_type": "application/pdf", "data": ""}),
             "messages.0.content.0.source.data: "),
            (document({"type": "base64", "media_type": "image/png", "data": PDF}),
             "messages.0.content.0.source.media_type: "),
            (plain_document(" "), "messages.0.content.0.source: "),
            (plain_document("x", cache_control={"type": "ephemeral", "ttl": "2h"}),
             "messages.0.content.0.cache_control.ttl: "),
        ],
    )  # fmt: skip
    def test_a_wrong_block_names_its_field(self, block, start):
        status, message = refused(block)
        assert status == 400 and message.startswith(start)

    def test_unknown_model_is_not_found(self):
        response = client_of(ScriptedService()).post("/v1/messages", json=body_of(model="nobody"))
        assert response.status_code == 404 and response.json()["error"]["type"] == "not_found_error"
        assert "smollm2" in response.json()["error"]["message"]

    @pytest.mark.parametrize(
        ("error", "status", "kind"),
        [
            (ScannedDocumentError("lease: pages without text"), 400, "invalid_request_error"),
            (QuestionTooLongError("the question has 9 tokens"), 400, "invalid_request_error"),
            (UnknownNameError("live session", "s", []), 404, "not_found_error"),
            (UnknownNameError("policy", "p", []), 400, "invalid_request_error"),
            (OverloadedError("64 turns wait"), 529, "overloaded_error"),
            (StoreFullError("/data/zerolayer is full"), 529, "overloaded_error"),
            (BlockMissingError("no block 00ff in /data/zerolayer"), 500, "api_error"),
            (ZeroDivisionError("in /usr/lib/python3/x.py"), 500, "api_error"),
        ],
    )
    def test_errors_of_the_service_have_their_status_and_tell_no_path(self, error, status, kind):
        for script in (error, [Failed(error)]):
            response = client_of(ScriptedService(script)).post("/v1/messages", json=body_of())
            assert response.status_code == status
            told = response.json()
            assert told["type"] == "error" and told["error"]["type"] == kind
            assert told["request_id"] == response.headers["request-id"]
            for hidden in ("/data", "/usr", type(error).__name__, "Traceback"):
                assert hidden not in response.text
            assert ("retry-after" in response.headers) == (status == 529)

    def test_what_is_no_json_object(self):
        client = client_of(ScriptedService())
        for raw in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"model": "\\ud800"}'):
            response = client.post("/v1/messages", content=raw, headers={"content-type": "application/json"})
            assert response.status_code == 400 and response.json()["error"]["message"]
        assert client.post("/v1/messages", content=b"{}").status_code == 400


class TestAnswer:
    def test_whole(self):
        response = client_of(ScriptedService()).post("/v1/messages", json=body_of())
        told = response.json()
        assert told["content"] == [{"type": "text", "text": "The rent is 5\u2028£."}]
        assert (told["role"], told["type"], told["stop_reason"]) == ("assistant", "message", "end_turn")
        assert told["usage"] == {
            "input_tokens": 3, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 21, "output_tokens": 9,
        }  # fmt: skip
        assert told["rtls_metrics"]["status"] == "active"
        assert response.headers["request-id"].startswith("req_")

    def test_stream_has_the_official_order(self):
        response = client_of(ScriptedService()).post("/v1/messages", json=body_of(stream=True))
        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_of(response.text)
        assert [name for name, _, _ in events] == [
            "message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta",
            "content_block_stop", "message_delta", "message_stop",
        ]  # fmt: skip
        assert all(data["type"] == name for name, _, data in events)
        start = events[0][2]["message"]
        assert start["content"] == [] and start["usage"]["cache_read_input_tokens"] == 21
        assert events[-2][2]["usage"]["output_tokens"] == 9
        assert events[-2][2]["rtls_metrics"]["status"] == "active"
        ids = [event_id.rpartition(":")[2] for _, event_id, _ in events if event_id]
        assert ids == ["0-3", "3-9"]

    def test_metrics_are_never_missing(self):
        script = [*ANSWER[:3], ANSWER[3].__class__("end_turn", None, ANSWER[3].usage, {})]
        told = client_of(ScriptedService(script)).post("/v1/messages", json=body_of()).json()
        assert told["rtls_metrics"]["status"] == "degraded" and told["rtls_metrics"]["reason"]

    def test_numbers_that_are_none_are_null(self):
        script = [*ANSWER[:3], ANSWER[3].__class__("end_turn", None, ANSWER[3].usage, {"x": float("nan")})]
        for stream in (False, True):
            response = client_of(ScriptedService(script)).post("/v1/messages", json=body_of(stream=stream))
            assert response.status_code == 200 and '"x":null' in response.text

    def test_silence_is_filled_with_pings_before_the_first_event_too(self):
        script = [0.25, *ANSWER[:2], 0.15, *ANSWER[2:]]
        response = client_of(ScriptedService(script), ping_s=0.1).post(
            "/v1/messages", json=body_of(stream=True)
        )
        names = [name for name, _, _ in events_of(response.text)]
        first = names.index("message_start")
        assert first >= 1 and set(names[:first]) == {"ping"}
        assert "ping" in names[first + 3 : -3]

    def test_a_failure_in_the_middle_is_an_event(self):
        script = failing(BlockMissingError("block 00ff is not in /data"))
        service = ScriptedService(script)
        events = events_of(client_of(service).post("/v1/messages", json=body_of(stream=True)).text)
        name, _, data = events[-1]
        assert name == "error" and data["error"]["type"] == "api_error" and "/data" not in str(data)
        assert service.turns[0].cancelled

    def test_a_turn_without_an_end_is_a_failure(self):
        client = client_of(ScriptedService(ANSWER[:2]))
        assert events_of(client.post("/v1/messages", json=body_of(stream=True)).text)[-1][0] == "error"

    def test_stop_sequence(self):
        script = [*ANSWER[:3], ANSWER[3].__class__("stop_sequence", "END", ANSWER[3].usage, {})]
        told = client_of(ScriptedService(script)).post("/v1/messages", json=body_of()).json()
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "END")


class TestCitations:
    script = (*ANSWER[:3], CITED, ANSWER[3])

    def cited(self, *blocks) -> dict:
        service = ScriptedService(self.script)
        response = client_of(service).post("/v1/messages", json=body_of(*blocks, text("?")))
        streamed = client_of(service).post("/v1/messages", json=body_of(*blocks, text("?"), stream=True))
        deltas = [d["delta"] for n, _, d in events_of(streamed.text) if n == "content_block_delta"]
        whole = response.json()["content"][0]["citations"][0]
        assert deltas[-1] == {"type": "citations_delta", "citation": whole}
        return whole

    def test_pdf_names_pages(self):
        source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
        place = self.cited(document(source, title="lease"))
        assert (place["type"], place["start_page_number"], place["end_page_number"]) == (
            "page_location",
            3,
            4,
        )
        assert (place["cited_text"], place["document_title"], place["document_index"]) == (
            "rent is 5",
            "lease",
            0,
        )

    def test_text_names_its_characters_as_they_were_sent(self):
        place = self.cited(plain_document("The\r\nrent is 5."))
        assert place["type"] == "char_location" and place["cited_text"] == "rent is 5"
        assert (place["start_char_index"], place["end_char_index"]) == (5, 14)

    def test_pieces_are_named(self):
        pieces = [text("Th"), text("e rent"), text("is 5."), text("End.")]
        place = self.cited(document({"type": "content", "content": pieces}))
        assert place["type"] == "content_block_location"
        assert (place["start_block_index"], place["end_block_index"]) == (1, 3)


def test_count_tokens_needs_no_max_tokens():
    body = body_of()
    del body["max_tokens"]
    response = client_of(ScriptedService()).post("/v1/messages/count_tokens", json=body)
    assert response.json() == {"input_tokens": 64}
