"""`zerolayer bench signals`: what each signal is worth, how well persistence is calibrated, and the shipped fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.bench.common import MISSED, commit, model_option, processor, seed_option
from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, progress, table

if TYPE_CHECKING:
    from zerolayer.learning.calibrate_report import Report
    from zerolayer.learning.calibrate_sessions import Recorded
    from zerolayer.learning.labelled import LabelledContract

MOST_ERROR = 0.05
SHARES = (0.1, 0.25)
"""Device budgets of the replay that compares grading, as shares of a document's blocks."""

LAW_REPORT = ("总则", "侵权责任编", "继承编")
"""Books that the report on Chinese law is about; the fit sees the others."""

ABLATION = "en, evidence of recorded contracts"
"""What keys say of gold evidence. Few contracts: it shows what signals add, and is neither shipped nor judged."""

_directory = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--data", type=_directory, required=True, help="Labelled contracts: questions.jsonl, contracts/."
)
@click.option("--law", type=_directory, help="A law in Chinese, one book a file.")
@click.option(
    "--attention",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also record real attention of short contracts, and keep the recordings here.",
)
@click.option(
    "--contracts", type=(int, int), default=(14, 8), show_default=True, help="To record: train, test."
)
@model_option
@click.option(
    "--law-model", default="qwen2.5-coder-0.5b", show_default=True, help="Whose tokenizer cuts the law."
)
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw the diagrams into this folder."
)
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write the fits to this file.")
@seed_option
@json_option
def command(
    data: Path,
    law: Path | None,
    attention: Path | None,
    contracts: tuple[int, int],
    model: str,
    law_model: str,
    plots: Path | None,
    write: Path | None,
    seed: int,
    as_json: bool,
) -> int:
    """Fit persistence on train contracts, report on test contracts: calibration, and each signal's worth.

    Demand is gold evidence, asked in both wordings in a shuffled order; with --attention also what answers
    attended to. Exits with 3 where a calibration error (15 bins of equal mass) is above 0.05.
    """
    from zerolayer.learning.labelled import labelled_contracts

    train, test = labelled_contracts(data, "train"), labelled_contracts(data, "test")
    reports = {"en, evidence": _evidence(train, test, model, seed)}
    if law is not None:
        reports["zh, evidence"] = _law(law, law_model, seed)
    if attention is not None:
        reports |= _attention(train, test, contracts, model, attention, seed)
    result: dict[str, Any] = {
        "bench": "signals",
        "reports": {name: found.values for name, found in reports.items()},
        "threshold": f"calibration error of every report but {ABLATION!r} <= {MOST_ERROR}",
        "passed": all(
            found.values["calibrated"]["ece_mass"] <= MOST_ERROR
            for name, found in reports.items()
            if name != ABLATION
        ),
        "model": model,
        "law_model": law_model,
        "seed": seed,
        "commit": commit(),
        "machine": processor(),
    }
    if write is not None:
        _write(write, reports, model, law_model, seed)
    if plots is not None:
        from zerolayer.bench.signals_plot import draw

        draw(result["reports"], plots)
    if as_json:
        emit_json(result)
    else:
        _print(result["reports"])
    return 0 if result["passed"] else MISSED


def _evidence(
    train: Sequence[LabelledContract], test: Sequence[LabelledContract], model: str, seed: int
) -> Report:
    from zerolayer.cli.calibrate import tokenizer_of
    from zerolayer.learning.calibrate_documents import labelled_sessions

    tokenizer = tokenizer_of(model)
    with progress("contracts to fit on", "contracts") as update:
        fitted = labelled_sessions(train, tokenizer, seed, update)
    with progress("contracts to report on", "contracts") as update:
        reported = labelled_sessions(test, tokenizer, seed, update)
    return _report(fitted, reported, "en", "", "gold evidence of contract questions", seed)


def _law(law: Path, model: str, seed: int) -> Report:
    from zerolayer.cli.calibrate import tokenizer_of
    from zerolayer.documents import read_document
    from zerolayer.learning.calibrate_documents import own_sessions
    from zerolayer.learning.calibrate_questions import anchor_questions

    tokenizer = tokenizer_of(model)
    fitted: list[Recorded] = []
    reported: list[Recorded] = []
    for path in sorted(law.glob("[!_]*.md")):
        document = read_document(path)
        sessions = own_sessions(document, tokenizer, anchor_questions(document.text), seed)
        (reported if path.stem in LAW_REPORT else fitted).extend(sessions)
    return _report(fitted, reported, "zh", "", "articles, definitions and references of the law", seed)


def _attention(
    train: Sequence[LabelledContract],
    test: Sequence[LabelledContract],
    count: tuple[int, int],
    model: str,
    cache: Path,
    seed: int,
) -> dict[str, Report]:
    from zerolayer.config import load_settings
    from zerolayer.engines.hf.loading import load_encoder, load_engine
    from zerolayer.learning.calibrate_record import record_contract, recordable
    from zerolayer.learning.calibrate_sessions import by_evidence

    settings = load_settings(model=model)
    engine, encoder = load_engine(settings), load_encoder(settings)
    parts = []
    for contracts, most in zip((train, test), count, strict=True):
        chosen, sessions = recordable(contracts, most), []
        with progress("recording", "contracts") as update:
            for number, contract in enumerate(chosen, start=1):
                sessions.append(record_contract(contract, engine, encoder, cache, seed))
                update(number, len(chosen))
        parts.append(sessions)
    demand, key = f"attention of {model}'s answers", engine.fingerprint
    evidence = [[by_evidence(recorded) for recorded in sessions] for sessions in parts]
    return {
        "en, attention": _report(parts[0], parts[1], "en", key, demand, seed),
        ABLATION: _report(evidence[0], evidence[1], "en", key, "gold evidence", seed),
    }


def _report(
    fitted: Sequence[Recorded],
    reported: Sequence[Recorded],
    language: str,
    fingerprint: str,
    demand: str,
    seed: int,
) -> Report:
    from zerolayer.learning.calibrate_replay import grading
    from zerolayer.learning.calibrate_report import report
    from zerolayer.learning.calibrate_sessions import snapshots

    note(f"{language}, {demand}: {len(fitted)} sessions to fit on, {len(reported)} to report on")
    found = report(snapshots(fitted), snapshots(reported), language, fingerprint, demand, seed)
    found.values["grading"] = {str(share): grading(reported, found.model, share) for share in SHARES}
    return found


def _write(path: Path, reports: dict[str, Report], model: str, law_model: str, seed: int) -> None:
    """Attention of short contracts does not carry over to long documents, so that fit does not grade sessions."""
    from dataclasses import replace

    from zerolayer.learning.calibrate_files import write_models

    models = []
    for name, found in reports.items():
        if name == ABLATION:
            continue
        grades = not found.model.fingerprint
        notes = {**found.model.notes, "grades": grades, "report": found.values["calibrated"]}
        models.append(replace(found.model, notes=notes))
    recipe = (
        "zerolayer bench signals --data shared/data/cuad --law shared/data/cn_civil_code --attention CACHE "
        f"--model {model} --law-model {law_model} --seed {seed} --write FILE"
        + (" --grades" if grades else "")
    )
    write_models(path, models, recipe)


def _print(reports: dict[str, dict[str, Any]]) -> None:
    columns = (
        "report",
        "persistence",
        "calibration error",
        "equal width",
        "AUROC",
        "in document",
        "base rate",
    )
    rows = []
    for name, values in reports.items():
        for kind in ("calibrated", "hand_set"):
            found, inside = values[kind], values[f"{kind}_auroc_in_document"]
            rows.append(
                [
                    name,
                    kind,
                    found["ece_mass"],
                    found["ece_width"],
                    found["auroc"],
                    inside,
                    found["base_rate"],
                ]
            )
    table("Probability of use within 10 turns, on documents not fitted on", columns, rows)
    rows = [
        [name, f"{float(share):.0%}", kind, f["coverage"], f["wasted_loads"], f["loads"], f["faults"]]
        for name, values in reports.items()
        for share, kinds in values["grading"].items()
        for kind, f in kinds.items()
    ]
    columns = ("report", "device", "persistence", "coverage", "wasted loads", "loads", "faults")
    table("The graded policy, replayed (simulated)", columns, rows)
    for name, values in reports.items():
        signals = values["signals"].items()
        ordered = sorted(signals, key=lambda item: -(item[1]["alone_in_document"] or 0.0))
        table(
            f"{name}: AUROC within a document",
            ("signal", "alone", "all without it", "adds", "weight"),
            [
                [s, v["alone_in_document"], v["left_out_in_document"], v["adds_in_document"], v["weight"]]
                for s, v in ordered
            ],
        )
