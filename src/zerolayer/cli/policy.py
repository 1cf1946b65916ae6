"""`zerolayer policy`: list policies, compare them on a trace, fit the learned one, show what is shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, progress, table
from zerolayer.cli.policy_train import train
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.learning.request_eval import Evaluation
    from zerolayer.learning.requests import RequestTrace

MISSED = 3

trace_option = click.option(
    "--trace",
    "trace_file",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A request trace, zerolayer's or of a source that `trace convert` knows.",
)


@click.group()
def policy() -> None:
    """List and compare policies; fit the learned one."""


policy.add_command(train)


@policy.command("list")
@json_option
def list_policies(as_json: bool) -> None:
    """Every policy by name: for documents with questions, and for request streams."""
    from zerolayer.decision.registry import POLICIES
    from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, REQUEST_POLICIES

    rows = [(name, "documents", _summary(entry)) for name, entry in POLICIES.items()]
    rows += [(name, "requests", _summary(entry)) for name, entry in REQUEST_POLICIES.items()]
    if as_json:
        emit_json(
            {
                "policies": [dict(zip(("name", "for", "what"), row, strict=True)) for row in rows],
                "default_requests": DEFAULT_REQUEST_POLICY,
            }
        )
    else:
        table("", ("policy", "for", "what it does"), rows)


def _summary(entry: Any) -> str:
    return str(entry.__doc__ or "").partition("\n")[0]


@policy.command("show")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the learning curves of ppo to this PNG.",
)
@json_option
def show(plot: Path | None, as_json: bool) -> None:
    """The shipped models, imitation and ppo: what each was trained on, and the command that rebuilds it."""
    from zerolayer.decision.network import read_policy
    from zerolayer.decision.request_features import REQUEST_FEATURES
    from zerolayer.decision.request_model import shipped_model

    model, learned = shipped_model(), read_policy()
    found = {
        "trained_on": model.trained_on,
        "seed": model.seed,
        "command": model.command,
        "trees": len(model.trees.head),
        "classes": model.classes,
        "features": list(REQUEST_FEATURES),
    }
    window = learned.summary()
    if plot is not None:
        from zerolayer.cli.policy_plot import draw_curves

        note(f"wrote {draw_curves(learned.notes, plot)}")
    if as_json:
        emit_json({**found, "ppo": window})
    else:
        table("imitation", ("", ""), [(name, str(value)) for name, value in found.items()])
        table("ppo", ("", ""), [(name, str(value)) for name, value in window.items()])


@policy.command("fit")
@trace_option
@click.option("--seed", default=0, show_default=True, help="Seed of the sample and the trees.")
@click.option(
    "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write."
)
@json_option
def fit(trace_file: Path, seed: int, output: Path, as_json: bool) -> None:
    """Fit the imitation of the optimum on the first 60 % of a trace, and write it."""
    model = _fit(_requests(trace_file), trace_file, seed)
    output.write_text(json.dumps(model.to_json()) + "\n", encoding="utf-8")
    result = {"file": output, "trained_on": model.trained_on, "seed": seed, "trees": len(model.trees.head)}
    if as_json:
        emit_json(result)
    else:
        note(f"wrote {output}: {result['trees']} trees, seed {seed}")


@policy.command("eval")
@click.option("--trace", "trace_file", type=click.Path(exists=True, path_type=Path),
              help="A request trace, zerolayer's or of a source that `trace convert` knows.")  # fmt: skip
@click.option("--documents", type=click.Path(exists=True, path_type=Path),
              help="A folder of labelled contracts, a recorded demand trace, or a folder of such.")  # fmt: skip
@click.option("--split", default="test", show_default=True, help="Of the labelled contracts.")
@click.option(
    "--model", default="smollm2", show_default=True, help="Whose tokeniser cuts labelled contracts."
)
@click.option("--fit", "refit", is_flag=True, help="Fit on the first 60 % of the trace, report on the rest.")
@click.option(
    "--seed", default=0, show_default=True, help="Seed of --fit, of the questions' order, of intervals."
)
@click.option("--policy", "names", multiple=True, help="Policies to run [default: all].")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Processes.")
@json_option
def evaluate(
    trace_file: Path | None,
    documents: Path | None,
    split: str,
    model: str,
    refit: bool,
    seed: int,
    names: tuple[str, ...],
    jobs: int,
    as_json: bool,
) -> int:
    """Compare policies on a request trace, or with --documents on sessions of questions. Simulated.

    Documents, at 5, 10 and 25 % of their blocks: coverage, waste, loads over the optimum's, wrong evictions. Exit
    code 3: the default's load ratio is above 1.3 or over 1 % of its evictions are wrong.

    Requests: hit rates at 1, 2, 5 and 10 % of the trace's unique blocks, beside the offline optimum. On the trace
    that the shipped model was trained on, and with --fit, only the last 40 % of the requests are counted; any other
    trace is counted whole. Exit code 3: the default policy misses 60 % of the optimum at 1 or 2 %, or some simple
    policy beats it.
    """
    if (trace_file is None) == (documents is None):
        raise UsageError("give either --trace FILE or --documents PATH")
    if documents is not None:
        from zerolayer.cli.policy_documents import evaluate_sessions

        return evaluate_sessions(documents, split, names, model, seed, as_json)
    assert trace_file is not None
    return _evaluate_requests(trace_file, refit, seed, names, jobs, as_json)


def _evaluate_requests(
    trace_file: Path, refit: bool, seed: int, names: tuple[str, ...], jobs: int, as_json: bool
) -> int:
    from zerolayer.decision.request_model import shipped_model
    from zerolayer.decision.request_registry import (
        DEFAULT_REQUEST_POLICY,
        REQUEST_POLICIES,
        create_request_policy,
    )
    from zerolayer.learning.imitation_fit import trace_hash
    from zerolayer.learning.request_eval import evaluate as compare

    chosen = list(dict.fromkeys([*names, DEFAULT_REQUEST_POLICY])) if names else list(REQUEST_POLICIES)
    for name in chosen:
        create_request_policy(name, 1)
    requests = _requests(trace_file)
    model = _fit(requests, trace_file, seed) if refit else shipped_model()
    held_out = refit or trace_hash(requests) == model.trained_on
    with progress("simulating", "runs") as update:
        found = compare(requests, chosen, model, held_out, jobs, update)
    result = {
        "trace": str(trace_file),
        "policies": found.policies,
        "default": {"name": DEFAULT_REQUEST_POLICY, **found.policies[DEFAULT_REQUEST_POLICY]},
        "meets_bar": found.meets_bar(),
        "beaten_by": found.beaten_by(),
        "fitted_on_first_share": 0.6 if held_out else None,
        "requests": found.requests,
        "references": found.references,
        "unique_blocks": found.unique_blocks,
        "simulated": True,
    }
    if as_json:
        emit_json(result)
    else:
        _print(found)
    return 0 if found.meets_bar() else MISSED


@policy.command("scale")
@click.option(
    "--policy", "names", multiple=True, help="Whose decisions [default: the default for request streams]."
)
@click.option(
    "--blocks", multiple=True, type=click.IntRange(8), help="Resident blocks [default: 10^4, 10^5, 10^6]."
)
@click.option(
    "--references", default=50_000, show_default=True, type=click.IntRange(8), help="To time at each size."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the costs to this PNG.")
@json_option
def scale_command(
    names: tuple[str, ...], blocks: tuple[int, ...], references: int, plot: Path | None, as_json: bool
) -> None:
    """Decision cost per block against the number of resident blocks."""
    from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, create_request_policy
    from zerolayer.learning.request_eval import scale

    chosen = list(dict.fromkeys(names)) or [DEFAULT_REQUEST_POLICY]
    for name in chosen:
        create_request_policy(name, 1)
    found = {name: scale(name, blocks or (10_000, 100_000, 1_000_000), references) for name in chosen}
    if plot is not None:
        from zerolayer.cli.policy_plot import draw_scale

        note(f"wrote {draw_scale(found, plot)}")
    if as_json:
        emit_json({"policies": found})
        return
    for name, rows in found.items():
        table(name, list(rows[0]), [list(row.values()) for row in rows])


def _fit(requests: RequestTrace, trace_file: Path, seed: int) -> Any:
    from zerolayer.learning.imitation_fit import fit_imitation, trace_hash
    from zerolayer.learning.request_eval import FIT_SHARE

    note(f"fitting on the first {FIT_SHARE:.0%} of {trace_file.name}, seed {seed}")
    command = f"zerolayer policy fit --trace {trace_file.name} --seed {seed} --output imitation.json"
    return fit_imitation(requests.split(FIT_SHARE)[0], seed, command, trace_hash(requests))


def _requests(path: Path) -> RequestTrace:
    from zerolayer.learning.requests import RequestTrace
    from zerolayer.learning.trace_files import load_trace

    found = load_trace(path)
    if not isinstance(found, RequestTrace):
        raise UsageError(
            f"{path} is the demand of one document; policy takes request traces, for it: trace replay"
        )
    return found


def _print(found: Evaluation) -> None:
    sizes = list(next(iter(found.policies.values())))
    columns = ["policy", *(f"hits {size}" for size in sizes), *(f"of optimum {size}" for size in sizes)]
    rows = [
        [name, *(row[size]["hit_rate"] for size in sizes), *(row[size]["share_of_optimum"] for size in sizes)]
        for name, row in found.policies.items()
    ]
    counted = "the last 40 % of the requests" if found.fitted else "all requests"
    table(f"{counted}: {found.references:,} references, simulated", columns, rows)
