"""`zerolayer bench decode`: seconds per token against plain Hugging Face and llama.cpp; `--profile`."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import Pair, model_option, seed_option, threads_option
from zerolayer.cli.options import json_option
from zerolayer.core import BLOCK_TOKENS, IntArray

COPYING = (
    "aten::cat",
    "aten::index_select",
    "aten::gather",
    "aten::index",
    "aten::repeat",
    "aten::repeat_interleave",
)
"""Operators that would gather or concatenate."""


def fill(pair: Pair, ids: IntArray, room: int, chunk: int) -> Any:
    """Read `ids` once, with the engine; the plain model's cache gets copies of the arena's rows. Returns it."""
    import torch

    from zerolayer.execution.rotary import separated

    engine = pair.engine
    engine.make_arena(common.slots_for(len(ids) + room), BLOCK_TOKENS)
    common.prefill(engine, ids, chunk)
    cache = common.new_cache(pair.plain)
    with torch.inference_mode():
        for layer, (keys, values) in enumerate(zip(engine.arena.keys, engine.arena.values, strict=True)):
            plain_keys = separated(keys[None, :, : len(ids)])
            cache.update(plain_keys, values[None, :, : len(ids)].clone(), layer)
    return cache


def step_ours(pair: Pair, token: int) -> Any:
    """One decode step, observed as in an answer; returns the logits."""
    return pair.engine.append([token], pair.engine.arena.rows, observe=True, logits=True)[0]


def measure(pair: Pair, context: int, steps: int, chunk: int, seed: int) -> dict[str, Any]:
    """Median seconds of a step after `context` tokens; both step in turn, over the same tokens."""
    ids = common.random_ids(context + 1, pair.plain.config.vocab_size, seed)
    cache = fill(pair, ids[:-1], steps + 3, chunk)
    for _ in range(2):
        step_ours(pair, int(ids[-1]))
        common.plain_forward(pair.plain, ids[-1:], cache)
    seconds = common.interleaved(
        {
            "zerolayer": lambda: step_ours(pair, int(ids[-1])),
            "plain": lambda: common.plain_forward(pair.plain, ids[-1:], cache),
        },
        steps,
    )
    ours, plain = common.middle(seconds["zerolayer"]), common.middle(seconds["plain"])
    return {
        "context": context,
        "s_per_token": ours,
        "plain_s_per_token": plain,
        "ratio": plain / ours,
        "best_s_per_token": min(seconds["zerolayer"]),
        "best_plain_s_per_token": min(seconds["plain"]),
    }


def llama_cpp(
    gguf: Path | None, threads: int, contexts: tuple[int, ...], steps: int, seed: int
) -> dict[str, Any]:
    """Seconds per token of llama.cpp by context, or why it was not measured."""
    if importlib.util.find_spec("llama_cpp") is None:
        return {"status": "skipped", "reason": "llama-cpp-python is not installed"}
    if gguf is None:
        return {"status": "skipped", "reason": "no GGUF given; pass --gguf FILE of the same model"}
    from llama_cpp import Llama

    rows = []
    for context in contexts:
        llama = Llama(str(gguf), n_ctx=context + steps + 8, n_threads=threads, n_batch=512, verbose=False)
        ids = common.random_ids(context, llama.n_vocab(), seed).tolist()
        llama.eval(ids)
        seconds = common.interleaved({"llama": partial(llama.eval, ids[:1])}, steps)
        rows.append({"context": context, "s_per_token": common.middle(seconds["llama"])})
        llama.close()
    return {"status": "measured", "file": gguf.name, "rows": rows}


def profile(pair: Pair, context: int, steps: int, chunk: int, seed: int) -> dict[str, Any]:
    """Operators of `steps` decode steps after `context` tokens: calls a step, and what the allocator was asked for."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    ids = common.random_ids(context, pair.plain.config.vocab_size, seed)
    fill(pair, ids, steps + 2, chunk)
    step_ours(pair, int(ids[-1]))
    with torch_profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=False) as run:
        for _ in range(steps):
            step_ours(pair, int(ids[-1]))
    kept = [max(0, int(event.self_cpu_memory_usage)) for event in run.events() or []]
    averages = sorted(run.key_averages(), key=lambda entry: -entry.self_cpu_time_total)
    return {
        "context": context,
        "copying_calls_per_step": {e.key: e.count / steps for e in averages if e.key in COPYING},
        "largest_allocation_bytes": max(kept, default=0),
        "allocated_bytes_per_step": sum(kept) / steps,
        "operators": [
            {
                "name": entry.key,
                "calls_per_step": entry.count / steps,
                "self_ms_per_step": entry.self_cpu_time_total / steps / 1e3,
                "allocated_bytes_per_step": max(0, entry.self_cpu_memory_usage) / steps,
            }
            for entry in averages[:14]
        ],
    }


def _decode(pair: Pair, contexts: tuple[int, ...], steps: int, chunk: int, seed: int) -> list[dict[str, Any]]:
    return [measure(pair, context, steps, chunk, seed) for context in contexts]


@click.command()
@model_option
@seed_option
@threads_option
@click.option(
    "--context",
    "contexts",
    multiple=True,
    type=int,
    default=(1024, 4096, 6144),
    show_default=True,
    help="Tokens before the step.",
)
@click.option("--steps", default=24, show_default=True, help="Steps of each, interleaved.")
@click.option("--chunk-tokens", default=512, show_default=True, help="Tokens prefilled at a time.")
@click.option(
    "--gguf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same model for llama.cpp.",
)
@click.option("--profile", "as_profile", is_flag=True, help="Show the operators of a step instead.")
@json_option
def command(
    model: str,
    seed: int,
    threads: int | None,
    contexts: tuple[int, ...],
    steps: int,
    chunk_tokens: int,
    gguf: Path | None,
    as_profile: bool,
    as_json: bool,
) -> int:
    """Compare seconds per token with plain Hugging Face, and with llama.cpp where it is installed.

    Exits with 3 when a step is slower than the plain one at any context.
    """
    pair = common.load_pair(model, threads)
    state = common.conditions(model, seed)
    if as_profile:
        return _profile(pair, contexts, steps, chunk_tokens, seed, state, as_json)
    rows = _decode(pair, contexts, steps, chunk_tokens, seed)
    ratio = min(row["ratio"] for row in rows)
    other = llama_cpp(gguf, state["threads"], contexts, steps, seed)
    result = {
        "bench": "decode",
        "baseline": "transformers decode step, DynamicCache, sdpa",
        "threshold": "ratio of medians >= 1 at every context",
        "passed": ratio >= 1,
        "ratio": ratio,
        "rows": rows,
        "llama_cpp": other,
        **state,
    }
    columns = ("context", "zerolayer s/token", "plain s/token", "ratio")
    keys = ("context", "s_per_token", "plain_s_per_token", "ratio")
    code = common.report(result, as_json, "Decode", columns, [[row[key] for key in keys] for row in rows])
    if not as_json:
        click.echo(f"llama.cpp: {other.get('reason') or other['rows']}")
    return code


def _profile(
    pair: Pair,
    contexts: tuple[int, ...],
    steps: int,
    chunk: int,
    seed: int,
    state: dict[str, Any],
    as_json: bool,
) -> int:
    runs = [profile(pair, context, steps, chunk, seed) for context in contexts]
    sizes = [(run["largest_allocation_bytes"], run["allocated_bytes_per_step"]) for run in runs]
    copying = [run["copying_calls_per_step"] for run in runs]
    result = {
        "bench": "decode-profile",
        "baseline": "the same step at the shortest context",
        "threshold": "bytes allocated and copying calls a step are the same at every context",
        "passed": len(set(sizes)) == 1 and all(calls == copying[0] for calls in copying),
        "rows": runs,
        **state,
    }
    columns = ("context", "operator", "calls/step", "self ms/step", "allocated bytes/step")
    rows = [[run["context"], *operator.values()] for run in runs for operator in run["operators"]]
    return common.report(result, as_json, "Operators of a decode step", columns, rows)
