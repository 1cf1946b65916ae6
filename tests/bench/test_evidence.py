"""The evidence bench: what is kept is counted right, every signal is reported, nothing depends on a model."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from zerolayer.bench.evidence import CANDIDATES, command, left_out
from zerolayer.bench.evidence_measures import VARIANTS, Kept, interval, kept, mean, pooled
from zerolayer.bench.heads import weights

TOPICS = ("fee", "term", "notice", "insurance", "audit", "warranty")


@pytest.fixture
def data(tmp_path):
    """Four contracts with a question a clause."""
    (tmp_path / "contracts").mkdir()
    lines = []
    for number in range(4):
        text = "".join(f"{n}. The {t}\n" + f"The {t} is {n + number}. " * 60 for n, t in enumerate(TOPICS, 1))
        (tmp_path / "contracts" / f"{number}.txt").write_text(text)
        questions = [
            {"question": f"What is the {t}?", "category": t, "evidence": [[at, at + 20]]}
            for t in TOPICS
            for at in [text.index(f"The {t} is")]
        ]
        split = "train" if number < 2 else "test"
        lines.append(json.dumps({"contract": f"{number}.txt", "split": split, "questions": questions}))
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_what_is_kept_is_the_share_of_characters_in_the_best_blocks():
    evidence = np.array([0, 30, 0, 10, 0, 0, 0, 0, 0, 0], dtype=np.float32)
    score = np.arange(10, 0, -1).astype(np.float32)
    assert kept(score, evidence, 5) == 0  # one block at least
    assert kept(score, evidence, 20) == pytest.approx(0.75)
    assert kept(score, evidence, 40) == 1
    assert kept(np.zeros(10, dtype=np.float32), evidence, 20) == pytest.approx(0.75)  # ties: document order


def test_means_and_intervals_count_questions_and_contracts():
    rows = [Kept(0, "a", 10, (0.0, 0.0, 1.0)), Kept(1, "b", 30, (1.0, 1.0, 1.0))]
    assert mean(rows) == {"5": 0.5, "10": 0.5, "25": 1.0}
    assert pooled(rows)["10"] == 0.75
    low, high = interval(rows, 0)["10"]
    assert low == 0 and high == 1 and interval(rows, 0) == interval(rows, 0)


def test_a_left_out_category_has_no_say_in_the_choice():
    """Category c alone prefers the second candidate; chosen without it, the first is judged on it."""
    good, bad = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
    by_candidate = {
        c: [Kept(0, name, 1, good if (c == CANDIDATES[1]) == (name == "c") else bad) for name in "abc"]
        for c in CANDIDATES
    }
    result = left_out(by_candidate, by_candidate, 0)
    assert result["10"] == pytest.approx(2 / 3, abs=1e-3)


def test_every_signal_is_reported_beside_chance_and_window(data):
    arguments = ["--data", str(data), "--encoder", "none", "--fit", "train", "--json"]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.exception is None and result.return_value in (0, 3)
    report = json.loads(result.stdout.splitlines()[-1])
    for name in (*VARIANTS, "fused", "random", "window", "anchors", "links"):
        assert set(report[name]) == {"5", "10", "25"}
        assert all(0 <= value <= 1 for value in report[name].values())
    assert report["fused"]["25"] > 0.9 > report["window"]["25"]
    assert report["questions"] == 12 and report["contracts"] == 2
    assert len(report["categories_left_out"]["meaning_uncovered"]) == 3


def test_an_unknown_split_is_named(data):
    result = CliRunner().invoke(command, ["--data", str(data), "--split", "dev", "--encoder", "none"])
    assert "its splits are: test, train" in str(result.exception)


def test_heads_count_by_what_they_have_above_the_median():
    ranks = np.full((3, 2), 0.1)
    ranks[1, 1], ranks[2, 0] = 0.55, 0.35
    assert weights(ranks) == [(1, 1, 1.0), (2, 0, 0.25)]
