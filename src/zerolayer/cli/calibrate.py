"""`zerolayer calibrate`: fit persistence on your own documents, and say what that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerolayer.cli.options import files_argument, json_option
from zerolayer.cli.output import emit_json, note, progress, table
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from zerolayer.decision.persistence import PersistenceModel
    from zerolayer.learning.calibrate_scores import Scores
    from zerolayer.learning.calibrate_sessions import Snapshots

MISSED = 3


@click.command()
@files_argument
@click.option("--language", type=click.Choice(["en", "zh"]), help="Of the documents [default: as they look].")
@click.option("--model", default="smollm2", show_default=True, help="Whose tokenizer cuts the blocks.")
@click.option("--seed", default=0, show_default=True, help="Seed of the order of questions.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write [default: in the user's cache, where every session looks].",
)
@json_option
def calibrate(
    files: tuple[Path, ...], language: str | None, model: str, seed: int, output: Path | None, as_json: bool
) -> int:
    """Refit persistence on FILES: questions from clause numbers, definitions and cross-references.

    No language model is run. Two thirds of the documents (or, of one or two, of their clauses) are fitted on,
    the rest is reported on. The fit is kept, and grades every later session in that language, if it predicts
    the rest better than what graded before; else nothing is written and the exit code is 3.
    """
    from zerolayer.documents import read_document
    from zerolayer.learning.calibrate import fit
    from zerolayer.learning.calibrate_documents import split_documents
    from zerolayer.learning.calibrate_files import keep_model, persistence_for, user_file
    from zerolayer.learning.calibrate_scores import scores
    from zerolayer.learning.calibrate_sessions import snapshots
    from zerolayer.perception.block_features import language_of

    spoken = language or language_of(read_document(files[0]).text)
    with progress("asking", "documents") as update:
        parts = split_documents(files, tokenizer_of(model), seed, update)
    train, test = snapshots(parts.fit), snapshots(parts.report)
    if not len(test):
        raise UsageError(
            f"{len(files)} documents ask too few questions of themselves to hold some back for the report; "
            "give more, or longer ones with numbered clauses or defined terms"
        )
    named = ", ".join(path.name for path in files)
    fitted = fit(train, spoken, "", f"anchor questions on {named}", seed=seed)
    known = persistence_for("", spoken)
    before, after = _before(known, test), fitted.calibrated(fitted.log_odds(test.features))
    old, new = scores(before, test.used), scores(after, test.used)
    better = (new.brier_skill or 0.0) > (old.brier_skill or 0.0)
    recipe = f"zerolayer calibrate --language {spoken} --model {model} --seed {seed} {named}"
    written = keep_model(fitted, recipe, output or user_file()) if better else None
    result: dict[str, Any] = {
        "language": spoken,
        "documents": [str(path) for path in files],
        "fitted_on": len(train),
        "reported_on": len(test),
        "before": {"persistence": _name(known), **old.to_json()},
        "after": new.to_json(),
        "kept": better,
        "file": written,
    }
    if as_json:
        emit_json(result)
    else:
        _print(result, old, new)
    return 0 if better else MISSED


def _before(known: PersistenceModel | None, test: Snapshots) -> Any:
    return test.hand_set if known is None else known.calibrated(known.log_odds(test.features))


def _name(known: PersistenceModel | None) -> str:
    return "hand-set" if known is None else f"calibrated on {known.demand}"


def tokenizer_of(model: str) -> Any:
    """The tokenizer of a model, which is fetched first if need be. Raises ModelError, UnknownNameError."""
    from transformers import AutoTokenizer

    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.models import resolve_model

    directory = resolve_model(model, on_progress=note)
    with quiet_transformers():
        return AutoTokenizer.from_pretrained(directory)


def _print(result: dict[str, Any], old: Scores, new: Scores) -> None:
    columns = ("", "calibration error", "AUROC", "Brier skill", "base rate")
    rows = [
        [name, found.ece_mass, found.auroc, found.brier_skill, found.base_rate]
        for name, found in (("before", old), ("after", new))
    ]
    table(f"{result['language']}: {result['reported_on']:,} observations not fitted on", columns, rows)
    note(
        f"kept in {result['file']}"
        if result["kept"]
        else f"not kept: {result['before']['persistence']} predicts these documents better"
    )
