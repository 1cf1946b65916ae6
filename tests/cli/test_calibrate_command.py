"""`zerolayer calibrate` and `zerolayer bench signals` on small documents, with a real tokenizer and no model run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli
from zerolayer.learning.calibrate_files import user_models

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    from zerolayer.engines.hf.models import resolve_model

    path = tmp_path_factory.mktemp("home")
    (path / "models").mkdir()
    (path / "models/smollm2").symlink_to(resolve_model("smollm2"), target_is_directory=True)
    return path


@pytest.fixture
def run(home, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    (tmp_path / "models").symlink_to(home / "models", target_is_directory=True)
    return lambda *args: CliRunner().invoke(cli, [str(arg) for arg in args])


def law(seed: int) -> str:
    rng = np.random.default_rng(seed)
    things = ["租金", "利息", "保证金", "货款", "违约金", "运费"]
    articles = []
    for n in range(101, 141):
        thing, other = rng.choice(things, 2, replace=False)
        days, referred = rng.integers(2, 90), rng.integers(101, 141)
        articles.append(
            f"第{n}条 当事人应当在{days}日内支付{thing}，依照本法第{referred}条的规定返还{other}。"
        )
    return "\n\n".join(articles)


def contract(seed: int) -> tuple[str, list[dict]]:
    rng = np.random.default_rng(seed)
    text, questions = "SUPPLY AGREEMENT between Acme Corp. and Bolt Ltd.\n\n", []
    for n in range(1, 25):
        price, days = int(rng.integers(100, 9000)), int(rng.integers(5, 90))
        start = len(text)
        text += f"{n}. Item {n} costs USD {price} and is delivered within {days} days to the named port.\n\n"
        if n % 3 == 0:
            questions.append({"question": f"What does item {n} cost?", "evidence": [[start, len(text) - 2]]})
            questions.append(
                {"question": f"When does item {n} arrive?", "evidence": [[start, len(text) - 2]]}
            )
    return text, questions


@pytest.fixture
def laws(tmp_path):
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"law{seed}.txt")
        paths[-1].write_text(law(seed))
    return paths


def test_refits_reports_and_keeps(run, laws):
    result = run("calibrate", "--language", "zh", *laws, "--json")
    assert result.exit_code in {0, 3}, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["language"] == "zh" and report["reported_on"] > 100
    assert 0 <= report["after"]["ece_mass"] <= 1 and 0 < report["after"]["base_rate"] < 1
    assert report["kept"] == (report["after"]["brier_skill"] > report["before"]["brier_skill"])
    assert result.exit_code == (0 if report["kept"] else 3)
    assert [model.language for model in user_models()] == (["zh"] if report["kept"] else [])


def test_one_document_is_split_by_its_clauses(run, laws, tmp_path):
    target = tmp_path / "mine.json"
    result = run("calibrate", laws[0], "--output", target)
    assert result.exit_code in {0, 3}, result.output
    assert "Brier skill" in result.stdout
    assert target.is_file() == (result.exit_code == 0)


def test_documents_that_ask_nothing(run, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("Nothing here is numbered. Nothing is defined.\n" * 40)
    result = run("calibrate", plain)
    assert result.exit_code == 2
    assert "numbered clauses or defined terms" in result.output or "nothing to calibrate on" in result.output


def test_bench_signals_writes_fits_and_draws(run, tmp_path, laws):
    data = tmp_path / "data"
    (data / "contracts").mkdir(parents=True)
    lines = []
    for seed in range(6):
        text, questions = contract(seed)
        (data / f"contracts/c{seed}.txt").write_text(text)
        split = "train" if seed < 4 else "test"
        lines.append(json.dumps({"contract": f"c{seed}.txt", "split": split, "questions": questions}))
    (data / "questions.jsonl").write_text("\n".join(lines))
    fits, plots = tmp_path / "fits.json", tmp_path / "plots"
    result = run("bench", "signals", "--data", data, "--write", fits, "--plots", plots, "--json")
    assert result.exit_code in {0, 3}, result.output
    (found,) = json.loads(result.stdout.splitlines()[-1])["reports"].values()
    assert found["signals"]["frequency"]["alone"] is not None
    assert "dispersion" not in found["signals"]  # no model was run
    (model,) = user_models(fits)
    assert (model.language, model.fingerprint) == ("en", "")
    assert sorted(path.name for path in plots.iterdir()) == ["signals-auroc.png", "signals-reliability.png"]
