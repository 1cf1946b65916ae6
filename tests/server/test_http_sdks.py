"""The official SDKs, unchanged, against a real HTTP server: types, order, errors, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anthropic
import openai
import pytest
from anthropic.types import CitationCharLocation
from http_server import serving
from scripted_service import ANSWER, CITED, ScriptedService, failing

from zerolayer.errors import BlockMissingError, OverloadedError
from zerolayer.server.http.app import create_app
from zerolayer.server.http.options import HttpOptions

SAID = "The rent is 5\u2028£."
DOCUMENT = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "The rent is 5."},
    "citations": {"enabled": True},
}
ASK = {
    "model": "smollm2",
    "max_tokens": 24,
    "messages": [{"role": "user", "content": [DOCUMENT, {"type": "text", "text": "How much?"}]}],
}


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService((*ANSWER[:3], CITED, ANSWER[3]))


@pytest.fixture
def url(service) -> Iterator[str]:
    with serving(create_app(service, HttpOptions(api_keys=("secret",), ping_s=0.1))) as url:
        yield url


@pytest.fixture
def client(url) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0) as client:
        yield client


class TestAnthropic:
    def test_message(self, client):
        message = client.messages.create(**ASK)
        assert message.content[0].text == SAID and message.stop_reason == "end_turn"
        place = message.content[0].citations[0]
        assert isinstance(place, CitationCharLocation) and place.cited_text == "rent is 5"
        usage = message.usage
        assert usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens == 64
        assert message.rtls_metrics["status"] == "active" and message._request_id.startswith("req_")

    def test_stream_helper(self, client):
        with client.messages.stream(**ASK) as stream:
            assert "".join(stream.text_stream) == SAID
            message = stream.get_final_message()
        assert message.content[0].text == SAID and message.usage.output_tokens == 9
        assert message.content[0].citations[0].start_char_index == 4

    def test_raw_stream_passes_the_metrics_on(self, client):
        events = list(client.messages.create(**ASK, stream=True))
        assert events[0].type == "message_start" and events[-1].type == "message_stop"
        assert events[-2].type == "message_delta" and events[-2].rtls_metrics["status"] == "active"

    def test_pings_before_the_answer_are_no_hindrance(self, client, service):
        service.script = [0.3, *service.script]
        with client.messages.stream(**ASK) as stream:
            assert stream.get_final_text() == SAID

    def test_async(self, url):
        async def ask():
            async with anthropic.AsyncAnthropic(base_url=url, api_key="secret") as client:
                messages = await asyncio.gather(*(client.messages.create(**ASK) for _ in range(4)))
                async with client.messages.stream(**ASK) as stream:
                    text = "".join([piece async for piece in stream.text_stream])
                count = await client.messages.count_tokens(model=ASK["model"], messages=ASK["messages"])
                return [m.content[0].text for m in messages], text, count.input_tokens

        assert asyncio.run(ask()) == ([SAID] * 4, SAID, 64)

    def test_beta_and_unknown_fields_are_accepted(self, client):
        message = client.beta.messages.create(**ASK, betas=["some-2030-01-01"], extra_body={"new": 1})
        assert message.content[0].text == SAID

    def test_models(self, client):
        assert [model.id for model in client.models.list()] == ["smollm2"]
        assert client.models.retrieve("smollm2").type == "model"

    @pytest.mark.parametrize(
        ("change", "kind", "field"),
        [
            ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
            ({"model": "nobody"}, anthropic.NotFoundError, "model"),
            ({"messages": []}, anthropic.BadRequestError, "messages"),
        ],
    )
    def test_errors(self, client, change, kind, field):
        with pytest.raises(kind, match=field) as caught:
            client.messages.create(**ASK | change)
        assert caught.value.request_id.startswith("req_") and caught.value.type in {
            "invalid_request_error",
            "not_found_error",
        }

    def test_a_wrong_key(self, client):
        with pytest.raises(anthropic.AuthenticationError):
            client.with_options(api_key="wrong").messages.create(**ASK)

    def test_an_overloaded_server_is_asked_again(self, client, service):
        script, tries = service.script, []

        def submit(request, submit=service.submit):
            tries.append(request)
            service.script = OverloadedError("64 turns wait") if len(tries) == 1 else script
            return submit(request)

        service.submit = submit
        assert client.with_options(max_retries=1).messages.create(**ASK).content[0].text == SAID
        assert len(tries) == 2

    def test_overloaded_for_good(self, client, service):
        service.script = OverloadedError("64 turns wait")
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(**ASK)
        assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")

    def test_a_failure_in_the_middle_of_a_stream(self, client, service):
        service.script = failing(BlockMissingError("no block"), after=0.2)
        with pytest.raises(anthropic.APIStatusError, match="request's id"):
            list(client.messages.create(**ASK, stream=True))


class TestOpenAI:
    ask = {"model": "smollm2", "messages": [{"role": "user", "content": "How much is the rent?"}]}  # noqa: RUF012

    @pytest.fixture
    def client(self, url) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0) as client:
            yield client

    def test_completion(self, client):
        answer = client.chat.completions.create(**self.ask)
        assert answer.choices[0].message.content == SAID and answer.usage.prompt_tokens == 64
        assert answer.rtls_metrics["status"] == "active"

    def test_stream(self, client):
        chunks = list(
            client.chat.completions.create(**self.ask, stream=True, stream_options={"include_usage": True})
        )
        said = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        assert "".join(said) == SAID and chunks[-1].usage.total_tokens == 73

    def test_errors_and_models(self, client, service):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**self.ask, temperature=9)
        assert caught.value.param == "temperature"
        assert [model.id for model in client.models.list()] == ["smollm2"]
        service.script = failing(BlockMissingError("no block"), after=0.2)
        with pytest.raises(openai.APIError, match="request's id"):
            list(client.chat.completions.create(**self.ask, stream=True))
