"""`zerolayer bench needles`: planted facts, answered from KV as it was stored, knit, and computed afresh."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from zerolayer.bench import common
from zerolayer.bench.common import report, seed_option
from zerolayer.bench.synthetic import as_document, long_text
from zerolayer.cli.options import json_option
from zerolayer.cli.output import note, progress
from zerolayer.config import Settings, load_settings
from zerolayer.decision.registry import create_policy
from zerolayer.session import Session, session_of

BAR, MOST_RECOMPUTED = 0.9, 0.25
ANSWER_TOKENS = 12

CITIES = (
    "Lyon", "Porto", "Gdansk", "Malmo", "Turin", "Bergen", "Seville", "Graz", "Leipzig", "Ghent",
    "Split", "Bilbao", "Tampere", "Aarhus", "Brno", "Cork", "Nantes", "Trieste", "Varna", "Bruges",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Needle:
    """A planted fact."""

    city: str
    code: str

    @property
    def sentence(self) -> str:
        """As it stands in the document."""
        return f"\nThe access code of the {self.city} depot is {self.code}.\n"

    @property
    def question(self) -> str:
        """What is asked."""
        return f"What is the access code of the {self.city} depot? Answer with the number only."


def plant(tokenizer: Any, tokens: int, gap: int, seed: int) -> tuple[str, list[Needle]]:
    """A contract of about `tokens` tokens with a fact in the middle of every `gap` tokens."""
    rng = random.Random(seed)
    cities = rng.sample(CITIES, tokens // gap)
    needles = [Needle(city, str(rng.randint(10_000, 99_999))) for city in cities]
    text = long_text(tokenizer, tokens, seed)
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
        "offset_mapping"
    ]
    pieces, start = [], 0
    for number, needle in enumerate(needles):
        middle = offsets[number * gap + gap // 2][0]
        cut = text.find("\n", middle) + 1 or middle
        pieces += [text[start:cut], needle.sentence]
        start = cut
    return "".join([*pieces, text[start:]]), needles


def ask(session: Session, needles: Sequence[Needle], knit_share: float, kept: bool = False) -> dict[str, Any]:
    """Ask for every needle with at most `knit_share` of the blocks in sight knit; 1 is computing all of them afresh.

    Unless `kept`, every question starts from the stored blocks, without what was knit for the one before.
    """
    settings = replace(session.scheduler.settings, knit_share=knit_share)
    if knit_share == 1:
        settings = replace(settings, knit_match=0.0)
    right, knit, seen, answers = 0, 0, 0, []
    scheduler = None
    for needle in needles:
        if scheduler is None or not kept:
            scheduler = session.scheduler.sibling(create_policy(session.settings.policy), settings)
            scheduler.restore()
        result = scheduler.turn(
            session.question_ids(needle.question),
            session.signals(needle.question),
            max_new_tokens=ANSWER_TOKENS,
        )
        answer = session.engine.tokenizer.decode(result.token_ids)
        answers.append(" ".join(answer.split()))
        right += needle.code in answer
        knit += result.metrics.knit_tokens
        seen += (len(result.attended.blocks) - settings.sink_blocks) * settings.block_tokens
        if not kept:
            scheduler.working_set.forget_knits()
    if scheduler is not None:
        scheduler.working_set.forget_knits()
    return {"right": right, "knit_tokens": knit, "seen_tokens": seen, "answers": answers}


@click.command()
@click.option("--model", default="qwen2.5-coder-0.5b", show_default=True, help="Model name or directory.")
@seed_option
@click.option("--documents", default=2, show_default=True, help="Documents; each has tokens / gap facts.")
@click.option("--tokens", default=24_000, show_default=True)
@click.option("--gap", default=2_400, show_default=True, help="Tokens from one fact to the next.")
@click.option("--budget-tokens", default=4_096, show_default=True, help="Device budget, in tokens.")
@click.option("--attend-blocks", type=int, help="Most blocks in sight [default: the setting's].")
@click.option(
    "--share",
    "shares",
    multiple=True,
    type=float,
    default=(Settings.model_fields["knit_share"].default,),
    show_default=True,
    help="Shares to knit at most.",
)
@json_option
def command(
    model: str,
    seed: int,
    documents: int,
    tokens: int,
    gap: int,
    budget_tokens: int,
    attend_blocks: int | None,
    shares: tuple[float, ...],
    as_json: bool,
) -> int:
    """Plant facts out of each other's sight and ask for each: stored KV, knit, all recomputed.

    Exits with 3 unless at least 90 % of the knit answers are right with at most 25 % of the tokens in sight recomputed.
    """
    from zerolayer.engines.hf.loading import load_engine

    settings = load_settings(
        model=model, seed=seed, encoder="none", attend_blocks=attend_blocks, max_new_tokens=ANSWER_TOKENS
    )
    engine = load_engine(settings)
    budget = budget_tokens * engine.geometry.token_bytes
    settings = settings.model_copy(update={"device_budget": str(budget)})
    modes = {"stored": 0.0, **{_name(share, shares): share for share in shares}, "fresh": 1.0}
    total: dict[str, dict[str, Any]] = {
        name: {"right": 0, "knit_tokens": 0, "seen_tokens": 0, "answers": []}
        for name in (*modes, "knit_kept")
    }
    asked = 0
    for number in range(documents):
        text, needles = plant(engine.tokenizer, tokens, gap, seed + number)
        asked += len(needles)
        with session_of([as_document(text, f"needles {seed + number}")], engine, settings) as session:
            with progress(f"reading document {number + 1} of {documents}") as update:
                session.read(lambda state: update(state.tokens_done, state.tokens_total))
            for name, sums in total.items():
                share = modes.get(name, shares[0])
                counts = ask(session, needles, share, kept=name == "knit_kept")
                note(f"document {number + 1}, {name}: {counts['right']} of {len(needles)}")
                for key, value in counts.items():
                    sums[key] += value
    rows = {
        name: {**c, "recomputed_share": c["knit_tokens"] / max(1, c["seen_tokens"])}
        for name, c in total.items()
    }
    knit = rows["knit"]
    result = {
        "bench": "needles",
        "baseline": "the same blocks as they were stored, and all of them recomputed together",
        "threshold": f"knit right >= {BAR:.0%} with recomputed_share <= {MOST_RECOMPUTED}",
        "passed": knit["right"] >= BAR * asked and knit["recomputed_share"] <= MOST_RECOMPUTED,
        "questions": asked,
        "tokens": tokens,
        "gap": gap,
        "budget_tokens": budget_tokens,
        **rows,
        **common.conditions(model, seed),
    }
    table_rows = [[n, f"{r['right']} of {asked}", f"{r['recomputed_share']:.3f}"] for n, r in rows.items()]
    return report(result, as_json, "Needles", ("KV", "right", "share recomputed"), table_rows)


def _name(share: float, shares: Sequence[float]) -> str:
    return "knit" if share == shares[0] else f"knit_{share:g}"
