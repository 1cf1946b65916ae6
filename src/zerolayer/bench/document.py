"""`zerolayer bench document`: how much of a labelled contract's evidence is resident when an answer begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
from zerolayer.errors import UsageError
from zerolayer.learning.replay import OPTIMAL, ReplayResult, replay_all
from zerolayer.learning.traces import DemandTrace, DemandTurn
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals, fuse

POLICIES = ("graded", "static-window", "lru", OPTIMAL)
THRESHOLD = 0.60


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question and the characters of its evidence."""

    text: str
    evidence: tuple[tuple[int, int], ...]


def labelled_contract(data: Path, name: str, wording: str) -> tuple[Path, list[LabelledQuestion]]:
    """The one contract whose file name contains `name`, and its questions that have evidence.

    `data` has `contracts/*.txt` and `questions.jsonl`. Raises UsageError when there is none, or more than one.
    """
    index = data / "questions.jsonl"
    if not index.is_file():
        raise UsageError(f"--data {data} has no questions.jsonl; give a folder with it and contracts/*.txt")
    lines = [json.loads(line) for line in index.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = [line for line in lines if name.lower() in line["contract"].lower()]
    if len(found) != 1:
        names = ", ".join(line["contract"][:40] for line in (found or lines)[:3])
        raise UsageError(f"--contract {name!r} names {len(found)} contracts, it must name one of: {names}, …")
    questions = [
        LabelledQuestion(q[wording], tuple((int(a), int(b)) for a, b in q["evidence"]))
        for q in found[0]["questions"]
        if q["evidence"]
    ]
    return data / "contracts" / found[0]["contract"], questions


def evidence_trace(
    stream: DocumentStream, questions: Sequence[LabelledQuestion], matches: Sequence[Any], model: str
) -> DemandTrace:
    """Demand of gold evidence: a turn uses the blocks that hold it, each with its number of evidence characters."""
    turns = []
    for number, (question, match) in enumerate(zip(questions, matches, strict=True)):
        used = [
            (block.index, float(characters))
            for block in stream.blocks
            if (characters := _overlap(block.char_start, block.char_end, question.evidence))
        ]
        scores = tuple((i, float(score)) for i, score in enumerate(match) if score > 0)
        turns.append(DemandTurn(number, question.text, tuple(used), scores, tuple(b for b, _ in used)))
    lengths = (stream.blocks[0].token_count,) * len(stream.blocks)
    return DemandTrace(
        model, stream.documents[0].name, lengths[0], lengths, 1, "gold evidence", 0, tuple(turns)
    )


def _overlap(start: int, end: int, evidence: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(end, b) - max(start, a)) for a, b in evidence)


def _matches(stream: DocumentStream, questions: Sequence[LabelledQuestion], encoder: str) -> list[Any]:
    """The match of every block with every question, without a language model."""
    import numpy as np

    from zerolayer.engines.hf.loading import load_encoder
    from zerolayer.perception.dense import encode_blocks

    spans = [(block.char_start, block.char_end) for block in stream.blocks]
    index = LexicalIndex(stream.text, spans)
    nothing = np.zeros(len(spans), dtype=np.float32)
    loaded = load_encoder(load_settings(encoder=encoder))
    if loaded is None:
        return [fuse(Signals(index.scores(q.text)), nothing) for q in questions]
    vectors = encode_blocks(loaded, stream.text, spans)
    asked = loaded.encode([q.text for q in questions])
    return [
        fuse(Signals(index.scores(q.text), vectors @ vector), nothing)
        for q, vector in zip(questions, asked, strict=True)
    ]


def row(result: ReplayResult) -> dict[str, Any]:
    """What is reported of a policy. A trace of evidence has characters as its mass, so that is what counts."""
    return {**result.to_json(), "evidence_coverage": result.effective_context_utilization}


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--contract", required=True, help="Part of a contract's file name.")
@click.option("--budget", default="10%", show_default=True, help="Device budget: a size or a share.")
@click.option(
    "--wording", type=click.Choice(["question", "paraphrase"]), default="question", show_default=True
)
@click.option("--encoder", type=click.Choice(["auto", "none"]), default="auto", show_default=True)
@model_option
@json_option
def command(
    data: Path, contract: str, budget: str, wording: str, encoder: str, model: str, as_json: bool
) -> int:
    """Replay a labelled contract's questions on every policy: what share of their evidence is resident in time?

    Needs no language model, only its tokeniser. Exits with 3 below 0.60 for graded.
    """
    from transformers import AutoConfig, AutoTokenizer

    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.engine import geometry_of
    from zerolayer.engines.hf.models import resolve_model

    path, questions = labelled_contract(data, contract, wording)
    directory = resolve_model(model, on_progress=note)
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(directory)
    stream = build_stream([read_document(path)], tokenizer, prompt_frame(tokenizer), BLOCK_TOKENS, model)
    token_bytes = geometry_of(AutoConfig.from_pretrained(directory)).token_bytes
    bytes_allowed = parse_budget(budget, len(stream.token_ids) * token_bytes, "--budget")
    capacity = bytes_allowed // (BLOCK_TOKENS * token_bytes)
    trace = evidence_trace(stream, questions, _matches(stream, questions, encoder), model)
    results = replay_all(trace, capacity, POLICIES)
    covered = row(results["graded"])["evidence_coverage"]
    result = {
        "bench": "document",
        "contract": path.name,
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
