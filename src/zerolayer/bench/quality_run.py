"""Runs the quality bench on one model: contract by contract, every method and every row of the scheduler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.bench.quality_metrics import Score, answer_f1, kl_divergence, summary, top1_agreement
from zerolayer.bench.quality_records import Records
from zerolayer.cli.output import note, progress
from zerolayer.config import Settings
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    import torch

    from zerolayer.bench.quality_cases import Asked, Case, Prepared
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

FULL = "full"
"""The row of the full cache itself."""

NO_KNIT, READ_IN_BUDGET = "zerolayer_engine_no_knit", "zerolayer_engine_read_in_budget"
ENGINE_ROWS = ("zerolayer_engine", NO_KNIT, READ_IN_BUDGET)
"""Rows of the real scheduler; all but the last start from blocks that were read in full sight."""

QUESTION_ROOM = 512
"""Tokens of the window that are kept for a question and its answer."""


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


class CaseRun:
    """One contract, prepared: what each method makes of its conversation. Turns count from 0."""

    def __init__(self, prepared: Prepared, engine: HFEngine, settings: Settings, records: Records) -> None:
        self.prepared, self.engine, self.settings, self.records = prepared, engine, settings, records
        self._name, self._turns = prepared.case.name, range(len(prepared.references))

    def full(self) -> None:
        """The full cache against itself: no drift, and the F1 that can be had."""
        for turn, reference in enumerate(self.prepared.references):
            if not self._done(turn, FULL, 100):
                logits = self.prepared.cache.forced(reference, None)
                self._keep(turn, FULL, 100, logits, reference.answer_ids, 1.0)

    def masked(self, methods: Sequence[str], share: int) -> None:
        """Methods that choose from the exact cache."""
        from zerolayer.bench.quality_selection import METHODS

        cache, view = self.prepared.cache, self.prepared.view
        count, longest = blocks_of(share, cache.blocks), self.settings.max_new_tokens
        for turn, reference in enumerate(self.prepared.references):
            todo = [method for method in methods if not self._done(turn, method, share)]
            visible = [METHODS[method](view, turn, count) for method in todo]
            logits = [cache.forced(reference, seen, place) for place, seen in enumerate(visible)]
            answers = cache.own_answers(reference, logits, visible, longest)
            for method, seen, of_method, answer in zip(todo, visible, logits, answers, strict=True):
                self._keep(turn, method, share, of_method, answer, float(seen.mean()))

    def scheduled(self, row: str, shares: Sequence[int]) -> None:
        """The real scheduler over the same conversation."""
        from zerolayer.bench.quality_engine import conversation, empty_tiers, sized, store

        prepared, settings = self.prepared, self.settings
        stream, turns = prepared.case.stream, list(zip(prepared.references, prepared.signals, strict=True))
        longest = max(len(reference.question_ids) for reference in prepared.references)
        if row == NO_KNIT:
            settings = settings.model_copy(update={"knit_share": 0.0})
        for share in shares:
            if all(self._done(turn, row, share) for turn in self._turns):
                continue
            with empty_tiers() as tiers:
                if row != READ_IN_BUDGET:
                    store(prepared.cache, tiers, [block.id for block in stream.blocks], settings.codec)
                sizes = sized(settings, blocks_of(share, prepared.cache.blocks), longest)
                done = conversation(self.engine, stream, tiers, sizes, settings.policy, turns)
            for turn, result in enumerate(done):
                self._keep(
                    turn, row, share, result.logits, result.answer_ids, result.visible, result.knit_tokens
                )

    def _done(self, turn: int, method: str, share: int) -> bool:
        return self.records.has(self.engine.name, self._name, turn + 1, method, share)

    def _keep(
        self,
        turn: int,
        method: str,
        share: int,
        logits: torch.Tensor,
        answer: Sequence[int],
        visible: float,
        knit_tokens: int = 0,
    ) -> None:
        reference, labels = self.prepared.references[turn], self.prepared.case.questions[turn][1]
        text = self.engine.tokenizer.decode(answer, skip_special_tokens=True)
        self.records.add(
            Score(
                self.engine.name,
                self._name,
                turn + 1,
                method,
                share,
                kl_divergence(reference.log_probs, logits),
                top1_agreement(reference.log_probs, logits),
                answer_f1(text, labels.answer),
                visible,
                knit_tokens,
            )
        )


def measure(
    case: Case,
    engine: HFEngine,
    encoder: SentenceEncoder | None,
    settings: Settings,
    plan: Plan,
    records: Records,
) -> Prepared:
    """One contract: every method at every share. What `records` hold already is not measured again."""
    from zerolayer.bench.quality_cases import prepare

    masked = [method for method in plan.methods if method not in ENGINE_ROWS]
    with progress(f"reading {case.name[:40]}") as update:
        prepared = prepare(
            case, engine, encoder, settings.max_new_tokens, settings.seed, max(1, len(masked)), update
        )
    run = CaseRun(prepared, engine, settings, records)
    run.full()
    for share in plan.shares:
        run.masked(masked, share)
    for row in ENGINE_ROWS:
        if row in plan.methods:
            run.scheduled(row, plan.shares)
    return prepared


def blocks_of(share: int, blocks: int) -> int:
    """Blocks in sight at a share in percent: at least the sinks and one more."""
    return min(blocks, max(2, round(share * blocks / 100)))


def of_model(settings: Settings, plan: Plan) -> dict[str, Any]:
    """All contracts with one model; its summary, and which contracts they were."""
    from zerolayer.bench.quality_cases import choose_cases
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
    conditions = {name: str(getattr(plan, name)) for name in ("split", "turns", "tokens", "wording")}
    records = Records(
        plan.records, {**conditions, "answer_tokens": settings.max_new_tokens, "seed": settings.seed}
    )
    written: list[dict[str, Any]] = []
    for number, case in enumerate(cases, start=1):
        if plan.cases is None and _recorded(case, engine.name, plan, records):
            continue
        prepared = measure(case, engine, encoder, settings, plan, records)
        written.append(_in_tokens(prepared))
        if plan.cases is not None:
            plan.cases.write_text(json.dumps({"model": settings.model, "cases": written}), encoding="utf-8")
        note(f"{settings.model}: {number} of {len(cases)} contracts")
    names = {case.name for case in cases}
    scores = [score for score in records.scores if score.model == engine.name and score.contract in names]
    return {
        **summary(scores, settings.seed),
        "questions": sum(len(case.questions) for case in cases),
        "contracts": [{"name": case.name, "tokens": len(case.stream.token_ids)} for case in cases],
    }


def _recorded(case: Case, model: str, plan: Plan, records: Records) -> bool:
    """Whether nothing of this contract is left to measure."""
    wanted = [(FULL, 100), *((method, share) for method in plan.methods for share in plan.shares)]
    turns = range(1, len(case.questions) + 1)
    return all(records.has(model, case.name, turn, *row) for turn in turns for row in wanted)


def _in_tokens(prepared: Prepared) -> dict[str, Any]:
    """A conversation as the model sees it: the document, and each question with the full cache's answer."""
    return {
        "name": prepared.case.name,
        "document": prepared.case.stream.token_ids,
        "turns": [{"question": r.question_ids, "targets": r.targets} for r in prepared.references],
    }
