"""`bench serve` on a tiny random model: what it reports, not how fast."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from asking import TEXT, tiny_engine, use_tiny_models

from zerolayer.bench import common, serve

FLAGS = {
    "model": "tiny",
    "policy": "graded",
    "device_budget": "40%",
    "block_tokens": 8,
    "chunk_tokens": 32,
    "max_new_tokens": 8,
    "encoder": "none",
}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    use_tiny_models(monkeypatch)
    engine, plain = tiny_engine()
    monkeypatch.setattr(common, "load_pair", lambda model: common.Pair(engine, plain))
    monkeypatch.setattr(serve, "long_text", lambda tokenizer, tokens, seed: TEXT + f"Copy {seed}.")


def test_both_services_and_plain_generation_are_asked_the_same(tiny):
    load = serve.Load(documents=2, sessions=2, turns=2, tokens=480, answer_tokens=4, plain_samples=2)
    found = serve.compare(load, dict(FLAGS), seed=0)
    assert found["errors"] == found["discarded_tokens"] == found["corrupt_blocks"] == 0
    assert found["turns_compared"] == 2 and found["plain_ttft_s"]["count"] == 2
    assert found["zerolayer_ttft_s"]["p50"] > 0 and found["over_window"] > 0
    for row in found["rows"]:
        if row["turn"]:
            assert row["zerolayer"]["computed_tokens"] < 120 < row["zerolayer"]["read_tokens"]


def test_a_soak_counts_what_went_wrong(tiny):
    load = serve.Load(documents=1, sessions=2, turns=2, tokens=480, answer_tokens=4, plain_samples=1)
    found = serve.soak(load, dict(FLAGS), seed=0, minutes=0.05)
    assert found["turns"] >= 2 and found["errors"] == found["discarded_tokens"] == 0
    assert found["device_bytes"] <= found["device_budget_bytes"]


def test_questions_are_about_headings_all_over():
    asked = serve.questions_of("1. The first part\nText.\n2. The second part\nText.\n", 2, seed=0)
    assert {"first", "second"} == {question.split()[-3] for question in asked}
