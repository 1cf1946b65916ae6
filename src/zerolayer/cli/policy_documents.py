"""`zerolayer policy eval --documents`: every policy for documents on recorded sessions, at three budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.cli.output import emit_json, note, progress, table
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.learning.calibrate_sessions import Recorded

MISSED = 3

_COLUMNS = (
    ("coverage", "coverage"),
    ("utilisation", "effective_context_utilization"),
    ("load ratio", "load_ratio"),
    ("wasted loads", "wasted_loads"),
    ("waste@95 %", "waste_at_coverage"),
    ("wrong evictions", "wrong_eviction_share"),
)


def evaluate_sessions(
    source: Path, split: str, names: Sequence[str], model: str, seed: int, as_json: bool
) -> int:
    """Run the evaluation and print it; the exit code."""
    from zerolayer.decision.registry import DEFAULT_POLICY, POLICIES, create_policy
    from zerolayer.learning.document_eval import BOUNDS, evaluate_documents
    from zerolayer.learning.machine import machine_costs

    chosen = list(dict.fromkeys([*names, DEFAULT_POLICY])) if names else list(POLICIES)
    for name in chosen:
        create_policy(name)  # a wrong name is told before minutes are spent on the others
    with progress("reading", "documents") as update:
        sessions, demand = read_sessions(source, split, model, seed, update)
    with progress("replaying", "policies") as update:
        found = evaluate_documents(
            sessions, (*chosen, *BOUNDS), seed=seed, on_progress=update, costs=machine_costs()
        )
    result = {"documents": str(source), "demand": demand, **found, "meets_bar": meets_bar(found["default"])}
    if as_json:
        emit_json(result)
    else:
        _print(result)
    return 0 if result["meets_bar"] else MISSED


def read_sessions(
    source: Path, split: str, model: str, seed: int, update: Any = None
) -> tuple[list[Recorded], str]:
    """The sessions of `source`, and what labelled their use.

    A folder of labelled contracts gives their gold evidence; a demand trace, or a folder of them, what was recorded
    (with the features beside it in `<name>.npy`, where there are any). Raises UsageError or TraceError.
    """
    from zerolayer.cli.calibrate import tokenizer_of
    from zerolayer.learning.calibrate_documents import labelled_sessions
    from zerolayer.learning.calibrate_record import recorded_in
    from zerolayer.learning.labelled import labelled_contracts

    if (source / "questions.jsonl").is_file():
        contracts = labelled_contracts(source, split)
        return labelled_sessions(
            contracts, tokenizer_of(model), seed, update
        ), f"gold evidence, {split} split"
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    if not files:
        raise UsageError(
            f"{source} has neither questions.jsonl with contracts/ nor a recorded demand trace (*.jsonl)"
        )
    sessions = [recorded_in(path) for path in files]
    return sessions, "; ".join(sorted({session.trace.labelled_by for session in sessions}))


def meets_bar(default: dict[str, Any]) -> bool:
    """Whether the default keeps both bars at every budget."""
    rows = [row for row in default.values() if isinstance(row, dict)]
    return all(row["meets_load_ratio"] and row["meets_wrong_evictions"] for row in rows)


def _print(result: dict[str, Any]) -> None:
    budgets = list(next(iter(result["policies"].values())))
    for budget in budgets:
        rows = [
            [name, *(_shown(of[budget], key) for _, key in _COLUMNS)]
            for name, of in result["policies"].items()
        ]
        title = f"{budget} of the blocks on the device, {result['sessions']} sessions of {result['demand']} (simulated)"
        table(title, ("policy", *(column for column, _ in _COLUMNS)), rows)
    note("in brackets: 95 % bootstrap intervals over sessions; order-blind and optimal have seen the session")


def _shown(row: dict[str, Any], key: str) -> str:
    if row[key] is None:
        return "-"
    low, high = row["interval"].get(key, (None, None))
    return f"{row[key]:.3f}" if low is None else f"{row[key]:.3f} [{low:.3f}, {high:.3f}]"
