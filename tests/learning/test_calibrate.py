"""Calibration: scores against their definitions, fits on demand with a known law, questions of real texts, files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from demand_traces import random_trace, trace_of

from zerolayer.core import BLOCK_FEATURES
from zerolayer.decision.persistence import FEATURES, SIGNALS
from zerolayer.errors import SettingError, UsageError
from zerolayer.learning import calibrate_files
from zerolayer.learning.calibrate import centred_isotonic, fit, regress
from zerolayer.learning.calibrate_questions import anchor_questions
from zerolayer.learning.calibrate_replay import grading
from zerolayer.learning.calibrate_report import report
from zerolayer.learning.calibrate_scores import (
    auroc,
    expected_calibration_error,
    mean_auroc,
    reliability,
    scores,
)
from zerolayer.learning.calibrate_sessions import (
    Asked,
    Recorded,
    Snapshots,
    by_evidence,
    evidence_session,
    shuffled,
    snapshots,
)
from zerolayer.learning.labelled import LabelledQuestion

LAW = "\n\n".join(
    [
        "第一条 本法调整买卖关系。",
        "第二条 买卖合同是出卖人转移标的物的所有权于买受人，买受人支付价款的合同。",
        "第三条 出卖人违反本法第一条规定的，应当承担违约责任。",
        *[f"第{n}条 当事人应当按照约定履行第{n}项义务。" for n in "四五六七八九十"],
    ]
)


def samples(seed=0, documents=12, each=400, dispersion=0.0) -> Snapshots:
    """Use follows the position and, as far as `dispersion` says, the dispersion; nothing else."""
    rng = np.random.default_rng(seed)
    n = documents * each
    features = np.full((n, len(FEATURES)), np.nan, dtype=np.float32)
    features[:, len(BLOCK_FEATURES) :] = 0.0
    features[:, FEATURES.index("position")] = rng.random(n)
    features[:, FEATURES.index("dispersion")] = rng.normal(size=n)
    odds = -3 + 4 * features[:, FEATURES.index("position")]
    odds += dispersion * features[:, FEATURES.index("dispersion")]
    used = rng.random(n) < 1 / (1 + np.exp(-odds))
    return Snapshots(features, used, np.full(n, 0.3, np.float32), np.repeat(np.arange(documents), each))


def test_scores_by_hand():
    p = np.array([0.1, 0.1, 0.9, 0.9], dtype=np.float32)
    used = np.array([False, True, True, True])
    assert expected_calibration_error(p, used, bins=2) == pytest.approx((0.4 + 0.1) / 2, abs=1e-6)
    assert expected_calibration_error(p, used, bins=2, equal_mass=False) == pytest.approx(0.25, abs=1e-6)
    assert auroc(p, used) == pytest.approx((1 + 1 + 0.5) / 3)
    assert scores(p, used).base_rate == 0.75
    assert auroc(p, np.ones(4, np.bool_)) is None
    assert reliability(np.ones(3, np.float32), np.ones(3, np.bool_), equal_mass=False).tolist() == [[1, 1, 3]]
    assert scores(p[:0], used[:0]).count == 0


def test_auroc_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(3)
    score, used = rng.integers(0, 9, 200).astype(np.float32), rng.random(200) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in score[used] for b in score[~used]]
    assert auroc(score, used) == pytest.approx(np.mean(pairs))


def test_auroc_within_documents_ignores_their_base_rates():
    document = np.repeat([0, 1], 100)
    used = np.concatenate([np.arange(100) < 10, np.arange(100) < 90])
    assert auroc(document.astype(np.float32), used) > 0.8
    assert mean_auroc(document.astype(np.float32), used, document) == 0.5


def test_fit_is_calibrated_on_unseen_documents_and_keeps_its_ranks():
    model = fit(samples(0), "en", "", "synthetic")
    test = samples(1)
    value = model.calibrated(model.log_odds(test.features))
    found = scores(value, test.used)
    assert found.ece_mass < 0.05 and found.ece_width < 0.05
    assert found.auroc == pytest.approx(
        auroc(test.features[:, FEATURES.index("position")], test.used), abs=0.01
    )
    assert (np.diff(model.knots, axis=0) >= 0).all() and len(model.knots) <= 41


def test_a_signal_that_adds_nothing_has_weight_zero():
    useless = fit(samples(0), "en", "", "synthetic")
    useful = fit(samples(0, dispersion=1.0), "en", "", "synthetic")
    column = FEATURES.index("dispersion")
    assert useless.weight[column] == 0.0 and "dispersion" not in useless.notes["signals"]
    assert useful.weight[column] > 0.5 and useful.notes["trial_gain"]["dispersion"] > 0.05


def test_two_fits_are_identical():
    assert fit(samples(0), "en", "", "x").to_json() == fit(samples(0), "en", "", "x").to_json()


def test_isotonic_corrects_overconfidence():
    rng = np.random.default_rng(0)
    odds = rng.normal(size=20_000).astype(np.float32) * 4
    used = rng.random(20_000) < 1 / (1 + np.exp(-odds / 4))
    knots = centred_isotonic(odds, used)
    value = np.interp(odds, knots[:, 0], knots[:, 1]).astype(np.float32)
    assert scores(value, used).ece_mass < 0.02
    assert scores((1 / (1 + np.exp(-odds))).astype(np.float32), used).ece_mass > 0.1


@pytest.mark.parametrize("used", [False, True])
def test_nothing_to_learn_is_said(used):
    given = samples(0)
    given.used[:] = used
    with pytest.raises(UsageError, match="nothing to calibrate on"):
        fit(given, "en", "", "synthetic")
    with pytest.raises(UsageError, match="1 documents"):
        fit(samples(0, documents=1), "en", "", "synthetic")


def test_report_names_what_each_signal_is_worth():
    found = report(samples(0, dispersion=0.7), samples(1, dispersion=0.7), "en", "", "synthetic", 0).values
    assert found["calibrated"]["ece_mass"] < 0.05
    assert found["ece_interval"][0] <= found["calibrated"]["ece_mass"] <= found["ece_interval"][1] + 0.01
    assert found["signals"]["dispersion"]["adds_in_document"] > 0.02
    assert abs(found["signals"]["session"]["adds_in_document"]) < 0.02
    assert found["features"]["position"]["auroc"] > 0.7
    assert set(found["signals"]) <= set(SIGNALS)
    json.dumps(found)


def test_snapshots_look_ten_turns_ahead():
    demand = [[1], [2], *[[3]] * 10, [1]]
    features = np.zeros((5, len(BLOCK_FEATURES)), dtype=np.float32)
    seen = snapshots([Recorded(trace_of(demand, 5), features)])
    used = seen.used.reshape(3, 4)  # turns 0, 1 and 2 have ten more; the sink is left out
    assert used.tolist() == [
        [False, True, True, False],
        [False, False, True, False],
        [True, False, True, False],
    ]
    rate = seen.features.reshape(3, 4, -1)[:, :, FEATURES.index("use_rate")]
    np.testing.assert_allclose(rate[1], [0.5, 0.5, 0, 0])


def test_sessions_without_a_horizon_give_nothing():
    features = np.zeros((5, len(BLOCK_FEATURES)), dtype=np.float32)
    assert len(snapshots([Recorded(trace_of([[1]] * 10, 5), features)])) == 0
    assert len(snapshots([])) == 0


def test_snapshots_tell_sessions_apart():
    features = np.zeros((120, len(BLOCK_FEATURES)), dtype=np.float32)
    seen = snapshots([Recorded(random_trace(seed, turns=14), features) for seed in (0, 1)])
    assert np.bincount(seen.document).tolist() == [4 * 119] * 2
    ranked = regress(seen, ["frequency", "recency"]).log_odds(seen.features)
    assert auroc(ranked, seen.used) > 0.5


def test_labelled_questions_are_asked_in_both_wordings():
    questions = [LabelledQuestion(f"q{n}", f"p{n}", "", "", ((0, 5),) if n else ()) for n in range(6)]
    asked = shuffled(questions, 0)
    assert sorted(a.text for a in asked) == sorted([f"{w}{n}" for n in range(1, 6) for w in "qp"])
    assert shuffled(questions, 0) == asked != shuffled(questions, 1)


def test_evidence_session():
    text = "The term ends in May. " * 3 + "The price is USD 500. " * 3
    spans = [(0, 66), (66, len(text))]
    recorded = evidence_session("d", text, spans, [Asked("What is the price?", ((70, 80),))], 0, 64)
    (turn,) = recorded.trace.turns
    assert turn.used == ((1, 1.0),) and turn.gold == (1,)
    assert max(turn.match, key=lambda pair: pair[1])[0] == 1
    assert recorded.features[1, BLOCK_FEATURES.index("amount")] > 0


def test_questions_of_chinese_law():
    asked = {question.text: question.evidence for question in anchor_questions(LAW)}
    (first,) = asked["第一条规定了什么？"]
    assert LAW[slice(*first)].startswith("第一条 本法")
    (meaning,) = asked["什么是买卖合同？"]
    assert "转移标的物的所有权" in LAW[slice(*meaning)]
    texts = [LAW[slice(*span)][:3] for span in asked["第三条所依据的条款是怎么规定的？"]]
    assert texts == ["第三条", "第一条"]


def test_questions_of_an_english_contract():
    text = (
        "1. Definitions. “Product” means each item of Annex A.\n\n2. Price. As set out in Section 1, it is free.\n\n"
        "3. Term. Three years.\n"
    )
    asked = {question.text: question.evidence for question in anchor_questions(text)}
    assert text[slice(*asked["What does “Product” mean?"][0])].strip().endswith("Annex A.")
    assert len(asked["Which provisions does Section 2 refer to?"]) == 2
    assert "What does Section 3 say?" in asked
    assert anchor_questions("No number, no term.") == []


def test_files_and_what_is_chosen(tmp_path):
    fits = {
        key: fit(samples(0, documents=4), language, fingerprint, "synthetic")
        for key, (language, fingerprint) in {"any": ("en", ""), "own": ("en", "m1"), "zh": ("zh", "")}.items()
    }
    path = tmp_path / "deep" / "persistence.json"
    for model in fits.values():
        calibrate_files.keep_model(model, "zerolayer calibrate a.txt", path)
    calibrate_files.keep_model(fits["any"], "zerolayer calibrate a.txt", path)  # replaces, does not repeat
    known = calibrate_files.user_models(path)
    assert len(known) == 3
    chosen = calibrate_files.choose
    assert chosen(known, "m1", "en").fingerprint == "m1"
    assert chosen(known, "m2", "en").fingerprint == ""
    assert chosen(known, "m1", "zh").language == "zh"
    assert chosen(known, "m1", "fr") is None
    path.write_text("{}")
    with pytest.raises(SettingError, match="is no calibration"):
        calibrate_files.user_models(path)
    assert calibrate_files.user_models(tmp_path / "none.json") == []


def test_shipped_fits_are_calibrated_and_say_how_they_came_to_be():
    models = calibrate_files.shipped_models()
    assert {model.language for model in models} >= {"en", "zh"}
    for model in models:
        assert model.notes["report"]["ece_mass"] <= 0.05, model.language
        assert 0 < model.notes["report"]["base_rate"] < 1


def test_grading_is_compared_on_the_same_demand():
    features = np.full((120, len(BLOCK_FEATURES)), np.nan, dtype=np.float32)
    sessions = [Recorded(random_trace(seed, turns=16), features) for seed in range(3)]
    small = Recorded(trace_of([[1]] * 12, 8), features[:8])  # fits into the smallest device
    found = grading([*sessions, small], fit(samples(0), "en", "", "synthetic"), 0.1)
    assert {name: row["sessions"] for name, row in found.items()} == {"calibrated": 3, "hand_set": 3}
    assert all(0 < row["coverage"] <= 1 and row["loads"] >= row["faults"] for row in found.values())


def test_gold_evidence_as_demand():
    trace = trace_of([[1, 2], [3]], 5, gold=[(4,), ()])
    features = np.zeros((5, len(BLOCK_FEATURES)), dtype=np.float32)
    assert [turn.blocks for turn in by_evidence(Recorded(trace, features)).trace.turns] == [[4], []]
