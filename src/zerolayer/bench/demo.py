"""The main job: a synthetic 127-page contract, 19 questions, bounded memory, nothing lost; four policies compared."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.bench.contract import ContractKey, ContractQuestion, write_contract
from zerolayer.cli.output import note, progress, table
from zerolayer.cli.reading import citation_line
from zerolayer.core import Answer, ReadProgress
from zerolayer.learning.recording import record_demand
from zerolayer.learning.replay import OPTIMAL, ReplayResult, replay_all
from zerolayer.learning.traces import write

if TYPE_CHECKING:
    from zerolayer.config import Settings
    from zerolayer.runtime.reading import ReadReport
    from zerolayer.scheduler import TurnResult
    from zerolayer.session import Session

POLICIES = ("graded", "static-window", "lru", OPTIMAL)
ANSWER_TOKENS = 48
"""A demo answer is one sentence; a small model rambles after it."""


def run_demo(settings: Settings, out: Path) -> dict[str, object]:
    """Write the contract into `out`, ask it, replay the recorded demand; returns what the last line prints."""
    from zerolayer.session import open_session

    out.mkdir(parents=True, exist_ok=True)
    path = out / "contract.pdf"
    key = write_contract(path)
    click.echo(f"{path}: {key.pages} pages, {len(key.questions)} questions\n")
    settings = settings.model_copy(update={"max_new_tokens": min(ANSWER_TOKENS, settings.max_new_tokens)})
    with open_session([path], settings) as session:
        report = _read(session)
        answered = [_ask(session, number, question) for number, question in enumerate(key.questions, start=1)]
        device_peak, full = session.scheduler.arena.nbytes, session.full_kv_bytes
        capacity = session.scheduler.settings.slots
        with progress("reference run (labels which blocks each answer used)", unit="question") as update:
            trace = record_demand(
                session, [result for _, result in answered], [q.question for q in key.questions],
                [_gold(session, question) for question in key.questions],
                lambda done: update(done, len(key.questions)),
            )  # fmt: skip
    write(trace, out / "demand.jsonl")
    results = replay_all(trace, capacity, POLICIES)
    ttft = {name: _ttft(result, answered) for name, result in results.items()}
    _print_table(results, ttft, device_peak, full)
    return _summary(key, answered, report, results, ttft, device_peak, full)


def _read(session: Session) -> ReadReport:
    with progress("reading") as update:

        def on_progress(state: ReadProgress) -> None:
            update(state.tokens_done, state.tokens_total)

        report = session.read(on_progress)
    note(
        f"{report.tokens_total:,} tokens: {report.tokens_prefilled:,} prefilled, "
        f"{report.tokens_from_storage:,} from storage, {report.seconds:.1f} s"
    )
    return report


def _ask(session: Session, number: int, question: ContractQuestion) -> tuple[Answer, TurnResult]:
    answer, result = session.answer(question.question)
    right = _right(question, answer)
    click.echo(f"{number:2}. {question.question}")
    click.echo(f"    {' '.join(answer.text.split())}")
    for citation in answer.citations:
        click.echo(f"    {citation_line(citation, name_document=False)}")
    pages = " and ".join(f"p. {page}" for page in question.pages)
    click.echo(f"    expected: {question.answer} ({pages}): {'right page' if right else 'wrong page'}\n")
    sys.stdout.flush()
    return answer, result


def _right(question: ContractQuestion, answer: Answer) -> bool:
    return any(citation.page in question.pages for citation in answer.citations)


def _gold(session: Session, question: ContractQuestion) -> list[int]:
    """Blocks on the question's pages that hold its answer; all blocks of these pages if line ends split it."""
    stream = session.stream
    on_pages = [
        b for b in stream.blocks if b.page_last >= min(question.pages) and b.page_first in question.pages
    ]
    for page in question.pages:
        place = next(p for p in stream.documents[0].pages if p.number == page)
        start = stream.text.find(question.answer, place.char_start, place.char_end)
        if start >= 0:
            end = start + len(question.answer)
            return [b.index for b in stream.blocks if b.char_start < end and b.char_end > start]
    return [b.index for b in on_pages]


def _ttft(result: ReplayResult, answered: Sequence[tuple[Answer, TurnResult]]) -> float:
    """Simulated time to first token: what this run's question pass and loads took, times the policy's loads."""
    metrics = [answer.metrics for answer, _ in answered]
    question = statistics.median(m.ttft_s - m.recall_s - m.knit_s for m in metrics)
    moved = sum(m.recalled_blocks for m in metrics)
    per_load = sum(m.recall_s for m in metrics) / max(1, moved)
    knit = statistics.median(m.knit_s for m in metrics) if result.policy == metrics[0].policy else 0.0
    return question + knit + per_load * result.loads / max(1, result.turns)


def _print_table(
    results: dict[str, ReplayResult], ttft: dict[str, float], device_peak: int, full: int
) -> None:
    rows = [
        [
            name,
            f"{100 * r.wasted_loads:.1f} %",
            f"{100 * r.coverage:.1f} %",
            str(r.discarded_tokens),
            str(r.wrong_evictions),
            f"{device_peak / 2**20:.0f} of {full / 2**20:.0f} MiB",
            f"{ttft[name]:.2f} s",
        ]
        for name, r in results.items()
    ]
    columns = [
        "policy",
        "wasted loads",
        "coverage",
        "discarded tokens",
        "wrong evictions",
        "device KV",
        "first token*",
    ]
    table("All policies replayed on the demand recorded in this run (simulated)", columns, rows)
    click.echo("* simulated from this run's own load and question times\n")


def _summary(
    key: ContractKey,
    answered: Sequence[tuple[Answer, TurnResult]],
    report: ReadReport,
    results: dict[str, ReplayResult],
    ttft: dict[str, float],
    device_peak: int,
    full: int,
) -> dict[str, Any]:
    answers = [answer for answer, _ in answered]
    pairs = list(zip(key.questions, answers, strict=True))
    return {
        "questions": len(key.questions),
        "pages": key.pages,
        "right_page": sum(_right(question, answer) for question, answer in pairs),
        "right_first_page": sum(bool(a.citations) and a.citations[0].page in q.pages for q, a in pairs),
        "answers_with_a_page": sum(bool(answer.citations) for answer in answers),
        "document_tokens": report.tokens_total,
        "prefilled_document_tokens": report.tokens_prefilled,
        "read_s": round(report.seconds, 2),
        "device_peak_bytes": device_peak,
        "full_kv_bytes": full,
        "discarded_tokens": max(answer.metrics.discarded_tokens for answer in answers),
        "recomputed_tokens": sum(answer.metrics.recomputed_tokens for answer in answers),
        "knit_tokens": sum(answer.metrics.knit_tokens for answer in answers),
        "ttft_s": round(statistics.median(answer.metrics.ttft_s for answer in answers), 3),
        "policies": {name: {**r.to_json(), "ttft_s": round(ttft[name], 3)} for name, r in results.items()},
        "answers": [
            {
                "question": q.question,
                "answer": a.text,
                "expected": q.answer,
                "pages": list(q.pages),
                "cited": [asdict(citation) for citation in a.citations],
            }
            for q, a in pairs
        ],
    }
