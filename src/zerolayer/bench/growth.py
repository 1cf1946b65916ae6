"""`zerolayer bench growth`: device memory and latency as the document grows, at one device budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import middle, model_option, report, seed_option
from zerolayer.bench.synthetic import as_document, long_text
from zerolayer.cli.options import json_option
from zerolayer.cli.output import progress
from zerolayer.config import load_settings
from zerolayer.decision.registry import create_policy
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals
from zerolayer.session import Session, session_of

TTFT_GROWTH, DECODE_GROWTH = 1.5, 1.2

QUESTIONS = (
    "How many days does the Customer have to pay an invoice?",
    "When may a Party terminate because of a Force Majeure Event?",
    "Who bears the cost of training the Customer's staff?",
    "How often must Preventive Maintenance be carried out?",
    "Which insurance must the Supplier hold?",
    "What happens when an Acceptance Test fails?",
)


def measure(
    session: Session, blocks: int, policy: str, questions: Sequence[str], answer_tokens: int
) -> dict[str, Any]:
    """Ask about the first `blocks` blocks of what the session has read, with an arena of the same size.

    A prefix's KV does not depend on what was read after it, so reading the longest document is reading all of them.
    The first question warms up; the others are follow-ups.
    """
    width = session.settings.block_tokens
    scheduler = session.scheduler.sibling(create_policy(policy), session.scheduler.settings, blocks)
    scheduler.restore()
    scheduler.working_set.forget_knits()  # of an earlier run: every length pays for its own
    spans = [(block.char_start, block.char_end) for block in session.stream.blocks[:blocks]]
    index = LexicalIndex(session.stream.text[: spans[-1][1]], spans)
    ttft, decode, knit = [], [], []
    for question in questions:
        signals = Signals(index.scores(question))
        metrics = scheduler.turn(
            session.question_ids(question), signals, max_new_tokens=answer_tokens
        ).metrics
        ttft.append(metrics.ttft_s)
        decode.append(metrics.decode_s_per_token)
        knit.append(metrics.knit_tokens)
    scheduler.working_set.forget_knits()
    return {
        "tokens": blocks * width,
        "device_bytes": scheduler.arena.nbytes,
        "ttft_s": middle(ttft[1:]),
        "decode_s_per_token": middle(decode[1:]),
        "knit_tokens": middle(knit[1:]),
        "discarded_tokens": scheduler.working_set.lost_tokens(),
        "ttft_all_s": ttft,
    }


@click.command()
@model_option
@seed_option
@click.option("--tokens", multiple=True, type=int, default=(8192, 16384, 32768, 65536), show_default=True)
@click.option("--device-budget", default="128MiB", show_default=True)
@click.option("--answer-tokens", default=24, show_default=True)
@json_option
def command(
    model: str, seed: int, tokens: tuple[int, ...], device_budget: str, answer_tokens: int, as_json: bool
) -> int:
    """Ask follow-up questions about documents of growing length at one device budget.

    Device bytes must be constant; from the shortest to the longest, time to first token may grow 1.5 times and time
    per token 1.2 times. Exits with 3 otherwise.
    """
    from zerolayer.engines.hf.loading import load_engine

    settings = load_settings(model=model, seed=seed, device_budget=device_budget, encoder="none")
    engine = load_engine(settings)
    document = as_document(long_text(engine.tokenizer, max(tokens), seed), f"synthetic, seed {seed}")
    with session_of([document], engine, settings) as session:
        with progress("reading the longest document") as update:
            session.read(lambda state: update(state.tokens_done, state.tokens_total))
        sizes = [min(count // settings.block_tokens, len(session.stream.blocks)) for count in sorted(tokens)]
        rows = [measure(session, size, settings.policy, QUESTIONS, answer_tokens) for size in sizes]
    growth = {key: rows[-1][key] / rows[0][key] for key in ("ttft_s", "decode_s_per_token")}
    constant = len({row["device_bytes"] for row in rows}) == 1
    result = {
        "bench": "growth",
        "baseline": "the shortest document in the same run",
        "threshold": f"device bytes constant, ttft <= {TTFT_GROWTH} x, decode <= {DECODE_GROWTH} x",
        "passed": constant
        and growth["ttft_s"] <= TTFT_GROWTH
        and growth["decode_s_per_token"] <= DECODE_GROWTH,
        "device_budget": device_budget,
        "rows": rows,
        "device_bytes_constant": constant,
        "ttft_growth": growth["ttft_s"],
        "decode_growth": growth["decode_s_per_token"],
        **common.conditions(model, seed),
    }
    columns = ("tokens", "device bytes", "first token s", "s per token", "knit tokens")
    keys = ("tokens", "device_bytes", "ttft_s", "decode_s_per_token", "knit_tokens")
    return report(result, as_json, "Growth", columns, [[row[key] for key in keys] for row in rows])
