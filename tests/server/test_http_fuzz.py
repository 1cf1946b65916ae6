"""Bodies that nobody would send: every answer is a 4xx in the API's envelope, or a good one; never a 5xx."""

from __future__ import annotations

import json
import random

import pytest
from fastapi.testclient import TestClient
from scripted_service import ScriptedService

from zerolayer.server.http.app import create_app

VALUES = (
    None, True, 0, -1, 1 << 70, 0.5, float("inf"), float("nan"),
    "", "x", "\ud800", "\x00", "💥" * 50, [], [[]], {}, [None],
    {"type": "text"}, {"type": "document", "source": {"type": "base64"}}, {"type": 5}, {"type": None}, {"type": []},
)  # fmt: skip

MESSAGES = {
    "model": "smollm2",
    "max_tokens": 8,
    "stream": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "stop_sequences": ["a"],
    "system": [{"type": "text", "text": "s"}],
    "metadata": {"user_id": "u"},
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "title": "t",
                    "citations": {"enabled": True},
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    "source": {"type": "content", "content": [{"type": "text", "text": "d"}]},
                },
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                {"type": "text", "text": "q"},
            ],
        },
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q"},
    ],
    "context_hints": ["h", {"start": 1, "end": 2, "ttl_s": 3}],
    "rtls": {"policy": "lru", "thresholds": {"p0_min": 0.2}},
}
CHAT = {
    "model": "smollm2",
    "max_tokens": 8,
    "stop": ["a"],
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "q"}, {"type": "file", "file": {"file_data": "x"}}],
        },
    ],
}


def mutated(value, rng: random.Random):
    """The value with one thing in it replaced, taken out, doubled or buried."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        copy, key = dict(value), rng.choice(sorted(value))
        if rng.random() < 0.15:
            del copy[key]
        else:
            copy[key] = mutated(copy[key], rng)
        return copy
    if isinstance(value, list) and value and rng.random() < 0.85:
        copy, place = list(value), rng.randrange(len(value))
        copy[place] = mutated(copy[place], rng)
        return copy * 2 if rng.random() < 0.1 else copy
    return rng.choice([*VALUES, [value], {"type": value}, str(value)])


@pytest.mark.parametrize(
    ("path", "good", "count"), [("/v1/messages", MESSAGES, 1000), ("/v1/chat/completions", CHAT, 300)]
)
def test_malformed_bodies(path, good, count):
    rng = random.Random(0)
    client = TestClient(create_app(ScriptedService()), raise_server_exceptions=False)
    headers = {"content-type": "application/json"}
    statuses = []
    for number in range(count):
        body = mutated(good, rng)
        raw = json.dumps(mutated(body, rng) if number % 2 else body).encode()
        if number % 10 == 0:  # not even JSON, perhaps
            place = rng.randrange(len(raw))
            raw = raw[:place] + bytes(rng.randrange(256) for _ in range(3)) + raw[place + rng.randrange(9) :]
        response = client.post(path, content=raw, headers=headers)
        statuses.append(response.status_code)
        assert response.status_code < 500, raw
        if response.status_code != 200:
            told = response.json()
            assert told["type"] == "error" and told["error"]["message"]
            assert not any(
                word in response.text for word in ("Traceback", "/src/", "Error:", "zerolayer.", ".py")
            )
    assert set(statuses) <= {200, 400, 404} and statuses.count(400) > count / 2
