"""The quality bench on small random models: masks against plain models, every method's budget, metrics, the command."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tiny_models import EOS, byte_tokenizer, make_engine, plain_answer, plain_logits, random_tokens
from zerolayer.bench import common, quality
from zerolayer.bench.quality_cache import FullCache
from zerolayer.bench.quality_cases import choose_cases, prepare
from zerolayer.bench.quality_engine import conversation, empty_tiers, sized, store
from zerolayer.bench.quality_metrics import Score, answer_f1, interval, kl_divergence, summary, top1_agreement
from zerolayer.bench.quality_records import Records
from zerolayer.bench.quality_run import CaseRun
from zerolayer.bench.quality_selection import METHODS
from zerolayer.config import load_settings
from zerolayer.errors import UnknownNameError, UsageError
from zerolayer.learning.labelled import labelled_contracts

WIDTH, BLOCKS = 16, 12
TOKENS = random_tokens(BLOCKS * WIDTH, seed=3)
QUESTION = random_tokens(20, seed=4).tolist()
CLAUSES = ("The fee is five euro. ", "It ends in May 2031. ", "Either party may leave. ", "No one pays tax. ")
SETTINGS = {"block_tokens": WIDTH, "max_new_tokens": 6, "encoder": "none", "chunk_tokens": 32}


@pytest.fixture
def data(tmp_path):
    """Three labelled contracts of about 200 characters."""
    (tmp_path / "contracts").mkdir()
    lines = []
    for number in range(3):
        text = "".join(f"{clause}Then {number}. " for clause in CLAUSES) + "Done. " * 6
        (tmp_path / "contracts" / f"{number}.txt").write_text(text, encoding="utf-8")
        questions = [
            {
                "category": f"c{i}",
                "question": f"What of {clause.split()[1]}?",
                "paraphrase": f"And {clause.split()[0]}?",
                "answer": clause,
                "evidence": [[text.index(clause), text.index(clause) + len(clause)]],
            }
            for i, clause in enumerate(CLAUSES)
        ]
        lines.append(json.dumps({"contract": f"{number}.txt", "split": "test", "questions": questions}))
    (tmp_path / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def prepared(data, turns=3):
    engine, _ = make_engine("llama")
    (case,) = choose_cases(
        labelled_contracts(data), byte_tokenizer(), WIDTH, 1, turns, (100, 400), "mixed", seed=0
    )
    settings = load_settings(**SETTINGS)
    return engine, prepare(case, engine, None, settings.max_new_tokens, seed=0), settings


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_full_cache_answers_as_the_plain_model(family):
    engine, plain = make_engine(family)
    cache = FullCache(engine, TOKENS, WIDTH, room=40)
    reference = cache.reference(QUESTION, 8)
    assert reference.answer_ids == plain_answer(plain, np.asarray([*TOKENS, *QUESTION]), 8)
    everything = [*TOKENS, *QUESTION, *reference.targets[:-1]]
    expected = plain_logits(plain, np.asarray(everything))[-len(reference.targets) :]
    torch.testing.assert_close(reference.log_probs, expected.log_softmax(-1), atol=1e-4, rtol=1e-3)
    assert kl_divergence(reference.log_probs, cache.forced(reference, None)) < 1e-6


@pytest.mark.parametrize("by_head", [False, True])
def test_a_mask_is_what_a_plain_model_gives_under_the_same_mask(by_head):
    engine, plain = make_engine("llama")
    cache = FullCache(engine, TOKENS, WIDTH, room=40)
    seen = np.zeros(len(TOKENS), dtype=bool)
    seen[:WIDTH] = seen[80:112] = True
    count, rows = len(QUESTION), len(TOKENS) + len(QUESTION)
    causal = torch.ones(rows, rows).tril().bool()
    causal[len(TOKENS) :, : len(TOKENS)] &= torch.as_tensor(seen)
    mask = torch.zeros(1, 1, rows, rows).masked_fill(~causal, float("-inf"))
    ids = torch.as_tensor(np.asarray([*TOKENS, *QUESTION]))[None]
    with torch.inference_mode():
        expected = plain(ids, attention_mask=mask).logits[0, -count:]
    shape = (engine.geometry.layers, engine.geometry.kv_heads, len(TOKENS))
    visible = np.broadcast_to(seen, shape).copy() if by_head else seen
    torch.testing.assert_close(cache.logits(QUESTION, visible, count), expected, atol=1e-4, rtol=1e-3)


def test_each_layer_and_head_sees_its_own_mask():
    engine, _ = make_engine("llama")
    cache = FullCache(engine, TOKENS, WIDTH, room=40)
    visible = np.ones((engine.geometry.layers, engine.geometry.kv_heads, len(TOKENS)), dtype=bool)
    whole = cache.logits(QUESTION, visible, 1)
    torch.testing.assert_close(whole, cache.logits(QUESTION, None, 1), atol=1e-5, rtol=1e-4)
    visible[1, 1, WIDTH:] = False
    assert not torch.allclose(whole, cache.logits(QUESTION, visible, 1), atol=1e-3)


@pytest.mark.parametrize("by_head", [False, True])
def test_own_answers_are_greedy_decoding_under_each_mask(by_head):
    engine, _ = make_engine("llama")
    cache = FullCache(engine, TOKENS, WIDTH, room=len(QUESTION) + 10, places=3)
    reference = cache.reference(QUESTION, 10)
    shape = (engine.geometry.layers, engine.geometry.kv_heads) if by_head else ()
    columns = np.arange(len(TOKENS))
    views = [columns < 2 * WIDTH, columns >= 0, (columns < WIDTH) | (columns > 150)]
    views = [np.broadcast_to(view, (*shape, len(TOKENS))).copy() for view in views]
    forced = [cache.forced(reference, view, place) for place, view in enumerate(views)]
    answers = cache.own_answers(reference, forced, views, 10)
    for view, answer in zip(views, answers, strict=True):
        expected: list[int] = []
        while len(expected) < 10:
            token = int(cache.logits([*QUESTION, *expected], view, 1).argmax())
            if token == EOS:
                break
            expected.append(token)
        assert answer == expected
    assert answers[1] == reference.answer_ids
    assert answers[0] != reference.answer_ids


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_sinks_and_exactly_its_budget(data, name):
    _, ready, _ = prepared(data)
    view = ready.view
    for turn in range(3):
        for count in (2, 5, view.blocks):
            kept = METHODS[name](view, turn, count)
            assert kept[..., :4].all()
            assert (kept.sum(-1) == count * WIDTH).all()
            np.testing.assert_array_equal(kept, METHODS[name](view, turn, count))


def test_droppers_keep_what_the_first_turn_chose_and_others_choose_again(data):
    _, ready, _ = prepared(data)
    changed = {
        name: any(
            not np.array_equal(choose(ready.view, 0, 4), choose(ready.view, turn, 4)) for turn in (1, 2)
        )
        for name, choose in METHODS.items()
    }
    for name in (
        "h2o",
        "h2o_tokens",
        "snapkv",
        "snapkv_tokens",
        "key_norm",
        "key_norm_tokens",
        "static_window",
    ):
        assert not changed[name], name
    for name in ("zerolayer", "bm25", "gold", "random", "snapkv_rekeyed_tokens"):
        assert changed[name], name


def test_gold_holds_the_evidence_and_h2o_the_most_recent_half(data):
    _, ready, _ = prepared(data)
    view = ready.view
    kept = METHODS["gold"](view, 0, 6).reshape(view.blocks, WIDTH).all(-1)
    assert kept[view.turns[0].evidence > 0].all()
    assert METHODS["h2o"](view, 0, 6)[-3 * WIDTH :].all()
    assert METHODS["zerolayer_recent"](view, 0, 7)[-3 * WIDTH :].all()


def test_the_scheduler_at_a_full_budget_answers_as_the_full_cache(data):
    engine, ready, settings = prepared(data)
    turns = list(zip(ready.references, ready.signals, strict=True))
    ids = [block.id for block in ready.case.stream.blocks]
    with empty_tiers() as tiers:
        store(ready.cache, tiers, ids, "RAW")
        sizes = sized(settings.model_copy(update={"codec": "RAW"}), len(ids), 100)
        done = conversation(
            engine, ready.case.stream, tiers, sizes, "zerolayer.learning.reference:ReferencePolicy", turns
        )
    for reference, result in zip(ready.references, done, strict=True):
        assert result.visible == 1.0
        assert result.answer_ids == reference.answer_ids
        assert kl_divergence(reference.log_probs, result.logits) < 1e-3


@pytest.mark.parametrize("stored", [True, False])
def test_the_scheduler_keeps_its_budget_and_drifts(data, stored):
    engine, ready, settings = prepared(data)
    turns = list(zip(ready.references, ready.signals, strict=True))
    ids = [block.id for block in ready.case.stream.blocks]
    with empty_tiers() as tiers:
        if stored:
            store(ready.cache, tiers, ids, settings.codec)
        done = conversation(engine, ready.case.stream, tiers, sized(settings, 6, 100), "graded", turns)
    assert all(result.visible <= 6 / len(ids) for result in done)
    assert any(
        kl_divergence(reference.log_probs, result.logits) > 1e-3
        for reference, result in zip(ready.references, done, strict=True)
    )


def test_kl_and_agreement_of_known_distributions():
    reference = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    other = torch.tensor([[0.25, 0.75], [0.9, 0.1]]).log()
    expected = (0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)) / 2
    assert kl_divergence(reference, other) == pytest.approx(expected, rel=1e-5)
    assert kl_divergence(reference, reference + 3.0) == pytest.approx(0.0, abs=1e-6)
    assert top1_agreement(reference, torch.tensor([[0.1, 0.9], [0.8, 0.2]])) == 0.5


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("The State of Texas.", "texas", 0.5),
        ("Yes", "yes", 1.0),
        ("", "Yes", 0.0),
        ("no idea", "Yes", 0.0),
        ("", "", 1.0),
    ],
)
def test_answer_f1(answer, gold, f1):
    assert answer_f1(answer, gold) == pytest.approx(f1)


def test_intervals_resample_contracts():
    low, high = interval([[0.1, 0.1], [0.9, 0.9]], seed=0)
    assert (low, high) == pytest.approx((0.1, 0.9))
    assert interval([[0.5], [0.5]], seed=0) == pytest.approx([0.5, 0.5])


def test_summary_averages_by_method_share_and_turn():
    scores = [
        Score("m", contract, turn, "random", 25, kl, 1.0, None if turn == 2 else 0.5, 0.25)
        for contract, turn, kl in (("a", 1, 0.2), ("a", 2, 0.4), ("b", 1, 0.6), ("b", 2, 0.8))
    ]
    result = summary(scores, seed=0)
    assert result["kl"]["random"]["25"] == pytest.approx(0.5)
    assert result["f1"]["random"]["25"] == pytest.approx(0.5)
    assert result["by_turn"]["random"]["25"]["kl"] == pytest.approx([0.4, 0.6])
    assert result["by_turn"]["random"]["25"]["f1"][1] is None
    assert result["kl_interval"]["random"]["25"] == pytest.approx([0.3, 0.7])


def test_cases_alternate_wordings_and_answer_from_the_labels(data):
    cases = choose_cases(labelled_contracts(data), byte_tokenizer(), WIDTH, 2, 4, (100, 400), "mixed", seed=1)
    assert len({case.name for case in cases}) == 2
    for case in cases:
        for number, (text, labels) in enumerate(case.questions):
            assert text == (labels.paraphrase if number % 2 else labels.question)
    with pytest.raises(UsageError, match="only 0 contracts"):
        choose_cases(labelled_contracts(data), byte_tokenizer(), WIDTH, 1, 2, (5000, 6000), "mixed", seed=0)
    with pytest.raises(UsageError, match="lower --turns"):
        choose_cases(labelled_contracts(data), byte_tokenizer(), WIDTH, 1, 9, (100, 400), "mixed", seed=0)


def test_command_reports_every_method_draws_and_exits_with_3_when_missed(data, tmp_path, monkeypatch):
    engine, _ = make_engine("llama", max_position_embeddings=1024)
    monkeypatch.setattr("zerolayer.engines.hf.loading.load_engine", lambda _: engine)
    monkeypatch.setattr(
        quality, "load_settings", lambda **flags: load_settings(**{**SETTINGS, "seed": flags["seed"]})
    )
    monkeypatch.setattr(quality, "BAR", 1e-9)
    plot, records, cases = tmp_path / "plot.png", tmp_path / "scores.jsonl", tmp_path / "cases.json"
    arguments = [
        "--data", str(data), "--contracts", "2", "--turns", "2", "--tokens", "128", "400", "--share", "25",
        "--share", "50", "--plot", str(plot), "--records", str(records), "--cases", str(cases), "--json",
    ]  # fmt: skip
    ran = CliRunner().invoke(quality.command, arguments, standalone_mode=False)
    assert ran.exception is None
    assert ran.return_value == common.MISSED
    result = json.loads(ran.stdout.strip().splitlines()[-1])
    assert set(result["kl"]) == {"full", *METHODS, *quality.ENGINE_ROWS}
    assert result["kl"]["full"]["100"] == pytest.approx(0.0, abs=1e-5)
    assert set(result["kl"]["zerolayer"]) == {"25", "50"}
    assert result["judged"]["smollm2 zerolayer"] == result["kl"]["zerolayer"]["25"]
    assert result["passed"] is False
    assert {"machine", "threads", "seed", "commit", "threshold", "by_turn", "kl_interval"} <= set(result)
    assert plot.read_bytes().startswith(b"\x89PNG")
    lines = records.read_text(encoding="utf-8").splitlines()
    written = json.loads(cases.read_text(encoding="utf-8"))["cases"]
    assert [len(case["turns"]) for case in written] == [2, 2]
    monkeypatch.setattr("zerolayer.bench.quality_cases.prepare", None)  # what is recorded needs no model
    again = CliRunner().invoke(quality.command, [a for a in arguments if a not in ("--cases", str(cases))])
    assert json.loads(again.stdout.strip().splitlines()[-1])["kl"] == result["kl"]
    assert len(lines) == 1 + 2 * 2 * (1 + 2 * (len(METHODS) + len(quality.ENGINE_ROWS)))


def test_records_go_on_where_they_were_and_refuse_other_conditions(tmp_path):
    path = tmp_path / "scores.jsonl"
    score = Score("m", "a", 1, "random", 25, 0.2, 1.0, 0.5, 0.25)
    Records(path, {"seed": 0}).add(score)
    again = Records(path, {"seed": 0})
    assert again.scores == [score]
    assert again.has("m", "a", 1, "random", 25)
    assert not again.has("m", "a", 2, "random", 25)
    with pytest.raises(UsageError, match="give another file"):
        Records(path, {"seed": 1})
    path.write_text(path.read_text(encoding="utf-8") + "{}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="holds no scores"):
        Records(path, {"seed": 0})


def test_what_is_recorded_is_not_measured_again(data, tmp_path):
    engine, ready, settings = prepared(data, turns=2)
    records = Records(tmp_path / "scores.jsonl", {})
    run = CaseRun(ready, engine, settings, records)
    for _ in range(2):
        run.full()
        run.masked(["random"], 25)
        run.scheduled("zerolayer_engine", (25,))
        run.records = Records(tmp_path / "scores.jsonl", {})
    assert len(run.records.scores) == 6


def test_command_prints_a_table(data, monkeypatch):
    engine, _ = make_engine("llama", max_position_embeddings=1024)
    monkeypatch.setattr("zerolayer.engines.hf.loading.load_engine", lambda _: engine)
    monkeypatch.setattr(quality, "load_settings", lambda **flags: load_settings(**SETTINGS))
    monkeypatch.setattr(quality, "BAR", 1e9)
    arguments = [
        "--data", str(data), "--contracts", "1", "--turns", "2", "--tokens", "128", "400", "--share", "25",
        "--method", "random", "--method", "zerolayer",
    ]  # fmt: skip
    ran = CliRunner().invoke(quality.command, arguments, standalone_mode=False)
    assert ran.exception is None
    assert ran.return_value == 0
    assert "zerolayer" in ran.stdout
    assert "25 %" in ran.stdout


def test_the_relative_scale_runs_from_gold_to_random():
    kl = {"gold": {"25": 0.1}, "random": {"25": 0.3}, "zerolayer": {"25": 0.15}, "bm25": {"10": 0.2}}
    assert quality.relative(kl) == pytest.approx({"gold": 0.0, "random": 1.0, "zerolayer": 0.25})
    assert quality.relative({"gold": {"25": 0.1}, "random": {"25": 0.1}}) == {}
    assert quality.relative({"zerolayer": {"25": 0.1}}) == {}


def test_unknown_methods_and_folders_are_refused(tmp_path):
    for arguments, error in (
        (["--method", "nothing"], UnknownNameError),
        (["--data", str(tmp_path / "absent")], UsageError),
    ):
        ran = CliRunner().invoke(quality.command, arguments, standalone_mode=False)
        assert isinstance(ran.exception, error)
