"""Labelled contracts: what is read, what is refused."""

import json
from pathlib import Path

import pytest

from zerolayer.errors import UsageError
from zerolayer.learning.labelled import contract_named, labelled_contracts

QUESTION = {"question": "When does it end?", "category": "End", "answer": "1 May", "evidence": [[4, 9]]}


def folder(path: Path, *lines: object) -> Path:
    (path / "contracts").mkdir()
    (path / "contracts" / "Lease.txt").write_text("ends 1 May", encoding="utf-8")
    (path / "questions.jsonl").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_a_contract_has_its_questions_and_their_evidence(tmp_path: Path) -> None:
    data = folder(tmp_path, {"contract": "Lease.txt", "split": "test", "questions": [QUESTION]})
    [contract] = labelled_contracts(data, "test")
    [question] = contract.questions
    assert contract.text() == "ends 1 May"
    assert question.evidence_in(0, 5) == 1
    assert question.wording("paraphrase") == question.wording("question") == "When does it end?"
    assert contract_named([contract], "lease") is contract


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no questions\.jsonl"):
        labelled_contracts(tmp_path)
    data = folder(tmp_path, {"contract": "Lease.txt", "split": "test", "questions": [QUESTION]})
    with pytest.raises(UsageError, match="its splits are: test"):
        labelled_contracts(data, "train")
    with pytest.raises(UsageError, match="names 0 contracts"):
        contract_named(labelled_contracts(data), "franchise")


@pytest.mark.parametrize("line", [{"contract": "x"}, {"questions": 3, "contract": "x"}, [1]])
def test_a_line_that_is_no_contract_is_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(UsageError, match="line 1 is no labelled contract"):
        labelled_contracts(folder(tmp_path, line))
