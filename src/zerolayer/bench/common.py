"""What the benches share: conditions, pairs of engine and plain model, interleaved timing, reports."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from zerolayer.core import BLOCK_TOKENS, IntArray

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine

MISSED = 3
"""Exit code of a bench that ran but missed its threshold."""

model_option = click.option("--model", default="smollm2", show_default=True, help="Model name or directory.")
seed_option = click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
threads_option = click.option(
    "--threads", type=click.IntRange(1), help="Threads of PyTorch [default: its own]."
)


def commit() -> str:
    """Short commit of the checkout that runs, `+` behind it when files differ; `unknown` outside of one."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "--short", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(directory: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def processor() -> str:
    """The processor's name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def conditions(model: str, seed: int, device: str = "cpu") -> dict[str, Any]:
    """What a number needs beside it: machine, threads, versions, load, model, seed, commit."""
    import torch
    import transformers

    return {
        "machine": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "device": device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": model,
        "seed": seed,
        "commit": commit(),
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """An engine and a plain Hugging Face instance of the same weights (attention `sdpa`, `DynamicCache`)."""

    engine: HFEngine
    plain: Any


def load_pair(model: str, threads: int | None = None) -> Pair:
    """Load both instances from one directory on the CPU. Raises ModelError, UnknownNameError."""
    import torch
    from transformers import AutoModelForCausalLM

    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.engines.hf.models import resolve_model

    if threads:
        torch.set_num_threads(threads)
    path = resolve_model(model)
    with quiet_transformers():
        engine = HFEngine.load(path, "cpu", model)
        plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa")
    return Pair(engine, plain.eval())


def random_ids(count: int, vocabulary: int, seed: int) -> IntArray:
    """`[count]` token ids, uniform over the vocabulary: time does not depend on which tokens they are."""
    ids: IntArray = np.random.default_rng(seed).integers(3, vocabulary, count)
    return ids


contracts_option = click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("../shared/data/cuad"),
    show_default=True,
    help="Folder with questions.jsonl and contracts/.",
)


def slots_for(tokens: int) -> int:
    """Slots that hold `tokens`: a budget of 100 %."""
    return -(-tokens // BLOCK_TOKENS)


def prefill(engine: HFEngine, ids: IntArray, chunk: int) -> Any:
    """Read `ids` into the empty arena, `chunk` tokens at a time; returns the last token's logits."""
    engine.arena.free(slice(None))
    engine.arena.in_sight = engine.arena.rows = 0
    logits = None
    for first in range(0, len(ids), chunk):
        last = first + chunk >= len(ids)
        logits, _ = engine.append(ids[first : first + chunk], first, logits=last)
    return logits


def plain_forward(plain: Any, ids: IntArray, cache: Any) -> Any:
    """Plain Hugging Face: `ids` after what `cache` holds; returns the last token's logits `[vocabulary]`."""
    import torch

    with torch.inference_mode():
        return plain(
            input_ids=torch.as_tensor(ids)[None], cache=cache, use_cache=True, logits_to_keep=1
        ).logits[0, -1]


def new_cache(plain: Any) -> Any:
    """An empty `DynamicCache` of the model."""
    from transformers import DynamicCache

    return DynamicCache(config=plain.config)


def interleaved(subjects: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each subject, run in turn so that another process's load falls on all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    for repetition in range(repetitions):
        # Every other round runs backwards: no subject always follows the same one.
        for name in names if repetition % 2 == 0 else reversed(names):
            started = time.perf_counter()
            subjects[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def middle(values: Sequence[float]) -> float:
    """The median, as a plain float."""
    return float(median(values))


def bootstrap_interval(
    values: npt.ArrayLike, groups: Sequence[int], seed: int, resamples: int = 1000
) -> tuple[float, float]:
    """95 % interval of the mean of `values`, whole `groups` drawn with replacement (B. Efron, Ann. Stat. 7, 1979)."""
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    sums, counts = np.bincount(group, weights=values), np.bincount(group)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def report(
    result: dict[str, Any],
    as_json: bool,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> int:
    """Print a table, or with `as_json` the result as the last line; returns the exit code (`passed` decides)."""
    from zerolayer.cli.output import emit_json, note, table

    if as_json:
        emit_json(result)
    else:
        table(title, columns, rows)
        where = ("machine", "threads", "load_average", "model", "seed", "commit")
        note(", ".join(f"{name} {result[name]}" for name in where))
    if not result["passed"]:
        note(f"missed: {result['threshold']}")
        return MISSED
    return 0
