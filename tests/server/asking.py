"""Asks a service as its routes do, on tiny random models: a whole turn as plain values."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from tiny_models import make_engine
from zerolayer.config import load_settings
from zerolayer.engines.hf.engine import HFEngine
from zerolayer.server.options import ServiceOptions
from zerolayer.server.service import RunningTurn, Service
from zerolayer.server.turns import (
    Cited,
    DocumentPart,
    Failed,
    Finished,
    Message,
    Sampling,
    Started,
    TextDelta,
    TextPart,
    TurnRequest,
    Usage,
)

WIDTH = 8
TOPICS = ("fee", "term", "notice", "law", "insurance", "audit", "renewal", "warranty")
TEXT = "".join(
    f"{n}. The {topic}\nThe {topic} of this deal is {n}00 euro. " for n, topic in enumerate(TOPICS, 1)
)


@dataclass
class Told:
    """What a client heard of a turn."""

    text: str = ""
    deltas: list[TextDelta] = field(default_factory=list)
    cited: list[Cited] = field(default_factory=list)
    started: Started | None = None
    finished: Finished | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def usage(self) -> Usage:
        assert self.finished is not None, self.error
        return self.finished.usage

    @property
    def metrics(self) -> dict[str, Any]:
        assert self.finished is not None, self.error
        return self.finished.rtls_metrics


def tiny_engine() -> tuple[HFEngine, Any]:
    """A tiny random model that writes ASCII, so that a text has the tokens that it was made of; and a plain copy."""
    engine, plain = make_engine("llama")
    printable = [engine.tokenizer(chr(code))["input_ids"][0] for code in range(33, 127)]
    for model in (engine.model, plain):
        others = torch.ones(model.config.vocab_size, dtype=torch.bool)
        others[printable] = False
        with torch.no_grad():
            model.lm_head.weight[others] = 0.0
    return engine, plain


def use_tiny_models(monkeypatch) -> None:
    """Services load a tiny random model, the same one every time."""
    from zerolayer.engines.hf import loading

    monkeypatch.setattr(loading, "load_engine", lambda settings: tiny_engine()[0])
    monkeypatch.setattr(loading, "load_encoder", lambda settings: None)


def start_service(options: ServiceOptions | None = None, **settings: Any) -> Service:
    """A service that is ready."""
    defaults = {
        "block_tokens": WIDTH,
        "chunk_tokens": 32,
        "max_new_tokens": 8,
        "encoder": "none",
        "early_share": 0.0,
        "codec": "ZSTD",
    }
    plain = options or ServiceOptions(device_budget="64MiB", conversation_tokens=256, least_host_bytes=0)
    service = Service(load_settings(**{**defaults, **settings}), plain)
    service.start()
    wait_until(lambda: service.ready().ok, 120.0)
    return service


def wait_until(holds, seconds: float = 30.0) -> None:
    """Raises AssertionError where it does not hold in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def document(text: str = TEXT, title: str = "deal.txt", **more: Any) -> DocumentPart:
    return DocumentPart(text.encode(), "text/plain", title, **more)


def request(*said: Any, max_tokens: int = 12, **more: Any) -> TurnRequest:
    """Messages in turn, the user's first: each a text, a part, or a list of both."""
    sampling = more.pop("sampling", None) or Sampling(max_tokens=max_tokens)
    messages = []
    for number, parts in enumerate(said):
        listed = parts if isinstance(parts, list) else [parts]
        made = tuple(TextPart(part) if isinstance(part, str) else part for part in listed)
        messages.append(Message("assistant" if number % 2 else "user", made))
    return TurnRequest(tuple(messages), sampling, **more)


async def listen(turn: RunningTurn) -> Told:
    """Everything that is told of a turn."""
    told, began = Told(), time.perf_counter()
    async for event in turn.events():
        assert told.finished is None and told.error is None, "nothing follows the end"
        if isinstance(event, TextDelta):
            told.deltas.append(event)
            told.text += event.text
        elif isinstance(event, Cited):
            told.cited.append(event)
        elif isinstance(event, Started):
            told.started = event
        elif isinstance(event, Finished):
            told.finished = event
        elif isinstance(event, Failed):
            told.error = event.error
    told.seconds = time.perf_counter() - began
    return told


def ask(service: Service, asked: TurnRequest) -> Told:
    """One turn, to its end."""
    return asyncio.run(listen(service.submit(asked)))


def ask_all(service: Service, asked: list[TurnRequest]) -> list[Told]:
    """Several turns at once."""

    async def all_of_them() -> list[Told]:
        return await asyncio.gather(*(listen(service.submit(one)) for one in asked))

    return asyncio.run(all_of_them())
