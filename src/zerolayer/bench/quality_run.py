"""Runs the quality bench on one model: contract by contract, every method and every row of the scheduler."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.cli.output import note, progress
from zerolayer.config import Settings
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    import torch

    from zerolayer.bench.quality_cases import Asked, Case, Prepared
    from zerolayer.bench.quality_metrics import Score
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

ENGINE_ROWS = {
    "zerolayer_engine": True,
    "zerolayer_engine_no_knit": True,
    "zerolayer_engine_read_in_budget": False,
}
"""Rows of the real scheduler, and whether they start from blocks that were read in full sight."""

QUESTION_ROOM = 512
"""Tokens of the window that are kept for a question and its answer."""

Listen = Callable[["Score"], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of which contracts, and what is kept of it."""

    data: Path
    split: str
    contracts: int
    turns: int
    tokens: tuple[int, int]  # least and most of a contract
    wording: Asked
    shares: tuple[int, ...]  # percent of the blocks
    methods: tuple[str, ...]
    records: Path | None  # every score, a line each
    cases: Path | None  # the conversations in tokens, for quality_kvpress.py


def measure(
    case: Case,
    engine: HFEngine,
    encoder: SentenceEncoder | None,
    settings: Settings,
    plan: Plan,
    listen: Listen,
) -> Prepared:
    """One contract: every method at every share, each turn's score told to `listen`."""
    from zerolayer.bench.quality_cases import prepare

    with progress(f"reading {case.name[:40]}") as update:
        prepared = prepare(case, engine, encoder, settings.max_new_tokens, settings.seed, update)
    masked = [method for method in plan.methods if method not in ENGINE_ROWS]
    for score in _masked(prepared, engine, settings, masked, plan.shares):
        listen(score)
    rows = [method for method in plan.methods if method in ENGINE_ROWS]
    for score in _scheduled(prepared, engine, settings, rows, plan.shares):
        listen(score)
    return prepared


def _masked(
    prepared: Prepared, engine: HFEngine, settings: Settings, methods: Sequence[str], shares: Sequence[int]
) -> Iterator[Score]:
    """Methods that choose from the exact cache; first the full cache itself, whose share is 100."""
    from zerolayer.bench.quality_selection import METHODS

    cache, blocks = prepared.cache, prepared.cache.blocks
    for turn, reference in enumerate(prepared.references):
        logits = cache.forced(reference, None)
        yield _score(prepared, engine, turn, "full", 100, logits, reference.answer_ids, 1.0)
        for method in methods:
            for share in shares:
                visible = METHODS[method](prepared.view, turn, blocks_of(share, blocks))
                logits = cache.forced(reference, visible)
                answer = cache.own_answer(reference, logits, visible, settings.max_new_tokens)
                yield _score(prepared, engine, turn, method, share, logits, answer, float(visible.mean()))


def _scheduled(
    prepared: Prepared, engine: HFEngine, settings: Settings, rows: Sequence[str], shares: Sequence[int]
) -> Iterator[Score]:
    """The real scheduler over the same conversation."""
    from zerolayer.bench.quality_engine import conversation, empty_tiers, sized, store

    stream, turns = prepared.case.stream, list(zip(prepared.references, prepared.signals, strict=True))
    longest = max(len(reference.question_ids) for reference in prepared.references)
    with ExitStack() as stack:
        whole = None
        for row in rows:
            for share in shares:
                if ENGINE_ROWS[row] and whole is None:
                    whole = stack.enter_context(empty_tiers())
                    store(prepared.cache, whole, [block.id for block in stream.blocks], settings.codec)
                tiers = whole if ENGINE_ROWS[row] else stack.enter_context(empty_tiers())
                assert tiers is not None
                sizes = sized(settings, blocks_of(share, prepared.cache.blocks), longest)
                if row == "zerolayer_engine_no_knit":
                    sizes = dataclasses.replace(sizes, knit_share=0.0)
                done = conversation(engine, stream, tiers, sizes, settings.policy, turns)
                for turn, result in enumerate(done):
                    yield _score(
                        prepared, engine, turn, row, share, result.logits, result.answer_ids,
                        result.visible, result.knit_tokens,
                    )  # fmt: skip


def blocks_of(share: int, blocks: int) -> int:
    """Blocks in sight at a share in percent: at least the sinks and one more."""
    return min(blocks, max(2, round(share * blocks / 100)))


def _score(
    prepared: Prepared,
    engine: HFEngine,
    turn: int,
    method: str,
    share: int,
    logits: torch.Tensor,
    answer: Sequence[int],
    visible: float,
    knit_tokens: int = 0,
) -> Score:
    from zerolayer.bench.quality_metrics import Score, answer_f1, kl_divergence, top1_agreement

    reference, labels = prepared.references[turn], prepared.case.questions[turn][1]
    text = engine.tokenizer.decode(answer, skip_special_tokens=True)
    return Score(
        engine.name,
        prepared.case.name,
        turn + 1,
        method,
        share,
        kl_divergence(reference.log_probs, logits),
        top1_agreement(reference.log_probs, logits),
        answer_f1(text, labels.answer),
        visible,
        knit_tokens,
    )


def of_model(settings: Settings, plan: Plan) -> dict[str, Any]:
    """All contracts with one model; its summary, and which contracts they were."""
    from zerolayer.bench.quality_cases import choose_cases
    from zerolayer.bench.quality_metrics import summary
    from zerolayer.engines.hf.loading import load_encoder, load_engine
    from zerolayer.learning.labelled import labelled_contracts

    labelled = labelled_contracts(plan.data, plan.split)
    engine, encoder = load_engine(settings), load_encoder(settings)
    least, most = plan.tokens
    if most + QUESTION_ROOM > engine.window:
        raise UsageError(
            f"--tokens {least} {most}: with a question they may exceed the window of {settings.model}, "
            f"{engine.window} tokens; at most {engine.window - QUESTION_ROOM} are allowed"
        )
    cases = choose_cases(
        labelled, engine.tokenizer, settings.block_tokens, plan.contracts, plan.turns, plan.tokens, plan.wording,
        settings.seed,
    )  # fmt: skip
    scores: list[Score] = []
    written: list[dict[str, Any]] = []

    def listen(score: Score) -> None:
        scores.append(score)
        if plan.records is not None:
            with plan.records.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(dataclasses.asdict(score)) + "\n")

    for number, case in enumerate(cases, start=1):
        prepared = measure(case, engine, encoder, settings, plan, listen)
        written.append(_in_tokens(prepared))
        note(f"{settings.model}: {number} of {len(cases)} contracts")
    if plan.cases is not None:
        plan.cases.write_text(json.dumps({"model": settings.model, "cases": written}), encoding="utf-8")
    return {
        **summary(scores, settings.seed),
        "questions": sum(len(case.questions) for case in cases),
        "contracts": [{"name": case.name, "tokens": len(case.stream.token_ids)} for case in cases],
    }


def _in_tokens(prepared: Prepared) -> dict[str, Any]:
    """A conversation as the model sees it: the document, and each question with the full cache's answer."""
    return {
        "name": prepared.case.name,
        "document": prepared.case.stream.token_ids,
        "turns": [{"question": r.question_ids, "targets": r.targets} for r in prepared.references],
    }
