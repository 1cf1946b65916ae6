"""`zerolayer bench`: one measurement a command, each in its own module of zerolayer.bench."""

from __future__ import annotations

import click

from zerolayer.cli.lazy import LazyCommand, LazyGroup

BENCHES = {
    name: LazyCommand(f"zerolayer.bench.{name}:command", text)
    for name, text in {
        "evidence": "Gold evidence that each signal of recall keeps.",
        "heads": "Which attention heads look at the evidence.",
        "document": "Share of a labelled contract's evidence that is resident, by policy.",
        "exactness": "The engine at a budget of 100 % against plain generation.",
        "growth": "Device memory and latency from 8k to 64k tokens at one budget.",
        "needles": "Planted facts: stored, knit and freshly computed KV.",
        "overhead": "Share of a decode step spent on deciding.",
        "cold": "Seconds to the first answer about a document that is not stored.",
        "intent": "Forecasts of the next need against majority and bigram.",
        "isa": "Instructions against plain frees and copies.",
        "signals": "What each signal of use is worth, and how well it is calibrated.",
        "prefill": "Prefill rate against plain Hugging Face.",
        "quality": "KL to the full cache by share of blocks in sight: zerolayer, droppers, gold evidence.",
        "serve": "Many conversations at once: time to first token against a static window and plain HF.",
        "decode": "Time per token against plain Hugging Face and llama.cpp.",
    }.items()
}


@click.group(cls=LazyGroup, lazy=BENCHES)
def bench() -> None:
    """Measure on this machine; each bench names its baselines."""
