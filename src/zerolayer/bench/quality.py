"""`zerolayer bench quality`: how far answers drift from the full cache's when only a part of a document is in sight."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import report, seed_option, threads_option
from zerolayer.cli.options import json_option
from zerolayer.cli.output import note, progress
from zerolayer.config import Settings, load_settings
from zerolayer.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import torch

    from zerolayer.bench.quality_cases import Case, Prepared
    from zerolayer.bench.quality_metrics import Score
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

BAR, BAR_SHARE = 0.35, 25
"""KL in nats that zerolayer may have at most, at this percentage of the blocks."""

JUDGED = ("zerolayer", "zerolayer_engine")
"""What the bar is for: the selection beside the other methods, and the scheduler itself."""

ENGINE_ROWS = {
    "zerolayer_engine": True,
    "zerolayer_engine_no_knit": True,
    "zerolayer_engine_read_in_budget": False,
}
"""Rows of the real scheduler, and whether they start from blocks that were read in full sight."""

SETTING = (
    "main rows: exact cache, original positions, everything out of sight masked, each question right behind the "
    "document; rows zerolayer_engine*: the scheduler, compact positions, blocks decoded from the codec. The first "
    "block always is in sight and counts; question and answer do not count. *_tokens choose tokens for each head"
)

Listen = Callable[["Score"], None]


def measure(
    case: Case,
    engine: HFEngine,
    encoder: SentenceEncoder | None,
    settings: Settings,
    methods: Sequence[str],
    shares: Sequence[int],
    listen: Listen,
) -> None:
    """One contract: every method at every share, each turn's score told to `listen`."""
    from zerolayer.bench.quality_cases import prepare

    with progress(f"reading {case.name[:40]}") as update:
        prepared = prepare(case, engine, encoder, settings.max_new_tokens, settings.seed, update)
    for score in _masked(prepared, engine, settings, [m for m in methods if m not in ENGINE_ROWS], shares):
        listen(score)
    for score in _scheduled(prepared, engine, settings, [m for m in methods if m in ENGINE_ROWS], shares):
        listen(score)


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


@click.command()
@click.option(
    "--data",
    default="../shared/data/cuad",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with questions.jsonl and contracts/.",
)
@click.option("--split", default="test", show_default=True)
@click.option(
    "--models", multiple=True, default=("smollm2",), show_default=True, help="Model; may be repeated."
)
@click.option("--contracts", type=click.IntRange(1), default=6, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=6, show_default=True)
@click.option(
    "--tokens", nargs=2, type=click.IntRange(128), default=(1500, 6000), show_default=True,
    help="Least and most tokens of a contract.",
)  # fmt: skip
@click.option("--share", "shares", multiple=True, type=click.IntRange(1, 99), default=(5, 10, 25, 50),
              show_default=True, help="Percent of the blocks in sight; may be repeated.")  # fmt: skip
@click.option("--method", "methods", multiple=True, help="Method; may be repeated [default: all].")
@click.option(
    "--wording", type=click.Choice(["mixed", "question", "paraphrase"]), default="mixed", show_default=True
)
@click.option("--answer-tokens", type=click.IntRange(1), default=24, show_default=True)
@click.option("--encoder", type=click.Choice(["auto", "none"]), default="auto", show_default=True)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw KL against the share.")
@click.option(
    "--records", type=click.Path(dir_okay=False, path_type=Path), help="Append every score as JSON."
)
@seed_option
@threads_option
@json_option
def command(
    data: Path,
    split: str,
    models: tuple[str, ...],
    contracts: int,
    turns: int,
    tokens: tuple[int, int],
    shares: tuple[int, ...],
    methods: tuple[str, ...],
    wording: str,
    answer_tokens: int,
    encoder: str,
    plot: Path | None,
    records: Path | None,
    seed: int,
    threads: int | None,
    as_json: bool,
) -> int:
    """Conversations about small contracts: KL to the full cache, agreement and answer F1, by share of blocks in sight.

    Exits with 3 when zerolayer's KL at 25 % is above 0.35 nats with any model.
    """
    chosen = _methods(methods)
    if threads:
        import torch

        torch.set_num_threads(threads)
    results = {}
    for model in models:
        settings = load_settings(model=model, seed=seed, encoder=encoder, max_new_tokens=answer_tokens)
        results[model] = _of_model(
            settings, data, split, contracts, turns, tokens, shares, chosen, wording, records
        )
    judged = {
        f"{model} {row}": result["kl"][row].get(str(BAR_SHARE))
        for model, result in results.items()
        for row in JUDGED
        if row in result["kl"]
    }
    first = results[models[0]]
    result = {
        "bench": "quality",
        "setting": SETTING,
        "baseline": "the full cache; random, gold evidence and droppers beside it",
        "threshold": f"KL at {BAR_SHARE} % <= {BAR} nats of {' and '.join(JUDGED)}",
        "passed": bool(judged) and all(kl is not None and kl <= BAR for kl in judged.values()),
        "judged": judged,
        "wording": wording,
        "split": split,
        "answer_tokens": answer_tokens,
        "encoder": encoder,
        **{name: value for name, value in first.items() if name not in {"contracts", "questions"}},
        "models": results,
        **common.conditions(models[0], seed),
    }
    if plot is not None:
        from zerolayer.bench.quality_plot import draw

        draw(results, plot)
    return report(result, as_json, "KL to the full cache (nats), top-1, F1", COLUMNS, _rows(results, shares))


def _methods(names: Sequence[str]) -> list[str]:
    from zerolayer.bench.quality_selection import METHODS

    known = [*METHODS, *ENGINE_ROWS]
    for name in names:
        if name not in known:
            raise UnknownNameError("method", name, known)
    return list(names) or known


def _of_model(
    settings: Settings,
    data: Path,
    split: str,
    contracts: int,
    turns: int,
    tokens: tuple[int, int],
    shares: Sequence[int],
    methods: Sequence[str],
    wording: Any,
    records: Path | None,
) -> dict[str, Any]:
    """All contracts with one model; its summary, and which contracts they were."""
    from zerolayer.bench.quality_cases import choose_cases
    from zerolayer.bench.quality_metrics import summary
    from zerolayer.engines.hf.loading import load_encoder, load_engine
    from zerolayer.learning.labelled import labelled_contracts

    labelled = labelled_contracts(data, split)
    engine, encoder = load_engine(settings), load_encoder(settings)
    if tokens[1] + 512 > engine.window:
        raise UsageError(
            f"--tokens {tokens[0]} {tokens[1]}: with a question they may exceed the window of {settings.model}, "
            f"{engine.window} tokens; at most {engine.window - 512} are allowed"
        )
    cases = choose_cases(
        labelled, engine.tokenizer, settings.block_tokens, contracts, turns, tokens, wording, settings.seed
    )
    scores: list[Score] = []

    def listen(score: Score) -> None:
        scores.append(score)
        if records is not None:
            with records.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(dataclasses.asdict(score)) + "\n")

    for number, case in enumerate(cases, start=1):
        measure(case, engine, encoder, settings, methods, shares, listen)
        note(f"{settings.model}: {number} of {len(cases)} contracts")
    return {
        **summary(scores, settings.seed),
        "questions": sum(len(case.questions) for case in cases),
        "contracts": [{"name": case.name, "tokens": len(case.stream.token_ids)} for case in cases],
    }


COLUMNS = ("model", "method", "in sight", "KL", "95 % interval", "top-1", "F1")


def _rows(results: dict[str, dict[str, Any]], shares: Sequence[int]) -> list[list[object]]:
    rows: list[list[object]] = []
    for model, result in results.items():
        for share in ("100", *map(str, sorted(shares))):
            of_share = [method for method, by_share in result["kl"].items() if share in by_share]
            for method in sorted(of_share, key=lambda name: result["kl"][name][share]):
                low, high = result["kl_interval"][method][share]
                rows.append(
                    [
                        model,
                        method,
                        f"{share} %",
                        result["kl"][method][share],
                        f"{low:.2f} to {high:.2f}",
                        result["top1"][method][share],
                        result["f1"][method][share],
                    ]
                )
    return rows
