"""`zerolayer bench prefill`: tokens per second of chunked prefill against plain Hugging Face."""

from __future__ import annotations

from typing import Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import Pair, model_option, seed_option, threads_option
from zerolayer.cli.options import json_option
from zerolayer.core import BLOCK_TOKENS


def measure(pair: Pair, tokens: int, chunk: int, repetitions: int, seed: int) -> dict[str, Any]:
    """Read `tokens` random tokens with both, in turn; rates are of the medians."""
    ids = common.random_ids(tokens, pair.plain.config.vocab_size, seed)
    pair.engine.make_arena(common.slots_for(tokens), BLOCK_TOKENS)
    seconds = common.interleaved(
        {
            "zerolayer": lambda: common.prefill(pair.engine, ids, chunk),
            "plain": lambda: common.plain_forward(pair.plain, ids, common.new_cache(pair.plain)),
        },
        repetitions,
    )
    ours, plain = common.middle(seconds["zerolayer"]), common.middle(seconds["plain"])
    return {
        "tokens": tokens,
        "tokens_per_s": tokens / ours,
        "plain_tokens_per_s": tokens / plain,
        "ratio": plain / ours,
        "ratio_of_best": min(seconds["plain"]) / min(seconds["zerolayer"]),
        "seconds": seconds,
    }


@click.command()
@model_option
@seed_option
@threads_option
@click.option(
    "--tokens", multiple=True, type=int, default=(2048, 6144), show_default=True, help="Prompt lengths."
)
@click.option("--chunk-tokens", default=512, show_default=True, help="Tokens prefilled at a time.")
@click.option("--repetitions", default=3, show_default=True, help="Runs of each, interleaved.")
@json_option
def command(
    model: str,
    seed: int,
    threads: int | None,
    tokens: tuple[int, ...],
    chunk_tokens: int,
    repetitions: int,
    as_json: bool,
) -> int:
    """Compare the prefill rate with one plain forward pass over the same tokens.

    Exits with 3 when it is lower at any length.
    """
    pair = common.load_pair(model, threads)
    state = common.conditions(model, seed)
    measure(pair, min(tokens[0], 256), chunk_tokens, 1, seed)  # warm up
    rows = [measure(pair, count, chunk_tokens, repetitions, seed) for count in tokens]
    ratio = min(row["ratio"] for row in rows)
    result = {
        "bench": "prefill",
        "baseline": "transformers forward over the whole prompt, DynamicCache, sdpa",
        "threshold": "ratio of medians >= 1 at every length",
        "passed": ratio >= 1,
        "ratio": ratio,
        "chunk_tokens": chunk_tokens,
        "rows": rows,
        **state,
    }
    columns = ("tokens", "zerolayer tokens/s", "plain tokens/s", "ratio", "ratio of best runs")
    keys = ("tokens", "tokens_per_s", "plain_tokens_per_s", "ratio", "ratio_of_best")
    return common.report(result, as_json, "Prefill", columns, [[row[key] for key in keys] for row in rows])
