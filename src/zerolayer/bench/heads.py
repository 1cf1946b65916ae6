"""`zerolayer bench heads`: which attention heads look at the evidence while a question is read."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from zerolayer.bench.common import conditions, contracts_option, model_option, seed_option
from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, progress, table
from zerolayer.config import load_settings
from zerolayer.core import FloatArray
from zerolayer.documents import read_document
from zerolayer.documents.stream import DocumentStream, build_stream, prompt_frame
from zerolayer.errors import UsageError
from zerolayer.learning.labelled import LabelledContract, LabelledQuestion, labelled_contracts

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine

QUESTIONS_EACH = 9
ABOVE_MEDIAN = 1.5
"""A head counts by the square of what it has above this multiple of the median head's rank."""

MOST_HEADS = 20
_ROOM = 192
"""Tokens left free behind the document for a question."""


def short_contracts(data: Path, split: str, engine: HFEngine, count: int, seed: int) -> list[
    tuple[LabelledContract, DocumentStream]
]:  # fmt: skip
    """`count` contracts, drawn by `seed`, that fit the model's window. Raises UsageError when there are fewer."""
    contracts = [c for c in labelled_contracts(data, split) if any(q.evidence for q in c.questions)]
    random.Random(seed).shuffle(contracts)
    found = []
    for contract in contracts:
        if not 9_000 < contract.path.stat().st_size < 24_000:
            continue
        document = read_document(contract.path)
        stream = build_stream(
            [document],
            engine.tokenizer,
            prompt_frame(engine.tokenizer),
            load_settings().block_tokens,
            "heads",
        )
        if len(stream.token_ids) + _ROOM <= engine.window:
            found.append((contract, stream))
            if len(found) == count:
                return found
    raise UsageError(
        f"--contracts {count}: only {len(found)} contracts of {split!r} fit the window; ask for fewer"
    )


def read(engine: HFEngine, stream: DocumentStream) -> None:
    """Read a whole stream into the empty arena, with exact attention."""
    engine.arena.free(slice(None))
    engine.arena.in_sight = engine.arena.rows = 0
    for first in range(0, len(stream.token_ids), 512):
        engine.append(stream.token_ids[first : first + 512], first)


def ranks(
    engine: HFEngine, stream: DocumentStream, question: LabelledQuestion, text: str
) -> FloatArray | None:
    """[layers, heads] reciprocal rank of the best block with evidence, by a head's attention to the blocks.

    The question's tokens attend; the first block (the sinks) is left out. None where no block has evidence.
    """
    width, rows = stream.blocks[0].token_count, len(stream.token_ids)
    gold = [question.evidence_in(block.char_start, block.char_end) > 0 for block in stream.blocks]
    gold[0] = False
    if not any(gold):
        return None
    ids = engine.tokenizer(prompt_frame(engine.tokenizer).question(text), add_special_tokens=False)[
        "input_ids"
    ]
    engine.mass.zero_()
    engine.arena.rows = rows
    engine.append(ids[-_ROOM:], rows, observe=True)
    engine.arena.rows = rows
    shape = (engine.geometry.layers, engine.heads, len(stream.blocks), width)
    mass = engine.mass[:, :, :rows].reshape(shape).sum(-1).cpu().numpy()
    mass[:, :, 0] = -1.0
    best = mass[:, :, np.flatnonzero(gold)].max(axis=-1, keepdims=True)
    reciprocal: FloatArray = 1.0 / (1.0 + (mass > best).sum(axis=-1)).astype(np.float32)
    return reciprocal


def weights(mean_rank: FloatArray) -> list[tuple[int, int, float]]:
    """(layer, head, weight) of the best heads, the largest weight 1, from `mean_rank` [layers, heads]."""
    above = np.maximum(mean_rank - ABOVE_MEDIAN * float(np.median(mean_rank)), 0.0) ** 2
    above = above / max(float(above.max()), 1e-9)
    order = np.argsort(-above, axis=None, kind="stable")[:MOST_HEADS]
    places = [divmod(int(place), mean_rank.shape[1]) for place in order]
    return [
        (layer, head, round(float(above[layer, head]), 4)) for layer, head in places if above[layer, head] > 0
    ]


def _asked(contract: LabelledContract, seed: int) -> Sequence[tuple[LabelledQuestion, str]]:
    """Some of a contract's questions, every second one as a paraphrase."""
    answered = [question for question in contract.questions if question.evidence]
    random.Random(seed).shuffle(answered)
    return [
        (question, question.question if number % 2 else question.paraphrase)
        for number, question in enumerate(answered[:QUESTIONS_EACH])
    ]


@click.command()
@contracts_option
@click.option("--split", default="train", show_default=True)
@click.option("--contracts", default=26, show_default=True, type=click.IntRange(1))
@model_option
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="JSON file to add the model to."
)
@seed_option
@json_option
def command(
    data: Path, split: str, contracts: int, model: str, output: Path | None, seed: int, as_json: bool
) -> int:
    """Mean reciprocal rank of the evidence's block in each head's attention; what citations weigh heads by.

    With --output the weights go into a file like perception/data/retrieval_heads.json, under the model's fingerprint.
    """
    from zerolayer.engines.hf.loading import load_engine

    engine = load_engine(load_settings(model=model))
    chosen = short_contracts(data, split, engine, contracts, seed)
    blocks = -(-(max(len(stream.token_ids) for _, stream in chosen) + _ROOM) // load_settings().block_tokens)
    engine.make_arena(blocks, load_settings().block_tokens)
    found: list[FloatArray] = []
    with progress("reading contracts", "contracts") as update:
        for number, (contract, stream) in enumerate(chosen, start=1):
            read(engine, stream)
            measured = [ranks(engine, stream, question, text) for question, text in _asked(contract, seed)]
            found += [rank for rank in measured if rank is not None]
            update(number, len(chosen))
    mean_rank = np.mean(found, axis=0)
    entry = {
        "model": engine.name,
        "layers": engine.geometry.layers,
        "heads": engine.heads,
        "questions": len(found),
        "contracts": len(chosen),
        "split": split,
        "seed": seed,
        "reciprocal_rank": {
            "median_head": round(float(np.median(mean_rank)), 4),
            "best_head": round(float(mean_rank.max()), 4),
        },
        "weights": weights(mean_rank),
        "rebuild": f"zerolayer bench heads --data {data} --split {split} --contracts {contracts} --seed {seed}",
    }
    if output is not None:
        _add(output, engine.fingerprint, entry)
    if as_json:
        emit_json({"bench": "heads", "fingerprint": engine.fingerprint, **entry, **conditions(model, seed)})
    else:
        rows = [
            [layer, head, f"{mean_rank[layer, head]:.3f}", weight]
            for layer, head, weight in weights(mean_rank)
        ]
        table(
            f"{len(found)} questions on {len(chosen)} contracts",
            ("layer", "head", "reciprocal rank", "weight"),
            rows,
        )
        note(f"median head {float(np.median(mean_rank)):.3f}")
    return 0


def _add(output: Path, fingerprint: str, entry: dict[str, Any]) -> None:
    known = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {}
    output.write_text(json.dumps({**known, fingerprint: entry}, indent=1) + "\n", encoding="utf-8")
