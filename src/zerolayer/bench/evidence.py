"""`zerolayer bench evidence`: how much of the gold evidence each signal of recall keeps, without a language model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from zerolayer.bench.common import MISSED, commit, contracts_option, processor, seed_option
from zerolayer.bench.evidence_measures import (
    SHARES,
    Case,
    Kept,
    interval,
    mean,
    measure,
    measure_meaning,
    open_case,
    pooled,
)
from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, progress, table
from zerolayer.config import load_settings
from zerolayer.learning.labelled import WORDINGS, Wording, labelled_contracts
from zerolayer.perception.recall import RecallWeights

if TYPE_CHECKING:
    from zerolayer.perception.dense import SentenceEncoder

BARS: dict[Wording, dict[int, float]] = {
    "question": {10: 0.80, 25: 0.92},
    "paraphrase": {10: 0.65, 25: 0.85},
}
CANDIDATES = (0.0, 0.6, 1.2, 1.8, 2.4)
"""Weights of meaning, where words cover nothing of a question, that a fit chooses from."""


def open_cases(
    data: Path, split: str, width: int, encoder: SentenceEncoder | None, limit: int | None, seed: int
) -> list[Case]:
    """Contracts of a split, indexed; `limit` of them drawn by `seed`. Raises UsageError."""
    contracts = labelled_contracts(data, split)
    if limit is not None and limit < len(contracts):
        contracts = random.Random(seed).sample(contracts, limit)
    cases = []
    with progress(f"indexing {len(contracts)} contracts of {split}", "contracts") as update:
        for number, contract in enumerate(contracts, start=1):
            cases.append(open_case(contract, width, encoder))
            update(number, len(contracts))
    return cases


def left_out(train: dict[float, list[Kept]], test: dict[float, list[Kept]], seed: int) -> dict[str, Any]:
    """The weight of meaning chosen on train without a third of the categories, judged on that third of test.

    Rows are by candidate. The one that keeps most evidence at 10 % is chosen.
    """
    categories = sorted({row.category for row in test[CANDIDATES[0]]})
    random.Random(seed).shuffle(categories)
    rows: list[Kept] = []
    chosen = []
    for third in range(3):
        out = set(categories[third::3])
        best = max(
            CANDIDATES,
            key=lambda c: float(np.mean([row.shares[1] for row in train[c] if row.category not in out])),
        )
        chosen.append(best)
        rows += [row for row in test[best] if row.category in out]
    return {"meaning_uncovered": chosen, **mean(rows), "interval": interval(rows, seed)}


def _result(
    rows: dict[str, list[Kept]], cases: Sequence[Case], wording: Wording, seed: int
) -> dict[str, Any]:
    signals = {name: mean(kept) for name, kept in rows.items()}
    bars = BARS[wording]
    return {
        "bench": "evidence",
        "wording": wording,
        "contracts": len(cases),
        "questions": len(rows["fused"]),
        "blocks": sum(len(case.spans) for case in cases),
        **signals,
        "interval": {name: interval(rows[name], seed) for name in ("words", "fused")},
        "pooled": {name: pooled(rows[name]) for name in ("bm25", "words", "fused")},
        "threshold": ", ".join(f"fused >= {bar:.2f} at {percent} %" for percent, bar in bars.items()),
        "passed": all(signals["fused"][str(percent)] >= bar for percent, bar in bars.items()),
    }


@click.command()
@contracts_option
@click.option("--split", default="test", show_default=True)
@click.option("--wording", type=click.Choice(WORDINGS), default="question", show_default=True)
@click.option("--contracts", "limit", type=click.IntRange(1), help="Only so many, drawn by the seed.")
@click.option(
    "--block-characters", default=300, show_default=True, type=click.IntRange(20), help="About 64 tokens."
)
@click.option("--encoder", type=click.Choice(["auto", "none"]), default="auto", show_default=True)
@click.option(
    "--fit",
    "fit_split",
    help="Choose the weight of meaning on this split, each third of categories left out.",
)
@seed_option
@json_option
def command(
    data: Path,
    split: str,
    wording: Wording,
    limit: int | None,
    block_characters: int,
    encoder: str,
    fit_split: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Share of gold evidence in the best 5, 10 and 25 % of a contract's blocks, for each signal and fused.

    No language model is involved. Means over questions; intervals over contracts. Exits with 3 when fused misses.
    """
    from zerolayer.engines.hf.loading import load_encoder

    loaded = load_encoder(load_settings(encoder=encoder))
    cases = open_cases(data, split, block_characters, loaded, limit, seed)
    rows = measure(cases, wording, loaded, RecallWeights())
    result = _result(rows, cases, wording, seed) | {
        "split": split,
        "block_characters": block_characters,
        "encoder": loaded.name if loaded else None,
        "seed": seed,
        "machine": processor(),
        "commit": commit(),
    }
    if fit_split is not None:
        train = open_cases(data, fit_split, block_characters, loaded, limit, seed)
        result["categories_left_out"] = left_out(
            measure_meaning(train, wording, loaded, CANDIDATES),
            measure_meaning(cases, wording, loaded, CANDIDATES),
            seed,
        )
    if as_json:
        emit_json(result)
    else:
        names = sorted(rows, key=lambda name: float(result[name]["10"]))
        lines = [[name, *(f"{result[name][str(percent)]:.3f}" for percent in SHARES)] for name in names]
        title = f"{result['questions']} questions ({wording}) on {len(cases)} contracts"
        table(title, ("signal", *(f"{percent} %" for percent in SHARES)), lines)
        note(f"95 % interval of fused at 10 %: {result['interval']['fused']['10']}; seed {seed}")
    return 0 if result["passed"] else MISSED
