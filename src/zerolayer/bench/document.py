"""`zerolayer bench document`: how much of a labelled contract's evidence is resident when an answer begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from zerolayer.bench.common import MISSED, commit, model_option
from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, table
from zerolayer.config import load_settings, parse_budget
from zerolayer.core import BLOCK_TOKENS
from zerolayer.documents import read_document
from zerolayer.documents.stream import DocumentStream, build_stream, prompt_frame
from zerolayer.learning.labelled import (
    WORDINGS,
    LabelledQuestion,
    Wording,
    contract_named,
    labelled_contracts,
)
from zerolayer.learning.replay import OPTIMAL, ReplayResult, replay_all
from zerolayer.learning.traces import DemandTrace, DemandTurn
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import fuse

POLICIES = ("graded", "static-window", "lru", OPTIMAL)
THRESHOLD = 0.60


def evidence_trace(
    stream: DocumentStream,
    questions: Sequence[LabelledQuestion],
    wording: Wording,
    matches: Sequence[Any],
    model: str,
) -> DemandTrace:
    """Demand of gold evidence: a turn uses the blocks that hold it, each with its number of evidence characters."""
    turns = []
    for number, (question, match) in enumerate(zip(questions, matches, strict=True)):
        used = [
            (block.index, float(characters))
            for block in stream.blocks
            if (characters := question.evidence_in(block.char_start, block.char_end))
        ]
        scores = tuple((i, float(score)) for i, score in enumerate(match) if score > 0)
        turns.append(
            DemandTurn(number, question.wording(wording), tuple(used), scores, tuple(b for b, _ in used))
        )
    lengths = (stream.blocks[0].token_count,) * len(stream.blocks)
    return DemandTrace(
        model, stream.documents[0].name, lengths[0], lengths, 1, "gold evidence", 0, tuple(turns)
    )


def _matches(stream: DocumentStream, questions: Sequence[str], encoder: str) -> list[Any]:
    """The match of every block with every question, without a language model."""
    import numpy as np

    from zerolayer.engines.hf.loading import load_encoder
    from zerolayer.perception.dense import encode_blocks

    spans = [(block.char_start, block.char_end) for block in stream.blocks]
    index = LexicalIndex(stream.text, spans)
    nothing = np.zeros(len(spans), dtype=np.float32)
    loaded = load_encoder(load_settings(encoder=encoder))
    if loaded is None:
        return [fuse(index.signals(q), nothing) for q in questions]
    vectors = encode_blocks(loaded, stream.text, spans)
    asked = loaded.encode(list(questions))
    return [
        fuse(index.signals(q, vectors @ vector), nothing) for q, vector in zip(questions, asked, strict=True)
    ]


def row(result: ReplayResult) -> dict[str, Any]:
    """What is reported of a policy. A trace of evidence has characters as its mass, so that is what counts."""
    return {**result.to_json(), "evidence_coverage": result.effective_context_utilization}


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--contract", required=True, help="Part of a contract's file name.")
@click.option("--budget", default="10%", show_default=True, help="Device budget: a size or a share.")
@click.option("--wording", type=click.Choice(WORDINGS), default="question", show_default=True)
@click.option("--encoder", type=click.Choice(["auto", "none"]), default="auto", show_default=True)
@model_option
@json_option
def command(
    data: Path, contract: str, budget: str, wording: Wording, encoder: str, model: str, as_json: bool
) -> int:
    """Replay a labelled contract's questions on every policy: what share of their evidence is resident in time?

    Needs no language model, only its tokeniser. Exits with 3 below 0.60 for graded.
    """
    from transformers import AutoConfig, AutoTokenizer

    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.engine import geometry_of
    from zerolayer.engines.hf.models import resolve_model

    labelled = contract_named(labelled_contracts(data), contract)
    questions = [question for question in labelled.questions if question.evidence]
    directory = resolve_model(model, on_progress=note)
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(directory)
    stream = build_stream(
        [read_document(labelled.path)], tokenizer, prompt_frame(tokenizer), BLOCK_TOKENS, model
    )
    token_bytes = geometry_of(AutoConfig.from_pretrained(directory)).token_bytes
    bytes_allowed = parse_budget(budget, len(stream.token_ids) * token_bytes, "--budget")
    capacity = bytes_allowed // (BLOCK_TOKENS * token_bytes)
    matches = _matches(stream, [question.wording(wording) for question in questions], encoder)
    trace = evidence_trace(stream, questions, wording, matches, model)
    results = replay_all(trace, capacity, POLICIES)
    covered = row(results["graded"])["evidence_coverage"]
    result = {
        "bench": "document",
        "contract": labelled.name,
        "questions": len(questions),
        "wording": wording,
        "encoder": encoder,
        "tokens": len(stream.token_ids),
        "budget": budget,
        "capacity_blocks": capacity,
        "evidence_coverage": {name: row(r)["evidence_coverage"] for name, r in results.items()},
        "policies": {name: row(r) for name, r in results.items()},
        "threshold": f"evidence_coverage of graded >= {THRESHOLD}",
        "passed": covered >= THRESHOLD,
        "labelled_by": trace.labelled_by,
        "model": model,
        "commit": commit(),
    }
    columns = ("policy", "evidence coverage", "wasted loads", "coverage", "loads")
    rows = [
        [n, f"{r.effective_context_utilization:.3f}", f"{r.wasted_loads:.3f}", f"{r.coverage:.3f}", r.loads]
        for n, r in results.items()
    ]
    if as_json:
        emit_json(result)
    else:
        table(f"{len(questions)} questions, {wording}, {budget} (simulated)", columns, rows)
    return 0 if result["passed"] else MISSED
