"""The intent bench on a small folder: what it reports, and that its scores and fits are right."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from zerolayer.bench.intent import command
from zerolayer.bench.intent_measures import Bigram, Scores, interval
from zerolayer.learning.intent_fit import conditional_logit, fit
from zerolayer.perception.intent_model import IntentParameters

TOPICS = ("fee", "term", "notice", "insurance", "audit", "warranty")


@pytest.fixture
def data(tmp_path):
    """Four contracts with a question a clause, and dialogues."""
    (tmp_path / "cuad" / "contracts").mkdir(parents=True)
    (tmp_path / "dialogue").mkdir()
    lines = []
    for number in range(4):
        text = "".join(f"{n}. The {t}\n" + f"The {t} is {n + number}. " * 40 for n, t in enumerate(TOPICS, 1))
        (tmp_path / "cuad" / "contracts" / f"{number}.txt").write_text(text)
        questions = [
            {
                "question": f"What is the {t}?",
                "evidence": [[text.index(f"The {t} is"), text.index(f"The {t} is") + 20]],
            }
            for t in TOPICS[::-1]
        ]
        split = "train" if number < 2 else "test"
        lines.append(json.dumps({"contract": f"{number}.txt", "split": split, "questions": questions}))
    (tmp_path / "cuad" / "questions.jsonl").write_text("\n".join(lines))
    talks = [
        [
            {"user": f"Recommend book number {n}.", "bot": "Which kind?"},
            {"user": f"Crime {n}.", "bot": "Take it."},
        ]
        for n in range(24)
    ]
    talk = "\n".join(json.dumps({"task": "x", "history": history}) for history in talks)
    (tmp_path / "dialogue" / "talk.jsonl").write_text(talk)
    return tmp_path


def test_the_report_has_every_order_its_baselines_and_intervals(data):
    result = CliRunner().invoke(command, ["--data", str(data), "--json"], standalone_mode=False)
    assert result.exception is None and result.return_value in (0, 3)
    report = json.loads(result.stdout.splitlines()[-1])
    assert set(report["contract_questions"]) == {"file", "shuffled", "reading"}
    for scores in (report["dialogue"], *report["contract_questions"].values()):
        for name in ("majority", "bigram", "zerolayer", "zerolayer, questions only"):
            for measure in ("top1", "top3", "log_loss_bits"):
                low, high = scores[name][measure]["interval"]
                assert low <= scores[name][measure]["mean"] <= high
        assert scores["forecasts"] > 0
    for shares in report["contract_questions"]["reading"]["prefetch"].values():
        assert all(0 <= value["mean"] <= 1 for value in shares.values())
    assert report["contracts"] == {"train": 2, "test": 2}


def test_two_fits_are_the_same_and_can_be_shipped(data):
    one, two = fit(data).to_json(), fit(data).to_json()
    assert one == two and IntentParameters.from_json(one).to_json() == one


def test_a_conditional_logit_finds_the_weights_that_made_its_data():
    random = np.random.default_rng(0)
    weights = np.array([1.0, -2.0, 0.5])
    features = random.normal(size=(4000, 6, 3)).astype(np.float32)
    chosen = (features @ weights + random.gumbel(size=(4000, 6))).argmax(axis=1)
    targets = np.eye(6, dtype=np.float32)[chosen]
    found = conditional_logit(features, np.zeros((4000, 6), np.float32), targets, ridge=1e-3)
    np.testing.assert_allclose(found, weights, atol=0.1)


def test_ties_count_in_part_and_certainty_costs_nothing():
    scores = Scores()
    scores.add(np.full(10, 0.1, np.float32), 3, 0)
    scores.add(np.eye(10, dtype=np.float32)[4], 4, 1)
    columns = scores.columns()
    np.testing.assert_allclose(columns["top1"], [0.1, 1.0])
    np.testing.assert_allclose(columns["top3"], [0.3, 1.0])
    np.testing.assert_allclose(columns["log_loss_bits"], [np.log2(10), 0.0], atol=1e-6)


def test_a_bigram_knows_what_follows():
    bigram = Bigram([[0, 1, 2, 0, 1, 2, 0, 1]] * 20, 3)
    assert bigram.after(0).argmax() == 1 and bigram.after(2).argmax() == 0
    assert bigram.after(1).sum() == pytest.approx(1) == bigram.majority.sum()


def test_intervals_resample_whole_groups():
    values = np.repeat([0.0, 1.0] * 5, 50)
    wide = interval(values, np.repeat(np.arange(10), 50).tolist(), 0)
    narrow = interval(values, list(range(500)), 0)
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])
