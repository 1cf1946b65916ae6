"""The server as users have it: `zerolayer serve` as a process, the default model, the official SDKs.

One process serves all tests of this file: a model takes seconds to load.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator

import anthropic
import openai
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families
from real_server import RealServer
from schemathesis.checks import not_a_server_error

from zerolayer.client.probe import fetch_json

pytestmark = pytest.mark.model

FACT = "30. The term of this Agreement ends on 1 May 2031."
CLAUSES = [
    f"{n}. Notice number {n} shall be sent to the office of the Supplier in writing." for n in range(20, 34)
]
CLAUSES[10] = FACT
TEXT = "\n\n".join(CLAUSES) + "\n"
DOCUMENT = {
    "type": "document",
    "title": "contract",
    "source": {"type": "text", "media_type": "text/plain", "data": TEXT},
    "citations": {"enabled": True},
}
FIRST = [
    {
        "role": "user",
        "content": [DOCUMENT, {"type": "text", "text": "When does the term of this Agreement end?"}],
    }
]
METRICS = {
    "status", "reason", "policy", "session_id", "turn", "effective_context_utilization_pct",
    "p0_token_access_latency_us", "evicted_p3_tokens_count", "discarded_tokens_count", "wasted_load_tokens_count",
    "recomputed_tokens_count", "recalled_tokens_count", "entropy_distribution", "grade_counts", "tier_tokens", "hints",
    "scheduling_log", "calibration_drift", "ttft_s", "recall_s", "knit_s", "prefill_s", "decode_s_per_token",
    "device_bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Sessions of their own, beside the default model of the user's cache."""
    from zerolayer.engines.hf.models import resolve_model

    path = tmp_path_factory.mktemp("home")
    (path / "models").mkdir()
    (path / "models/smollm2").symlink_to(resolve_model("smollm2"), target_is_directory=True)
    return path


@pytest.fixture(scope="module")
def server(home) -> Iterator[RealServer]:
    running = RealServer(home, "--encoder", "none")
    running.wait_until_ready()
    yield running
    if running.process.returncode is None:
        running.stop()
    assert not any("Traceback" in line for line in running.said)


@pytest.fixture(scope="module")
def client(server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0, timeout=120) as client:
        yield client


def ask(client, messages=FIRST, **more):
    return client.messages.create(model="smollm2", messages=messages, **{"max_tokens": 16, **more})


def whole_prompt(usage) -> int:
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


@pytest.fixture(scope="module")
def first(client):
    """The first answer about the document."""
    return ask(client)


def test_the_first_answer_is_right_and_cites_its_characters(client, first):
    assert "2031" in first.content[0].text
    places = first.content[0].citations
    assert any("1 May 2031" in place.cited_text for place in places)
    for place in places:
        assert TEXT[place.start_char_index : place.end_char_index] == place.cited_text
    count = client.messages.count_tokens(model="smollm2", messages=FIRST).input_tokens
    assert whole_prompt(first.usage) == count
    assert first.usage.cache_creation_input_tokens > 0.8 * count


def test_metrics_are_all_there(first):
    metrics = first.rtls_metrics
    assert set(metrics) >= METRICS and metrics["status"] == "active"
    assert metrics["discarded_tokens_count"] == 0 and metrics["scheduling_log"]


def test_a_follow_up_computes_its_question_only(client, first):
    messages = [
        *FIRST,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "Who gets notices?"},
    ]
    second = ask(client, messages)
    assert second.usage.cache_read_input_tokens > 0.8 * whole_prompt(first.usage)
    assert second.usage.input_tokens + second.usage.cache_creation_input_tokens < 80
    assert second.rtls_metrics["session_id"] == first.rtls_metrics["session_id"]


def test_a_stream_says_the_same_once(server, first):
    """Equal text, token ids without a gap: nothing repeats, however a client puts the pieces together."""
    body = {"model": "smollm2", "max_tokens": 16, "messages": FIRST, "stream": True}
    request = urllib.request.Request(f"{server.url}/v1/messages", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as response:
        blocks = response.read().decode().strip().split("\n\n")
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    ids = [event["id"].rpartition(":")[2].split("-") for event in events if "id" in event]
    assert [int(start) for start, _ in ids] == [0, *(int(end) for _, end in ids[:-1])]
    data = [json.loads(event["data"]) for event in events]
    text = "".join(d["delta"].get("text", "") for d in data if d["type"] == "content_block_delta")
    assert text.strip() == first.content[0].text.strip()
    assert (
        data[-2]["usage"]["output_tokens"] == int(ids[-1][1])
        or data[-2]["delta"]["stop_reason"] == "end_turn"
    )


def test_stop_sequence_and_length(client, first):
    stopped = ask(client, stop_sequences=["May"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "May")
    assert "May" not in stopped.content[0].text
    cut = ask(client, max_tokens=2)
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2


def test_hints_are_kept_or_their_reason_is_told(client, server, first):
    hints = ["ends on 1 May 2031", "nowhere in this text"]
    told = ask(client, extra_body={"context_hints": hints}).rtls_metrics["hints"]
    assert [hint["status"] for hint in told] == ["pinned", "not_found"] and told[1]["reason"]
    session = fetch_json(f"{server.url}/v1/rtls/sessions")["sessions"][0]
    blocks = fetch_json(f"{server.url}/v1/rtls/blocks?session_id={session['id']}")["blocks"]
    pinned = [block for block in blocks if block["pinned"] and "2031" in block["text"]]
    assert pinned and all(block["grade"] == "P0" for block in pinned)


def test_a_client_that_leaves_costs_nobody_anything(client, first):
    with client.messages.stream(model="smollm2", messages=FIRST, max_tokens=400) as stream:
        next(iter(stream.text_stream))
    assert ask(client).content[0].text == first.content[0].text


def test_a_broken_pdf_is_the_clients_fault(client):
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}
    content = [{"type": "document", "source": source}, {"type": "text", "text": "?"}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, [{"role": "user", "content": content}])
    assert "/" not in caught.value.api_message


def test_openai_client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        messages = [{"role": "user", "content": "Say hello."}]
        answer = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=8)
        assert answer.choices[0].message.content and answer.usage.completion_tokens <= 8
        stream = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=8, stream=True)
        said = "".join(c.choices[0].delta.content or "" for c in stream)
    assert said.strip() == answer.choices[0].message.content.strip()


def test_what_the_scheduler_shows(server, first):
    def get(path: str, body: dict | None = None):
        if body is None:
            return fetch_json(f"{server.url}/v1/rtls/{path}")
        request = urllib.request.Request(f"{server.url}/v1/rtls/{path}", json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    session_id = first.rtls_metrics["session_id"]
    view = get(f"sessions/{session_id}")
    assert view["id"] == session_id and view["document_tokens"] > 200
    blocks = get(f"blocks?session_id={session_id}")["blocks"]
    assert [block["index"] for block in blocks] == list(range(len(blocks)))
    heat = get(f"heat?session_id={session_id}")["heat"]
    assert len(heat["cells"]) == heat["side"] == 256
    assert any(policy["name"] == "graded" for policy in get("policies")["policies"])
    events = get("events")
    assert events["events"][-1]["id"] == events["last"]
    assert get(f"events?since={events['last']}")["events"] == []
    cuts = {"p0_min": 0.3, "p1_min": 0.2, "p2_min": 0.1}
    get("thresholds", {"session_id": session_id, **cuts})
    assert get("thresholds")["sessions"][session_id] == pytest.approx(cuts)
    for path in ("intent", "prefetch_intent"):
        told = get(path, {"session_id": session_id, "history": ["When does the term end?"]})
        assert told["session"] == session_id and told["needs"]
    assert get("totals")["discarded_tokens"] == 0


def test_metrics(server, first):
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(response.read().decode())}
    assert families["zerolayer_discarded_tokens"].samples[0].value == 0
    assert families["zerolayer_cache_creation_input_tokens"].samples[0].value > 0
    assert {s.labels["tier"] for s in families["zerolayer_tier_bytes"].samples} == {"device", "host", "disk"}


def test_no_5xx_for_whatever_the_openapi_document_allows(server, first):
    """schemathesis, a few cases for every operation; the model's name is a real one, so that turns are run."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    statuses = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=4, deadline=None, database=None, derandomize=True,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        def probe(case):
            if isinstance(case.body, dict) and "model" in case.body:
                case.body |= {"model": "smollm2", "max_tokens": 2}
            response = case.call(timeout=60)
            statuses.add(response.status_code)
            case.validate_response(response, checks=[not_a_server_error])

        probe()
    assert {200, 400, 404} <= statuses


def test_sigterm_loses_nothing_and_ctrl_c_is_130(server, home, first):
    """The last test of this file: it stops the server and starts it again."""
    assert server.stop(signal.SIGTERM) == 0
    again = RealServer(home, "--encoder", "none")
    try:
        again.wait_until_ready()
        with anthropic.Anthropic(base_url=again.url, api_key="any", max_retries=0, timeout=120) as client:
            answer = ask(client)
    finally:
        assert again.stop(signal.SIGINT) == 130
    assert answer.content[0].text == first.content[0].text
    assert answer.usage.cache_read_input_tokens > 0.8 * whole_prompt(answer.usage)
