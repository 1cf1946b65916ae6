"""The client against servers of the Messages API: what it sends, what it makes of the answer."""

from __future__ import annotations

import subprocess
import sys

import anthropic
import pytest

import zerolayer
from messages_server import TEXT, MessagesServer
from zerolayer.client.metrics import NOT_ZEROLAYER, REFUSED, SWITCHED_OFF
from zerolayer.client.streaming import RtlsMessage
from zerolayer.errors import SettingError, UnknownNameError, UsageError

METRICS = {
    "status": "active",
    "reason": "",
    "session_id": "abc",
    "turn": 2,
    "effective_context_utilization_pct": 97.5,
    "p0_token_access_latency_us": {"p50": 1.5, "p95": 3.0, "p99": 9.0, "count": 12},
    "entropy_distribution": {"p0": 0.1, "p1": 0.2, "p2": 0.3, "p3": 0.4, "histogram": [1] * 10},
    "hints": [{"text": "Anna Roth", "status": "pinned", "occurrences": 3, "blocks": [4, 9]}],
    "scheduling_log": [{"instruction": "EVICT_P3 0x40 4096", "outcome": "done", "bytes": 4096, "ns": 210}],
    "of_a_later_version": 1,
}
ASK = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "When does the term end?"}]}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def served():
    with MessagesServer(METRICS).running() as server:
        yield server


@pytest.fixture
def foreign():
    with MessagesServer(None).running() as server:
        yield server


@pytest.fixture
def strict():
    with MessagesServer(None, strict=True).running() as server:
        yield server


def client_of(server, **options):
    return zerolayer.Anthropic(base_url=server.url, api_key="k", max_retries=0, **options)


def async_client_of(server, **options):
    return zerolayer.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0, **options)


def check(metrics):
    """Typed, nested, and complete."""
    assert metrics.status == "active" and metrics.active
    assert metrics.p0_token_access_latency_us.p95 == 3.0
    assert metrics.hints[0].blocks == [4, 9]
    assert metrics.scheduling_log[0].outcome == "done"
    assert metrics.entropy_distribution.mean_key_norm_dispersion is None
    assert metrics.tier_tokens == {} and metrics.discarded_tokens_count == 0
    assert metrics.model_extra == {"of_a_later_version": 1}


class TestImporting:
    def test_importing_zerolayer_imports_no_sdk(self):
        code = "import zerolayer, sys; sys.exit('anthropic' in sys.modules or 'pydantic' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_a_missing_sdk_is_named_with_its_extra(self):
        code = (
            "import sys; sys.modules['anthropic'] = None\nimport zerolayer\n"
            "try: zerolayer.Anthropic\nexcept ModuleNotFoundError as e: print(e)"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert "zerolayer[client]" in done.stdout

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="has no attribute 'Antropic'"):
            zerolayer.Antropic  # noqa: B018


class TestCreate:
    def test_the_answer_has_typed_metrics_and_is_the_officials(self, served):
        with client_of(served) as client:
            answer = client.messages.create(**ASK)
        assert isinstance(answer, RtlsMessage) and isinstance(answer, anthropic.types.Message)
        assert answer.content[0].text == TEXT and answer.usage.cache_read_input_tokens == 7
        check(answer.rtls_metrics)
        assert client.last_session_id == "abc"

    def test_hints_and_policy_travel_beside_the_request(self, served):
        hints = ["Anna Roth", {"text": "1 May 2031", "ttl_s": 60}, {"start": 3, "end": 9, "grade": "P1"}]
        with client_of(served, rtls_policy="low_latency") as client:
            client.messages.create(**ASK, context_hints=hints, extra_body={"of_the_user": 1})
        (_, body) = served.bodies[0]
        assert body["context_hints"] == [{"text": "Anna Roth"}, *hints[1:]]
        assert body["rtls"] == {"preset": "low_latency"} and body["of_the_user"] == 1

    def test_a_requests_own_choice_comes_before_the_clients(self, served):
        with client_of(served, rtls_policy="balanced") as client:
            for rtls in (
                "static-window",
                False,
                {"preset": "memory_efficient", "thresholds": {"p0_min": 0.5}},
                None,
            ):
                client.messages.create(**ASK, rtls=rtls)
        cuts = {"p0_min": 0.5, "p1_min": 0.1, "p2_min": 0.05}
        assert [body["rtls"] for _, body in served.bodies] == [
            {"policy": "static-window"},
            {"enabled": False},
            {"preset": "memory_efficient", "thresholds": cuts},
            {"preset": "balanced"},
        ]

    def test_switched_off_sends_what_the_official_client_sends(self, foreign):
        hints = {"context_hints": ["x"], "rtls": "graded"}
        with client_of(foreign, enable_rtls=False, rtls_policy="balanced") as client:
            answer = client.messages.create(**ASK, **hints)
        with anthropic.Anthropic(base_url=foreign.url, api_key="k") as official:
            official.messages.create(**ASK)
        (_, ours), (_, theirs) = foreign.bodies
        assert ours == theirs
        assert (answer.rtls_metrics.status, answer.rtls_metrics.reason) == ("disabled", SWITCHED_OFF)

    def test_raw_responses_parse_to_the_same(self, served):
        with client_of(served) as client:
            raw = client.messages.with_raw_response.create(**ASK, context_hints=["x"])
            assert raw.status_code == 200
            check(raw.parse().rtls_metrics)
            check(client.with_raw_response.messages.create(**ASK).parse().rtls_metrics)
            with client.messages.with_streaming_response.create(**ASK) as streamed:
                check(streamed.parse().rtls_metrics)
        assert served.bodies[0][1]["context_hints"] == [{"text": "x"}]

    def test_copies_keep_and_change_the_options(self, served):
        with client_of(served, rtls_policy="balanced") as client:
            kept, changed = (
                client.with_options(timeout=9),
                client.copy(enable_rtls=False, rtls_policy="graded"),
            )
            assert (kept.enable_rtls, kept.rtls_policy, kept.timeout) == (True, "balanced", 9)
            assert (changed.enable_rtls, changed.rtls_policy) == (False, "graded")
            check(kept.messages.create(**ASK).rtls_metrics)
        assert served.bodies[0][1]["rtls"] == {"preset": "balanced"}

    @pytest.mark.anyio
    async def test_async(self, served):
        async with async_client_of(served, rtls_policy="graded") as client:
            check((await client.messages.create(**ASK, context_hints=["x"])).rtls_metrics)
            raw = await client.messages.with_raw_response.create(**ASK)
            check((await raw.parse()).rtls_metrics)
            assert client.copy(rtls_policy="lru").rtls_policy == "lru"
        assert served.bodies[0][1]["rtls"] == {"policy": "graded"}


class TestKeys:
    @pytest.fixture(autouse=True)
    def no_credentials(self, monkeypatch):
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            monkeypatch.delenv(name, raising=False)

    def test_a_server_without_keys_is_asked_without_one(self, served):
        with zerolayer.Anthropic(base_url=served.url) as client:
            check(client.messages.create(**ASK).rtls_metrics)

    @pytest.mark.anyio
    async def test_async(self, served):
        async with zerolayer.AsyncAnthropic(base_url=served.url) as client:
            check((await client.messages.create(**ASK)).rtls_metrics)

    def test_the_plain_client_keeps_the_official_rule(self, served):
        for options in ({"base_url": served.url, "enable_rtls": False}, {}):
            with zerolayer.Anthropic(**options) as client, pytest.raises(TypeError, match="authentication"):
                client.messages.create(**ASK)
        assert served.bodies == []


class TestStreaming:
    @pytest.mark.parametrize("event", ["message_delta", "message_stop"])
    def test_metrics_come_with_a_last_event(self, event):
        with MessagesServer(METRICS, event=event).running() as server, client_of(server) as client:
            with client.messages.stream(**ASK, context_hints=["x"]) as stream:
                assert isinstance(stream, anthropic.MessageStream)
                assert stream.rtls_metrics.status == "disabled" and "not ended" in stream.rtls_metrics.reason
                assert "".join(stream.text_stream) == TEXT
                check(stream.rtls_metrics)
                final = stream.get_final_message()
            check(final.rtls_metrics)
            assert final.content[0].text == TEXT and final.stop_reason == "end_turn"
            assert client.last_session_id == "abc"
            assert server.bodies[0][1]["context_hints"] == [{"text": "x"}]

    def test_events_of_create(self, served):
        with client_of(served) as client, client.messages.create(**ASK, stream=True) as events:
            kinds = [event.type for event in events]
            check(events.rtls_metrics)
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"

    def test_a_server_that_is_not_zerolayer(self, foreign):
        with client_of(foreign) as client, client.messages.stream(**ASK) as stream:
            final = stream.get_final_message()
        assert (final.rtls_metrics.status, final.rtls_metrics.reason) == ("disabled", NOT_ZEROLAYER)

    @pytest.mark.anyio
    async def test_async(self, served):
        async with async_client_of(served) as client:
            async with client.messages.stream(**ASK, rtls="graded") as stream:
                assert "".join([text async for text in stream.text_stream]) == TEXT
                check(stream.rtls_metrics)
                check((await stream.get_final_message()).rtls_metrics)
            events = await client.messages.create(**ASK, stream=True)
            assert [event.type async for event in events][-1] == "message_stop"
            check(events.rtls_metrics)


class TestOtherServers:
    def test_one_that_ignores_the_fields(self, foreign):
        with client_of(foreign) as client:
            answer = client.messages.create(**ASK, context_hints=["x"], rtls="graded")
        assert (answer.rtls_metrics.status, answer.rtls_metrics.reason) == ("disabled", NOT_ZEROLAYER)

    @pytest.mark.parametrize("told", ["none", 3, []])
    def test_one_that_means_something_else_by_the_field(self, told):
        with MessagesServer(told).running() as server, client_of(server) as client:
            assert client.messages.create(**ASK).rtls_metrics.reason == NOT_ZEROLAYER
            with client.messages.stream(**ASK) as stream:
                assert stream.get_final_message().rtls_metrics.reason == NOT_ZEROLAYER

    def test_one_that_refuses_them_is_asked_again_without(self, strict):
        with client_of(strict, rtls_policy="balanced") as client:
            for _ in range(2):
                answer = client.messages.create(**ASK, context_hints=["x"])
                assert answer.content[0].text == TEXT
                assert (answer.rtls_metrics.status, answer.rtls_metrics.reason) == ("disabled", REFUSED)
            with client.messages.stream(**ASK) as stream:
                assert stream.get_final_message().rtls_metrics.reason == REFUSED
        assert ["rtls" in body for _, body in strict.bodies] == [True, False, False, False]

    def test_other_refusals_stay_errors(self, strict):
        with client_of(strict) as client, pytest.raises(anthropic.BadRequestError, match="of_the_user"):
            client.messages.create(**ASK, extra_body={"of_the_user": 1})

    @pytest.mark.anyio
    async def test_async(self, strict):
        async with async_client_of(strict, rtls_policy="balanced") as client:
            answer = await client.messages.create(**ASK)
            assert answer.rtls_metrics.reason == REFUSED


class TestRefusedBeforeSending:
    @pytest.mark.parametrize(
        ("hints", "names"),
        [
            ("Anna", "must be a list"),
            ([""], r"context_hints\[0\].text"),
            ([{"start": 4, "end": 4}], "0 <= start < end"),
            ([{"start": -1, "end": 4}], "0 <= start < end"),
            ([{}], "give text, or start and end"),
            ([{"text": "a", "start": 1, "end": 2}], "both text and start"),
            (["a", {"text": "b", "grade": "P2"}], r"context_hints\[1\].grade is 'P2'"),
            ([{"text": "b", "ttl_s": 0}], "ttl_s"),
            ([{"text": "b", "ttl_s": float("nan")}], "ttl_s"),
            ([{"text": "b", "colour": 1}], "colour"),
            ([7], "must be a mapping"),
        ],
    )
    def test_hints(self, served, hints, names):
        with client_of(served) as client, pytest.raises(UsageError, match=names):
            client.messages.create(**ASK, context_hints=hints)
        assert served.bodies == []

    @pytest.mark.parametrize(
        ("rtls", "error"),
        [
            ("low-latency", UnknownNameError),
            ("", SettingError),
            ({"preset": "fast"}, UnknownNameError),
            ({"policy": "lru", "preset": "balanced"}, SettingError),
            ({"enabled": "yes"}, SettingError),
            ({"speed": 1}, UnknownNameError),
            ({"thresholds": {"p0_min": 0.1, "p1_min": 0.2}}, SettingError),
            ({"thresholds": {"p9_min": 0.1}}, UnknownNameError),
            (3, SettingError),
        ],
    )
    def test_rtls(self, served, rtls, error):
        with client_of(served) as client, pytest.raises(error):
            client.messages.stream(**ASK, rtls=rtls)
        assert served.bodies == []

    @pytest.mark.parametrize(
        "options", [{"rtls_policy": "memory-efficient"}, {"enable_rtls": "yes"}, {"rtls_policy": 3}]
    )
    def test_options_of_the_client(self, options):
        for kind in (zerolayer.Anthropic, zerolayer.AsyncAnthropic):
            with pytest.raises(UsageError):
                kind(api_key="k", **options)

    def test_presets_are_those_of_the_scheduler(self):
        from zerolayer.client.options import PRESETS
        from zerolayer.decision.presets import PRESETS as KNOWN

        assert set(PRESETS) == set(KNOWN)


class TestSessions:
    def test_thresholds(self, served):
        with client_of(served) as client:
            client.set_entropy_thresholds(p0_min=0.3)
            client.set_entropy_thresholds(0.4, 0.2, 0.1, session_id="abc")
            with pytest.raises(SettingError, match="must fall"):
                client.set_entropy_thresholds(p0_min=0.05)
        assert [(path, body.get("session_id")) for path, body in served.bodies] == [
            ("/v1/rtls/thresholds", None),
            ("/v1/rtls/thresholds", "abc"),
        ]
        assert served.bodies[0][1] == {"p0_min": 0.3, "p1_min": 0.1, "p2_min": 0.05}

    def test_intent_is_of_the_session_that_answered_last(self, served):
        asked = {
            "role": "user",
            "content": [{"type": "text", "text": "a long document"}, {"type": "text", "text": "When?"}],
        }
        with client_of(served) as client:
            client.predict_next_intent()
            with pytest.raises(SettingError, match="history"):
                client.predict_next_intent("When?")
            client.messages.create(**ASK)
            intent = client.predict_next_intent(
                [asked, {"role": "assistant", "content": "In May."}, "Who pays?"]
            )
            client.prefetch_intent(session_id="other")
        assert intent.needs[0].label == "9 Term" and intent.needs[0].probability == 0.6
        assert served.bodies[0] == ("/v1/rtls/intent", {})
        assert served.bodies[2:] == [
            ("/v1/rtls/intent", {"session_id": "abc", "history": ["When?", "Who pays?"]}),
            ("/v1/rtls/prefetch_intent", {"session_id": "other"}),
        ]

    @pytest.mark.anyio
    async def test_async(self, served):
        async with async_client_of(served) as client:
            await client.messages.create(**ASK)
            await client.set_entropy_thresholds()
            assert (await client.predict_next_intent()).session == "abc"
            assert (await client.prefetch_intent(["When?"])).needs[0].probability == 0.6
