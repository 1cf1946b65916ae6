"""The cold bench's measuring on a tiny model: what it reports, not how fast."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tiny_models import make_engine
from zerolayer.bench import cold
from zerolayer.config import load_settings
from zerolayer.core import Citation
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import UsageError
from zerolayer.session import session_of

CLAUSES = [f"{n}. Notice number {n} goes to office {n * 7} of the Supplier." for n in range(1, 61)]
TEXT = "\n\n".join(CLAUSES)


def test_early_and_later_answers_stand_side_by_side():
    half = len(TEXT) // 2
    document = Document("d", TEXT, (Page(1, 0, half), Page(2, half, len(TEXT))), "")
    settings = load_settings(block_tokens=8, encoder="none", chunk_tokens=24, early_share=1.0)
    questions = [
        cold.AskedQuestion("Who gets notice number 12?", lambda citation: citation.page == 1),
        cold.AskedQuestion("Who gets notice number 50?"),
    ]
    with cold.empty_home(), session_of([document], make_engine("llama")[0], settings) as session:
        result = cold.measure(session, questions, answer_tokens=6, opened_s=1.0)
    rows = result["answers"]
    assert [row["answered_early"] for row in rows] == [True, True]
    assert result["tokens_before_first_answer"] == rows[0]["early_tokens"] == 25 * 8
    # The second question points at some of the first one's blocks, and finds those stored that begin its selection.
    assert 0 < rows[1]["early_tokens"] <= 25 * 8
    assert result["early_document_tokens"] == rows[0]["early_tokens"] + rows[1]["early_tokens"]
    assert result["prefilled_document_tokens"] == result["document_tokens"]
    assert result["discarded_tokens"] == 0 and result["labelled_questions"] == 1
    assert rows[0]["right_early"] in (True, False) and rows[1]["right_early"] is None
    assert result["first_question_s"] == pytest.approx(1.0 + rows[0]["early_answer_s"])
    assert result["first_answer_s"] == pytest.approx(1.0 + result["early_answer_s"])
    assert result["speedup"] == pytest.approx(result["read_first_answer_s"] / result["first_answer_s"])


def test_the_home_is_new_and_the_old_one_comes_back(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    with cold.empty_home():
        inside = Path(os.environ["ZEROLAYER_HOME"])
        assert inside != tmp_path and inside.is_dir() and not any(inside.iterdir())
    assert os.environ["ZEROLAYER_HOME"] == str(tmp_path) and not inside.exists()


def test_contract_questions_know_their_pages(tmp_path):
    pytest.importorskip("reportlab")
    first, *others = cold.contract_questions(tmp_path / "c.pdf", 60, 0)
    assert len(others) == 18 and first.is_right is not None
    right = [page for page in range(1, 61) if first.is_right(Citation("c", page, "", "", 0, 1, 1.0))]
    assert right == [1]


@pytest.mark.data
def test_labelled_questions_know_their_evidence(shared_data):
    path, questions = cold.labelled_questions(shared_data / "cuad", "GOOSEHEAD")
    text = path.read_text(encoding="utf-8")
    judge = questions[0].is_right
    assert judge is not None and not judge(Citation("c", 1, "", "", len(text), len(text) + 1, 1.0))
    assert judge(Citation("c", 1, "", "", 0, len(text), 1.0))


def test_a_file_needs_a_question(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    ran = CliRunner().invoke(cold.command, ["--file", str(path)])
    assert isinstance(ran.exception, UsageError) and "-q" in str(ran.exception)
