"""`zerolayer bench overhead`: the share of a decode step that perception, decision and execution take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from zerolayer.answering import FAULT_TOKENS
from zerolayer.bench import common
from zerolayer.bench.common import middle, model_option, report, seed_option
from zerolayer.bench.synthetic import as_document, long_text
from zerolayer.cli.options import json_option
from zerolayer.cli.output import progress
from zerolayer.config import load_settings
from zerolayer.decision.planner import plan_fault
from zerolayer.session import Session, session_of

THRESHOLD = 0.03


def measure(session: Session, steps: int) -> dict[str, Any]:
    """Seconds of a decode step, and of what the scheduler adds to one, timed apart in the same run.

    Perception: adding up the attention of all layers, and every 16 tokens scoring all blocks against the step's
    queries. Decision: planning a fault. Execution: loading that block. Both are charged once every 16 tokens, more
    often than they happen.
    """
    scheduler, engine = session.scheduler, session.engine
    scheduler.turn(
        session.question_ids("When does the term end?"), session.signals("When does the term end?")
    )
    arena, position = scheduler.arena, scheduler.working_set.next_position
    engine.append(session.question_ids("Who pays?"), position)
    step: list[float] = []
    queries: list[Any] = []
    for number in range(steps):
        started = time.perf_counter()
        _, queries = engine.append(
            [100], position + number, observe=True, collect=number == steps - 1, logits=True
        )
        step.append(time.perf_counter() - started)
    prefix = arena.rows
    weights = engine.mass.new_ones(engine.geometry.layers, engine.heads, prefix)

    def add_up() -> None:
        engine.mass[:, :, :prefix] += weights

    arena.drop_tail()
    absent = [int(block) for block in np.flatnonzero(~scheduler.table.resident)]
    seconds = {
        "observe": _time(add_up, steps),
        "look": _time(lambda: scheduler.working_set.bounds.score(engine.unrotated(queries, position)), steps),
        "plan": _time(lambda: plan_fault(scheduler.policy, scheduler.table, absent[0], 1), steps),
        "load": _load_seconds(session, absent[:steps]),
    }
    extra = seconds["observe"] + (seconds["look"] + seconds["plan"] + seconds["load"]) / FAULT_TOKENS
    return {"step_s": middle(step), "extra_s": extra, "blocks": len(scheduler.table), **seconds}


def _time(act: Callable[[], object], repetitions: int) -> float:
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - started)
    return middle(seconds)


def _load_seconds(session: Session, blocks: list[int]) -> float:
    """Reading, decoding and rotating one block into a free slot through the executor."""
    from zerolayer.core import Plan

    ws = session.scheduler.working_set
    seen = ws.arena.occupant[: ws.arena.in_sight].tolist()
    seconds = []
    for block in blocks:
        started = time.perf_counter()
        ws.bring(Plan(load=(block,)), seen, reserve=0)
        seconds.append(time.perf_counter() - started)
        ws.bring(Plan(evict=(block,)), seen, reserve=0)
    return middle(seconds)


@click.command()
@model_option
@seed_option
@click.option("--tokens", default=16384, show_default=True, help="Length of the document.")
@click.option("--steps", default=32, show_default=True)
@json_option
def command(model: str, seed: int, tokens: int, steps: int, as_json: bool) -> int:
    """Time a decode step, and apart from it everything that zerolayer adds to one.

    Exits with 3 when that is more than 3 % of the step.
    """
    from zerolayer.engines.hf.loading import load_engine

    settings = load_settings(model=model, seed=seed, device_budget="25%", encoder="none")
    engine = load_engine(settings)
    document = as_document(long_text(engine.tokenizer, tokens, seed), f"synthetic, seed {seed}")
    with session_of([document], engine, settings) as session:
        with progress("reading") as update:
            session.read(lambda state: update(state.tokens_done, state.tokens_total))
        row = measure(session, steps)
    share = row["extra_s"] / row["step_s"]
    result = {
        "bench": "overhead",
        "baseline": "the whole decode step in the same run",
        "threshold": f"share_of_decode_step <= {THRESHOLD}",
        "passed": share <= THRESHOLD,
        "share_of_decode_step": share,
        **row,
        **common.conditions(model, seed),
    }
    rows = [
        [name, f"{1e3 * row[name]:.3f}"] for name in ("step_s", "observe", "look", "plan", "load", "extra_s")
    ]
    return report(result, as_json, f"Overhead: {100 * share:.2f} % of a decode step", ("what", "ms"), rows)
