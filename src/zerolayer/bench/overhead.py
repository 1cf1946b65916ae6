"""`zerolayer bench overhead`: the share of a decode step that perception, decision and execution take."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from zerolayer.bench import common
from zerolayer.bench.common import middle, model_option, report, seed_option
from zerolayer.bench.synthetic import as_document, long_text
from zerolayer.cli.options import json_option
from zerolayer.cli.output import progress
from zerolayer.config import load_settings
from zerolayer.core import Plan, TurnMetrics
from zerolayer.decision.planner import plan_fault
from zerolayer.runtime.answering import FAULT_TOKENS
from zerolayer.runtime.snapshot import SNAPSHOT_NAME, save_snapshot
from zerolayer.session import Session, session_of

THRESHOLD = 0.03
HEATMAP_THRESHOLD = 0.01
"""Of the update of the heat map, as if every step were a turn of its own."""


def measure(session: Session, steps: int) -> dict[str, Any]:
    """Seconds of a decode step, and of what the scheduler adds to one, timed apart in the same run.

    Perception: adding up the attention of all layers, and every 16 tokens scoring all blocks against the step's
    queries. Decision: planning a fault. Execution: loading that block. Both are charged once every 16 tokens, more
    often than they happen; so is `heat`, a turn's whole update of the heat map. `snapshot` and `pin` (two blocks
    pinned and unpinned) come after an answer, once a turn: they are reported and charged to no step.
    """
    scheduler, engine = session.scheduler, session.engine
    scheduler.turn(
        session.question_ids("When does the term end?"), session.signals("When does the term end?")
    )
    arena, working_set = scheduler.arena, scheduler.working_set
    position = working_set.next_position
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
        "look": _time(lambda: working_set.bounds.score(engine.unrotated(queries, position)), steps),
        "plan": _time(lambda: plan_fault(scheduler.policy, scheduler.table, absent[0], 1), steps),
        "load": _load_seconds(session, absent[:steps]),
        "heat": _time(lambda: _update_heat(session, prefix), steps),
        "snapshot": _snapshot_seconds(session, steps),
        "pin": _time(partial(_pin_and_unpin, session), steps),
    }
    charged = seconds["look"] + seconds["plan"] + seconds["load"] + seconds["heat"]
    extra = seconds["observe"] + charged / FAULT_TOKENS
    return {"step_s": middle(step), "extra_s": extra, "blocks": len(scheduler.table), **seconds}


def _time(act: Callable[[], object], repetitions: int) -> float:
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - started)
    return middle(seconds)


def _update_heat(session: Session, prefix: int) -> None:
    """All that a turn does for the heat map: what its question and its answer attended to, and its end."""
    heat, arena, mass = session.scheduler.heat, session.scheduler.arena, session.engine.mass
    for _ in range(2):
        heat.observe(mass[:, :, :prefix].mean(dim=(0, 1)).cpu().numpy(), arena.in_sight * arena.block_tokens)
    heat.end_turn()
    heat.hottest_slots(arena.occupant, session.settings.pin_blocks)


def _pin_and_unpin(session: Session) -> None:
    for slots in ((0, 1), ()):
        session.scheduler.working_set.keep_near(slots)


def _snapshot_seconds(session: Session, repetitions: int) -> float:
    """Saving what other processes may see of the session."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / SNAPSHOT_NAME
        save = partial(save_snapshot, path, session.scheduler, session.stream.blocks, TurnMetrics())
        return _time(save, repetitions)


def _load_seconds(session: Session, blocks: list[int]) -> float:
    """Reading, decoding and rotating one block into a free slot through the executor."""
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

    Exits with 3 when that is more than 3 % of the step, or a turn's update of the heat map alone 1 %.
    """
    from zerolayer.engines.hf.loading import load_engine

    settings = load_settings(model=model, seed=seed, device_budget="25%", encoder="none")
    engine = load_engine(settings)
    document = as_document(long_text(engine.tokenizer, tokens, seed), f"synthetic, seed {seed}")
    with session_of([document], engine, settings) as session:
        with progress("reading") as update:
            session.read(lambda state: update(state.tokens_done, state.tokens_total))
        row = measure(session, steps)
    share, heat_share = row["extra_s"] / row["step_s"], row["heat"] / row["step_s"]
    result = {
        "bench": "overhead",
        "baseline": "the whole decode step in the same run",
        "threshold": f"share_of_decode_step <= {THRESHOLD}, heatmap_share_of_decode_step < {HEATMAP_THRESHOLD}",
        "passed": share <= THRESHOLD and heat_share < HEATMAP_THRESHOLD,
        "share_of_decode_step": share,
        "heatmap_share_of_decode_step": heat_share,
        **row,
        **common.conditions(model, seed),
    }
    shown = ("step_s", "observe", "look", "plan", "load", "heat", "extra_s", "snapshot", "pin")
    rows = [[name, f"{1e3 * row[name]:.3f}"] for name in shown]
    return report(result, as_json, f"Overhead: {100 * share:.2f} % of a decode step", ("what", "ms"), rows)
