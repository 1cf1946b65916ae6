"""`zerolayer bench serve`: many conversations, one model: time to first token against a static window and plain HF."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from zerolayer.bench import common
from zerolayer.bench.cold import empty_home
from zerolayer.bench.common import model_option, report, seed_option
from zerolayer.bench.synthetic import long_text
from zerolayer.cli.options import json_option
from zerolayer.cli.output import progress
from zerolayer.config import cache_dir, load_settings
from zerolayer.documents.structure import find_headings

if TYPE_CHECKING:
    from zerolayer.server.service import Service
    from zerolayer.server.turns import Finished, Message, TurnRequest

LEAST_OVER_PLAIN = 20.0
"""Times sooner than plain generation without a kept cache, at the median, on documents of 6,000 tokens."""

LEAST_OVER_WINDOW = 2.15
"""Times sooner than the static window, at the median of the turns for which that had to read pages again."""

WINDOW = "static-window"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked."""

    documents: int
    sessions: int
    turns: int
    tokens: int  # of a document
    answer_tokens: int
    plain_samples: int


FULL = Load(4, 8, 10, 6000, 24, 8)
QUICK = Load(2, 4, 3, 1500, 8, 2)


@dataclass(slots=True)
class Asked:
    """One turn, as its client saw it."""

    ttft_s: float
    text: str
    finished: Finished | None
    error: Exception | None = None


@dataclass(slots=True)
class Talk:
    """A conversation that is sent whole with every turn."""

    document: str
    name: str
    questions: Sequence[str]
    said: list[Message] = field(default_factory=list)

    def request(self, turn: int, answer_tokens: int) -> TurnRequest:
        """Its next turn."""
        from zerolayer.server.turns import DocumentPart, Message, Sampling, TextPart, TurnRequest

        question = TextPart(self.questions[turn % len(self.questions)])
        parts = (
            (question,)
            if self.said
            else (DocumentPart(self.document.encode(), "text/plain", self.name), question)
        )
        self.said.append(Message("user", parts))
        return TurnRequest(tuple(self.said), Sampling(max_tokens=answer_tokens))

    def answered(self, text: str) -> None:
        """What the client puts behind its question."""
        from zerolayer.server.turns import Message, TextPart

        self.said.append(Message("assistant", (TextPart(text),)))


async def ask(service: Service, request: TurnRequest) -> Asked:
    """One turn of a service; its time runs from handing it in to its first text."""
    from zerolayer.server.turns import Failed, Finished, TextDelta

    started, first, text = time.perf_counter(), None, ""
    async for event in service.submit(request).events():
        if isinstance(event, TextDelta):
            first = first or time.perf_counter()
            text += event.text
        elif isinstance(event, Finished):
            return Asked((first or time.perf_counter()) - started, text, event)
        elif isinstance(event, Failed):
            return Asked(time.perf_counter() - started, text, None, event.error)
    raise AssertionError("a turn ended without a last event")


def questions_of(text: str, count: int, seed: int) -> list[str]:
    """Questions about headings from all over a document, in an order that jumps."""
    lines = [
        text[heading.start : heading.start + 70].split("\n", maxsplit=1)[0] for heading in find_headings(text)
    ]
    titles = [line for line in lines if len(line) > 12]
    drawn = random.Random(seed)
    chosen = drawn.sample(titles, min(count, len(titles))) or ["its beginning"]
    return [f"What does the part “{title.strip()}” say?" for title in chosen]


def talks_of(tokenizer: Any, load: Load, seed: int) -> list[Talk]:
    """As many conversations as there are sessions, the documents in turn."""
    texts = [long_text(tokenizer, load.tokens, seed + 17 * number) for number in range(load.documents)]
    return [
        Talk(
            texts[number % load.documents],
            f"contract {number % load.documents + 1}",
            questions_of(texts[number % load.documents], load.turns, seed + number),
        )
        for number in range(load.sessions)
    ]


@contextmanager
def running(policy: str, flags: dict[str, Any], device_bytes: int) -> Iterator[Service]:
    """A service that is ready, with its sessions in an empty folder."""
    from zerolayer.errors import UsageError
    from zerolayer.server.options import ServiceOptions
    from zerolayer.server.service import Service

    settings = load_settings(**{**flags, "policy": policy}, early_share=0.0)
    service = Service(settings, ServiceOptions(device_budget=str(device_bytes), least_host_bytes=0))
    service.start()
    try:
        while not service.ready().ok:
            if "cannot be loaded" in " ".join(service.ready().reasons):
                raise UsageError("; ".join(service.ready().reasons))
            time.sleep(0.05)
        yield service
    finally:
        service.close()


@contextmanager
def fresh_home() -> Iterator[None]:
    """An empty cache directory in which the models of the user's are found."""
    models = cache_dir() / "models"
    with empty_home():
        cache_dir().mkdir(parents=True, exist_ok=True)
        (cache_dir() / "models").symlink_to(models, target_is_directory=True)
        yield


def compare(load: Load, flags: dict[str, Any], seed: int) -> dict[str, Any]:
    """All turns of all sessions, each asked of both services and some of plain generation, one after another."""
    pair = common.load_pair(flags["model"])
    token_bytes = pair.engine.geometry.token_bytes
    vocabulary = pair.plain.config.vocab_size
    talks = talks_of(pair.engine.tokenizer, load, seed)
    device_bytes = -(-load.sessions // 2) * (load.tokens + 2048) * token_bytes
    others = [Talk(talk.document, talk.name, talk.questions) for talk in talks]
    rows: list[dict[str, Any]] = []
    samples = {round(i * load.sessions * load.turns / load.plain_samples) for i in range(load.plain_samples)}
    policy = flags.pop("policy")
    with (
        fresh_home(),
        running(policy, flags, device_bytes) as ours,
        running(WINDOW, flags, device_bytes) as window,
        progress("turns", unit="turns") as update,
    ):
        for number in range(load.turns * load.sessions):
            turn, session = divmod(number, load.sessions)
            row: dict[str, Any] = {"turn": turn, "session": session}
            pairs = [("zerolayer", ours, talks[session]), (WINDOW, window, others[session])]
            for name, service, talk in pairs if number % 2 else reversed(pairs):
                request = talk.request(turn, load.answer_tokens)
                told = asyncio.run(ask(service, request))
                talk.answered(told.text)
                row[name] = _row(told)
            if number in samples:
                count = ours.count_tokens(request)
                ids = common.random_ids(count, vocabulary, seed)
                started = time.perf_counter()
                common.plain_forward(pair.plain, ids, common.new_cache(pair.plain))
                row["plain"] = {"ttft_s": time.perf_counter() - started, "prompt_tokens": count}
            rows.append(row)
            update(number + 1, load.turns * load.sessions)
        totals = {"zerolayer": ours.totals(), WINDOW: window.totals()}
    return _compared(rows, totals, policy)


def _row(told: Asked) -> dict[str, Any]:
    if told.finished is None:
        return {"ttft_s": told.ttft_s, "error": str(told.error)}
    usage, metrics = told.finished.usage, told.finished.rtls_metrics
    return {
        "ttft_s": told.ttft_s,
        "error": None,
        "computed_tokens": usage.input_tokens + usage.cache_creation_input_tokens,
        "read_tokens": usage.cache_read_input_tokens,
        "loaded_tokens": metrics["recalled_tokens_count"],
        "prefill_s": metrics["prefill_s"],
        "recall_s": metrics["recall_s"],
        "knit_s": metrics["knit_s"],
        "recomputed_tokens": metrics["recomputed_tokens_count"],
        "discarded_tokens": metrics["discarded_tokens_count"],
    }


def _compared(rows: Sequence[dict[str, Any]], totals: dict[str, Any], policy: str) -> dict[str, Any]:
    later = [row for row in rows if row["turn"] > 0]
    plain = [row["plain"]["ttft_s"] for row in rows if "plain" in row]
    times = {
        name: [row[name]["ttft_s"] for row in later if row[name]["error"] is None]
        for name in ("zerolayer", WINDOW)
    }
    again = [
        row for row in later if row[WINDOW].get("loaded_tokens", 0) > 0 and row["zerolayer"]["error"] is None
    ]
    ours_again = common.middle([row["zerolayer"]["ttft_s"] for row in again]) if again else None
    window_again = common.middle([row[WINDOW]["ttft_s"] for row in again]) if again else None
    own, rate = totals["zerolayer"], _prefill_rate(rows)
    recomputing = [
        (row[WINDOW]["ttft_s"] + row[WINDOW]["loaded_tokens"] / rate) / row["zerolayer"]["ttft_s"]
        for row in again
        if rate
    ]
    return {
        "policy": policy,
        "turns_compared": len(later),
        **{f"{name}_ttft_s": spread(values) for name, values in (*times.items(), ("plain", plain))},
        "over_plain": common.middle(plain) / common.middle(times["zerolayer"]) if plain else None,
        "over_window": common.middle(times[WINDOW]) / common.middle(times["zerolayer"]),
        "window_read_again_turns": len(again),
        "over_window_read_again": window_again / ours_again if ours_again and window_again else None,
        "prefill_tokens_per_s": rate,
        # Simulated: a window without tiers behind it has to compute what this one loads, at the rate measured here.
        "over_window_without_tiers": common.middle(recomputing) if recomputing else None,
        "most_computed_tokens": max(row["zerolayer"].get("computed_tokens", 0) for row in later),
        "errors": sum(row[name]["error"] is not None for row in rows for name in times),
        "discarded_tokens": own.discarded_tokens,
        "corrupt_blocks": own.corrupt_blocks,
        "parks": own.parks,
        "wasted_share": own.wasted_share,
        "coverage": own.coverage,
        "window_wasted_share": totals[WINDOW].wasted_share,
        "window_coverage": totals[WINDOW].coverage,
        "rows": list(rows),
    }


def _prefill_rate(rows: Sequence[dict[str, Any]]) -> float:
    """Tokens a second, over the first turns that read a document."""
    read = [
        row[name] for row in rows for name in ("zerolayer", WINDOW) if row[name].get("prefill_s", 0.0) > 0.1
    ]
    seconds = sum(told["prefill_s"] for told in read)
    return sum(told["computed_tokens"] for told in read) / seconds if seconds else 0.0


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95 and their number."""
    if not seconds:
        return {"p50": 0.0, "p95": 0.0, "count": 0}
    p50, p95 = (float(value) for value in np.percentile(np.asarray(seconds), (50, 95)))
    return {"p50": p50, "p95": p95, "count": len(seconds)}


def soak(load: Load, flags: dict[str, Any], seed: int, minutes: float) -> dict[str, Any]:
    """All sessions ask at once, without a pause, for so long; a conversation that is over begins anew."""
    pair = common.load_pair(flags["model"])
    talks = talks_of(pair.engine.tokenizer, load, seed)
    device_bytes = -(-load.sessions // 2) * (load.tokens + 2048) * pair.engine.geometry.token_bytes
    asked: list[Asked] = []

    async def client(service: Service, talk: Talk, end: float) -> None:
        while time.monotonic() < end:
            talk.said.clear()
            for turn in range(load.turns):
                if time.monotonic() >= end:
                    return
                told = await ask(service, talk.request(turn, load.answer_tokens))
                talk.answered(told.text)
                asked.append(told)

    async def saturate(service: Service) -> None:
        end = time.monotonic() + 60 * minutes
        await asyncio.gather(*(client(service, talk, end) for talk in talks))

    with fresh_home(), running(flags.pop("policy"), flags, device_bytes) as service:
        asyncio.run(saturate(service))
        totals = service.totals()
    errors = [str(told.error) for told in asked if told.error is not None]
    return {
        "minutes": minutes,
        "turns": len(asked),
        "ttft_s": spread([told.ttft_s for told in asked if told.error is None]),
        "errors": len(errors),
        "first_errors": errors[:3],
        "discarded_tokens": totals.discarded_tokens,
        "corrupt_blocks": totals.corrupt_blocks,
        "recomputed_tokens": totals.recomputed_tokens,
        "parks": totals.parks,
        "device_bytes": totals.device_bytes,
        "device_budget_bytes": totals.device_budget_bytes,
        "coverage": totals.coverage,
        "wasted_share": totals.wasted_share,
    }


@click.command()
@click.option("--quick", is_flag=True, help="2 documents of 1,500 tokens, 4 sessions, 3 turns.")
@click.option(
    "--soak", "minutes", type=click.FloatRange(min=0.05), help="Saturate for so many minutes instead."
)
@click.option("--policy", default="graded", show_default=True, help="Who decides, beside the static window.")
@click.option("--device-budget", default="25%", show_default=True, help="A session's device memory.")
@model_option
@seed_option
@json_option
def command(quick: bool, minutes: float | None, seed: int, as_json: bool, **flags: Any) -> int:
    """8 sessions over 4 documents of 6,000 tokens, 10 turns each, every turn sent whole.

    Time to first token against the same server with the static window and against plain Hugging Face generation
    without a kept cache, in the same run; first turns, which read, are left out. Exits with 3 unless it is 20 times
    sooner than plain (full size only), 2.15 times sooner than the window where that reads again, and nothing is lost.
    """
    load = QUICK if quick else FULL
    conditions = common.conditions(flags["model"], seed)
    if minutes is not None:
        found = soak(load, dict(flags), seed, minutes)
        passed = not (found["errors"] or found["discarded_tokens"] or found["corrupt_blocks"])
        result = {"bench": "serve", "threshold": "no error, nothing lost", "passed": passed}
        result |= {**found, **conditions}
        rows = [[found[key] for key in ("turns", "errors", "discarded_tokens", "corrupt_blocks", "parks")]]
        return report(result, as_json, "Saturated", ("turns", "errors", "lost", "corrupt", "parks"), rows)
    found = compare(load, dict(flags), seed)
    lossless = not (found["errors"] or found["discarded_tokens"] or found["corrupt_blocks"])
    over_plain, over_window = found["over_plain"], found["over_window_read_again"]
    passed = lossless and (over_window is None or over_window >= LEAST_OVER_WINDOW)
    passed = passed and (quick or (over_plain is not None and over_plain >= LEAST_OVER_PLAIN))
    result = {
        "bench": "serve",
        "baseline": "the same service with --policy static-window, and plain generation, in the same run",
        "threshold": f"over_plain >= {LEAST_OVER_PLAIN} (6,000 tokens), over_window_read_again >= {LEAST_OVER_WINDOW}, "
        "no error, nothing lost",
        "passed": passed,
        "load": {name: getattr(load, name) for name in load.__dataclass_fields__},
        **found,
        **conditions,
    }
    times = [(name, found[f"{name}_ttft_s"]) for name in ("zerolayer", WINDOW, "plain")]
    table = [[name, f"{t['p50']:.2f}", f"{t['p95']:.2f}", t["count"]] for name, t in times]
    return report(result, as_json, "Time to first token", ("", "p50 s", "p95 s", "turns"), table)
