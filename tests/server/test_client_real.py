"""The client, the dashboard and `ps` against `zerolayer serve` with the default model: one process for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import pytest
from click.testing import CliRunner
from real_server import RealServer

import zerolayer
from browser import browser, find_chromium
from zerolayer.cli.main import cli

pytestmark = pytest.mark.model

CLAUSES = [f"{n}. Notice {n} goes to the office of the Supplier in writing." for n in range(1, 23)]
CLAUSES[11] = "12. The agent of the Supplier for service of process is Anna Roth, Keizersgracht 7."
CLAUSES[19] = "20. The term of this Agreement ends on 1 May 2031."
DOCUMENT = {
    "type": "document",
    "title": "contract",
    "source": {"type": "text", "media_type": "text/plain", "data": "\n\n".join(CLAUSES) + "\n"},
}
QUESTION = "When does the term of this Agreement end?"
ASK = {
    "model": "smollm2",
    "max_tokens": 16,
    "messages": [{"role": "user", "content": [DOCUMENT, {"type": "text", "text": QUESTION}]}],
}
HINTS = ["Anna Roth", "a text that is nowhere"]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RealServer]:
    from zerolayer.engines.hf.models import resolve_model

    home = tmp_path_factory.mktemp("home")
    (home / "models").mkdir()
    (home / "models/smollm2").symlink_to(resolve_model("smollm2"), target_is_directory=True)
    running = RealServer(home, "--encoder", "none")
    running.wait_until_ready()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def client(server) -> Iterator[zerolayer.Anthropic]:
    with zerolayer.Anthropic(base_url=server.url, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def answer(client):
    """The first answer: the document is read for it."""
    return client.messages.create(**ASK, context_hints=HINTS)


def test_the_answer_says_what_scheduling_did(answer):
    metrics = answer.rtls_metrics
    assert (metrics.status, metrics.policy, metrics.turn) == ("active", "graded", 0)
    assert "2031" in answer.content[0].text
    assert metrics.discarded_tokens_count == 0 and metrics.device_bytes > 0 and metrics.ttft_s > 0
    assert sum(metrics.grade_counts.values()) * 64 >= metrics.tier_tokens["host"] > 200
    shares = metrics.entropy_distribution
    assert shares.p0 + shares.p1 + shares.p2 + shares.p3 == pytest.approx(1, abs=1e-3)
    assert metrics.model_extra == {} and shares.model_extra == {}  # no field of the server's is unknown here
    assert all(entry.model_extra == {} for entry in [*metrics.hints, *metrics.scheduling_log])


def test_hints_are_pinned_or_it_is_said_why_not(answer):
    found, missing = answer.rtls_metrics.hints
    assert (found.status, found.occurrences) == ("pinned", 1) and found.blocks
    assert missing.status == "not_found" and missing.reason


def test_a_conversation_streams_and_pays_for_what_is_new(client, answer):
    said = [*ASK["messages"], {"role": "assistant", "content": answer.content[0].text}]
    ask = {**ASK, "messages": [*said, {"role": "user", "content": "Who is the agent of the Supplier?"}]}
    with client.messages.stream(**ask, rtls={"thresholds": {"p0_min": 0.3}}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text and final.content[0].text == text
    assert final.rtls_metrics.turn == 1 and final.rtls_metrics.session_id == answer.rtls_metrics.session_id
    assert final.usage.cache_read_input_tokens > 200 > final.usage.input_tokens


def test_thresholds_intent_and_prefetch(client, answer):
    session = answer.rtls_metrics.session_id
    client.set_entropy_thresholds(0.9, 0.5, 0.1, session_id=session)
    intent = client.predict_next_intent([QUESTION])
    assert intent.session == session and 0 <= intent.entropy <= 1
    assert sum(need.probability for need in intent.needs) + intent.other == pytest.approx(1, abs=0.01)
    assert client.prefetch_intent([QUESTION]).session == session
    with pytest.raises(anthropic.NotFoundError, match="session"):
        client.predict_next_intent(session_id="0" * 32)


def test_an_unknown_policy_is_refused_with_the_known(client):
    with pytest.raises(anthropic.BadRequestError, match="graded"):
        client.messages.create(**ASK, rtls="no-such-policy")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_async(server, answer, anyio_backend):
    async with zerolayer.AsyncAnthropic(base_url=server.url, rtls_policy="balanced", max_retries=0) as client:
        async with client.messages.stream(**ASK) as stream:
            final = await stream.get_final_message()
        assert final.rtls_metrics.status == "active"
        assert (await client.predict_next_intent()).session == final.rtls_metrics.session_id


def test_it_is_available(server):
    found = zerolayer.is_available(server.url)
    assert found and found.ready and found.version == zerolayer.__version__


def test_ps_and_top_follow_the_server(server, answer):
    sessions = json.loads(CliRunner().invoke(cli, ["ps", "--url", server.url, "--json"]).stdout)["sessions"]
    (ours,) = [session for session in sessions if session["id"] == answer.rtls_metrics.session_id]
    assert ours["title"] == "contract" and ours["tier_tokens"]["host"] > 200 and ours["pinned_blocks"] >= 1
    shown = CliRunner().invoke(cli, ["top", ours["id"][:8], "--url", server.url, "--once"]).stdout
    assert "contract on http" in shown and "0 tokens" in shown and "heat" in shown


def test_the_dashboard_shows_the_session(server, answer):
    program = find_chromium()
    if program is None:
        pytest.skip("needs chromium on the path, such as Debian's package of that name")
    pinned = answer.rtls_metrics.hints[0].blocks[0]
    with browser(program) as page:
        page.open(server.url)
        page.wait("document.querySelectorAll('#strip .cell').length > 4")
        page.js(
            f"(node => {{ node.value = '{answer.rtls_metrics.session_id}'; node.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('#session'))"
        )
        page.wait("document.querySelector('#strip-about').innerText.startsWith('contract')")
        page.wait(f"document.querySelector('#block-{pinned}')?.className.includes('pinned')")
        page.js(f"document.querySelector('#block-{pinned}').click()")
        told = page.js("document.querySelector('#block').innerText")
        assert "Anna Roth" in told and "pinned" in told and "P0" in told
        page.wait("document.querySelector('#heat-about').innerText.includes('256 × 256 cells')")
        page.wait("document.querySelector('#now dd').innerText === '0 tokens'")
        assert page.errors == []
