"""`zerolayer policy train`: train the window strategy on labelled documents and write its file."""

from __future__ import annotations

from pathlib import Path

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, progress, table


@click.command("train")
@click.option("--documents", "data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder with questions.jsonl and contracts/; its split `train` is used.")  # fmt: skip
@click.option(
    "--seeds", default=5, show_default=True, type=click.IntRange(1, 20), help="How many are trained."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="The first of them.")
@click.option(
    "--steps", default=24_000, show_default=True, type=click.IntRange(1), help="Turns a seed plays."
)
@click.option(
    "--preset", default="balanced", show_default=True, help="Whose reward weights are learned from."
)
@click.option("--model", default="smollm2", show_default=True, help="Whose tokeniser cuts the blocks.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("ppo.json"), show_default=True,
              help="The policy's file.")  # fmt: skip
@json_option
def train(
    data: Path, seeds: int, seed: int, steps: int, preset: str, model: str, output: Path, as_json: bool
) -> int:
    """Train by PPO on the gold evidence of labelled documents; the best seed by held-out sessions is kept.

    Minutes a seed on one CPU thread. Exits with 3 where no seed beats the default strategy; the file is written all
    the same, and says so.
    """
    from zerolayer.cli.calibrate import MISSED, tokenizer_of
    from zerolayer.decision.presets import get_preset
    from zerolayer.learning.calibrate_documents import labelled_sessions
    from zerolayer.learning.env import EnvSettings
    from zerolayer.learning.labelled import labelled_contracts
    from zerolayer.learning.machine import machine_costs
    from zerolayer.learning.ppo_export import export, train_seeds
    from zerolayer.learning.ppo_train import TrainSettings

    settings = TrainSettings(steps=steps, seed=seed)
    environment = EnvSettings(weights=get_preset(preset).weights, costs=machine_costs(), calibrated=True)
    with progress("reading", "documents") as update:
        sessions = labelled_sessions(labelled_contracts(data, "train"), tokenizer_of(model), 0, update)
    with progress("training", "turns") as update:
        candidates = train_seeds(sessions, settings, environment, range(seed, seed + seeds), update)
    command = (
        f"zerolayer policy train --documents {data} --seeds {seeds} --seed {seed} --steps {steps} "
        f"--preset {preset} --model {model}"
    )
    kept = export(candidates, sessions, output, command, settings, environment)
    before, best = kept.notes["default_score"], max(candidate.score for candidate in candidates)
    result = {
        "file": str(output),
        "sessions": len(sessions),
        "seed": kept.seed,
        "default_reward_per_turn": before,
        **{name: kept.notes[name] for name in ("scores", "score_spread", "training_seconds")},
        "simulated": True,
    }
    if as_json:
        emit_json(result)
    else:
        rows = [["default strategy", f"{before:.1f}"]]
        rows += [[f"seed {candidate.seed}", f"{candidate.score:.1f}"] for candidate in candidates]
        table("Mean reward of a turn on held-out sessions (simulated)", ("strategy", "reward"), rows)
        note(f"seed {kept.seed} kept in {output}")
    return 0 if best > before else MISSED
