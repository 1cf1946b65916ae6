"""`ask` and `chat` on a document that is not stored, with a tiny model in place of a real one's minutes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tiny_models import make_engine
from zerolayer.cli import chat
from zerolayer.cli.main import cli
from zerolayer.engines.hf import loading, models

SIZES = ("--block-tokens", "8", "--max-new-tokens", "8", "--encoder", "none")


@pytest.fixture
def document(tmp_path):
    clauses = [f"{n}. Notice number {n} goes to office {n * 7} of the Supplier." for n in range(1, 61)]
    path = tmp_path / "contract.txt"
    path.write_text("\n\n".join(clauses) + "\n")
    return str(path)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "load_engine", lambda settings: make_engine("llama")[0])
    monkeypatch.setattr(models, "resolve_model", lambda name, on_progress=None: tmp_path)
    common = ("--home", str(tmp_path / "home"))
    return lambda command, *args, **more: CliRunner().invoke(cli, [*common, command, *args, *SIZES], **more)


def test_ask_answers_then_reads_on_and_the_next_one_starts_from_storage(run, document):
    result = run("ask", document, "-q", "Who gets notice number 12?", "--json")
    assert result.exit_code == 0, result.stderr
    first = json.loads(result.stdout)
    total, early = first["document_tokens"], first["early_document_tokens"]
    assert first["questions"][0]["early"] and 0 < early < total / 4
    assert first["prefilled_document_tokens"] == total
    assert first["recomputed_tokens"] == early
    assert first["first_answer_s"] > 0
    said = result.stderr
    assert f"from {early:,} of {total:,} tokens; 0 have been read" in said
    assert said.index("answered after") < said.index("reading on")

    result = run("ask", document, "-q", "Who gets notice number 12?", "--json")
    second = json.loads(result.stdout)
    assert not second["questions"][0]["early"] and second["document_tokens_from_storage"] == total
    assert second["prefilled_document_tokens"] == second["early_document_tokens"] == 0
    assert "answered after" not in result.stderr and "came from storage" in result.stderr


def test_ask_prints_an_early_answer_with_its_pages(run, document):
    result = run("ask", document, "-q", "Who gets notice number 12?")
    assert result.exit_code == 0, result.stderr
    assert "p. 1, clause" in result.stdout


def test_ask_reads_first_when_told_to(run, document, monkeypatch):
    report = json.loads(run("ask", document, "-q", "Who?", "--json", "--read-first").stdout)
    assert not report["questions"][0]["early"] and report["early_document_tokens"] == 0
    assert report["prefilled_document_tokens"] == report["document_tokens"]


def test_the_environment_can_ask_for_reading_first(run, document, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_EARLY_SHARE", "0")
    report = json.loads(run("ask", document, "-q", "Who?", "--json").stdout)
    assert not report["questions"][0]["early"]


def test_questions_are_answered_early_only_as_far_as_that_is_cheap(run, document, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_EARLY_SHARE", "0.1")
    result = run("ask", document, "-q", "Who gets number 12?", "-q", "Who gets number 50?", "--json")
    report = json.loads(result.stdout)
    assert [question["early"] for question in report["questions"]] == [True, False]
    assert 0 < report["early_document_tokens"] <= 0.1 * report["document_tokens"]
    assert report["prefilled_document_tokens"] == report["document_tokens"]
    assert "reading on" not in result.stderr  # all of it was read for the second question


def test_chat_from_a_pipe_answers_early_and_remembers(run, document):
    lines = "Who gets notice number 12?\nAnd number 13?\n/sources\n"
    result = run("chat", document, input=lines)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("answered after") == 2
    assert "[p. 1]" in result.stdout and "tokens read" not in result.stderr


def test_whether_a_line_waits_is_told_where_it_can_be(monkeypatch):
    class NoTerminal:
        def fileno(self) -> int:
            raise ValueError("no file")

    monkeypatch.setattr("sys.stdin", NoTerminal())
    assert chat._line_waits()
