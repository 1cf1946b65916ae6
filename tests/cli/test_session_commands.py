"""`ask` and `chat` on a real session with the default model."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Sessions of their own, beside the default model of the user's cache."""
    from zerolayer.engines.hf.models import resolve_model

    path = tmp_path_factory.mktemp("home")
    (path / "models").mkdir()
    (path / "models/smollm2").symlink_to(resolve_model("smollm2"), target_is_directory=True)
    return path


@pytest.fixture(scope="module")
def contract(tmp_path_factory):
    clauses = [
        f"{n}. Notice number {n} shall be sent to the office of the Supplier in writing."
        for n in range(1, 60)
    ]
    clauses[29] = "30. The term of this Agreement ends on 1 May 2031."
    path = tmp_path_factory.mktemp("documents") / "contract.txt"
    path.write_text("\n\n".join(clauses) + "\n")
    return str(path)


@pytest.fixture
def run(home):
    common = ["--home", str(home)]
    return lambda *args, **kwargs: CliRunner().invoke(cli, [*common, *args], **kwargs)


def ask(run, contract, *more):
    args = (
        "ask",
        contract,
        "-q",
        "When does the term of this Agreement end?",
        "--max-new-tokens",
        "12",
        *more,
    )
    return run(*args, "--device-budget", "100%")


def test_ask_prints_one_json_object_and_the_second_run_reads_nothing(run, contract):
    first = ask(run, contract, "--json")
    assert first.exit_code == 0, first.stderr
    assert first.stdout.count("\n") == 1
    report = json.loads(first.stdout)
    (asked,) = report["questions"]
    assert report["prefilled_document_tokens"] == report["document_tokens"] > 500
    assert asked["metrics"]["discarded_tokens"] == 0
    assert asked["citations"] and all(citation["page"] == 1 for citation in asked["citations"])

    second = json.loads(ask(run, contract, "--json").stdout)
    assert second["prefilled_document_tokens"] == 0
    assert second["document_tokens_from_storage"] == report["document_tokens"]
    assert second["questions"][0]["answer"] == asked["answer"]


def test_ask_names_page_and_quote(run, contract):
    result = ask(run, contract)
    assert result.exit_code == 0, result.stderr
    assert "p. 1" in result.stdout and '"' in result.stdout


def test_chat_reads_lines_and_ends_with_stdin(run, contract):
    lines = "/sources\nWhen does the term end?\n/sources\n/what\n"
    result = run("chat", contract, "--max-new-tokens", "8", "--device-budget", "100%", input=lines)
    assert result.exit_code == 0, result.stderr
    assert "[p. 1]" in result.stdout and "p. 1" in result.stdout
    assert "nothing has been answered yet" in result.stderr
    assert "unknown command /what" in result.stderr


def test_budget_too_small_is_a_usage_error(run, contract):
    result = run("ask", contract, "-q", "x?", "--device-budget", "1KiB")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_empty_document_is_said(run, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    result = run("ask", str(tmp_path / "empty.txt"), "-q", "x?")
    assert result.exit_code == 1
    assert "empty.txt" in result.stderr
