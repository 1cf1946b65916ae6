"""A service with everything to show, for the dashboard: sessions in every state, totals that move at every look.

Only what it shows is written down here; the app that serves it, the page and the browser are the real ones.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import uvicorn

from zerolayer.errors import UnknownNameError
from zerolayer.server.http.app import create_app
from zerolayer.server.http.options import HttpOptions
from zerolayer.server.views import (
    BlockHistory,
    BlockView,
    HeatView,
    ModelView,
    Percentiles,
    PinView,
    PolicyView,
    Readiness,
    ServiceEvent,
    SessionView,
    Totals,
    TotalsHistory,
    TotalsSample,
)

NOW = time.time()
MIB = 1 << 20
BLOCKS = 260
GRADES = ("P3", "P2", "P3", "P1", "P0", "P2", "P3")
WHY = {
    "P0": "pinned by hint “Anna Roth”",
    "P1": "used in turn 4, attention 0.03",
    "P2": "near a used block",
    "P3": "no sign of use",
}
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"
CELLS = tuple(
    tuple(
        math.exp(-(((x - 90) / 40) ** 2) - ((y - 60) / 12) ** 2) + (0.001 if (x // 8 + y // 8) % 3 else 0.0)
        for x in range(256)
    )
    for y in range(256)
)


def block(index: int) -> BlockView:
    """A block of a contract; number 4 has what would be markup."""
    grade = GRADES[index * 7 % 11 % len(GRADES)]
    tier = ("device" if grade in ("P0", "P1") else "host" if index % 3 else "disk") if index < 240 else "none"
    move = f"MOVE_P0 0x{index * 4096:x} 0x{index * 64:x} 4096"
    history = (
        BlockHistory(NOW - 60, 3, move, "done", 98304, 41_000),
        BlockHistory(NOW - 9, 4, f"EVICT_P3 0x{index * 64:x} 4096", "done", 98304, 210, "least persistence"),
    )
    text = (
        HOSTILE
        if index == 4
        else f"{index}. Notice number {index} shall be sent to the office of the Supplier in writing. "
    )
    return BlockView(
        index, f"{index:032x}", "frame" if index == 0 else "document", "contract.pdf",
        0 if index == 0 else 1 + index // 12, 1 + index // 12, 240 * index, 240 * (index + 1), text * 3, 64,
        grade, tier, index if tier == "device" else None, tier == "device" and index % 2 == 0,
        grade == "P0" and index % 2 == 0, None if tier == "none" else 0.01 * (index % 30),
        0.001 * index, index % 4, 4 if index % 4 else -1, WHY[grade], history if index % 3 == 0 else (),
    )  # fmt: skip


def session(name: str, state: str, title: str, turns: int = 5, **more: object) -> SessionView:
    """A session of about the contract's size."""
    pins = (PinView("Anna Roth", "P0", (4, 9), None, 128),) if state == "answering" else ()
    view = SessionView(
        name * 8, title, "smollm2", "", state, "graded", 16_640, 512, 16_640, BLOCKS, 64,
        {"device": 2_048, "host": 12_000, "disk": 16_640} if state != "stored" else {"disk": 16_640},
        {"P0": 14, "P1": 30, "P2": 96, "P3": 120}, turns, 45 * MIB, 80 * MIB, 110 * MIB, pins, 2 if pins else 0, 16,
        state == "answering", NOW - 900, NOW - 20, NOW + 7000 if pins else None, 0.01, None,
    )  # fmt: skip
    return replace(view, **more)


class ShownService:
    """`ok` is whether it is ready; `looks` counts how often its totals were read, `past` are samples from before."""

    def __init__(self) -> None:
        self.made = time.time()  # tests may run long after this module was imported
        self.ok, self.looks, self.started, self.past = True, 0, self.made - 900, 70
        self.shown = [
            session("a1b2c3d4", "answering", "contract.pdf"),
            session("0f1e2d3c", "parked", "Mietvertrag Straße.pdf, annex.txt", 2),
            session("99aa88bb", "stored", "合同.pdf", 9),
        ]
        self.happened = [
            ServiceEvent(1, NOW - 90, "", "", "start", "model smollm2 is ready", {"load_s": 4.2}),
            ServiceEvent(
                2, NOW - 60, "a1b2c3d4" * 8, "", "turn", "answered", {"ttft_s": 0.41, "output_tokens": 32}
            ),
            ServiceEvent(
                3,
                NOW - 50,
                "a1b2c3d4" * 8,
                "",
                "fallback",
                "ppo was late: graded decided",
                {"decision_us": 81},
            ),
            ServiceEvent(
                4, NOW - 40, "0f1e2d3c" * 8, "", "park", "its arena was given to another session", {}
            ),
        ]

    def ready(self) -> Readiness:
        return Readiness(self.ok, () if self.ok else ("the model is loading",))

    def models(self) -> list[ModelView]:
        return [ModelView("smollm2", "SmolLM2 135M Instruct", 1.7e9, 2048, 1024)]

    def sessions(self, tenant: str | None = None) -> list[SessionView]:
        return list(self.shown)

    def _known(self, session_id: str) -> None:
        if session_id not in {view.id for view in self.shown if view.state != "stored"}:
            raise UnknownNameError("session", session_id, [view.id for view in self.shown])

    def blocks(self, session_id: str, tenant: str | None = None) -> Sequence[BlockView]:
        self._known(session_id)
        return [block(index) for index in range(BLOCKS)]

    def heat(self, session_id: str, tenant: str | None = None) -> HeatView:
        self._known(session_id)
        return HeatView(session_id, 256, CELLS, 45 * MIB, 5, 1.0)

    def events(self, since: int = 0, limit: int = 500, tenant: str | None = None) -> list[ServiceEvent]:
        return [event for event in self.happened if event.id > since][-limit:]

    def policies(self) -> list[PolicyView]:
        return [
            PolicyView("graded", "policy", True, True, "persistence and match of the question", 2),
            PolicyView("static-window", "policy", False, False, "sinks and the last tokens, as today"),
            PolicyView("low_latency", "preset", False, True, "recalls deep, prefetches 8 blocks"),
        ]

    def totals(self) -> Totals:
        self.looks += 1
        return self._at(self.looks)

    def history(self) -> TotalsHistory:
        """Evenly from the start to when it was made; the last numbers are those before the first look."""
        now = time.time()
        step_s = (self.made - self.started) / self.past
        moments = (
            (self.made - step_s * (past + 0.5), self._at(-past)) for past in reversed(range(self.past))
        )
        return TotalsHistory(self.started, now, step_s, tuple(_sample(*moment) for moment in moments))

    def _at(self, n: int) -> Totals:
        return Totals(
            started=self.started, uptime_s=900.0 + n, turns=40 + n,
            requests={"finished": 40 + n, "failed": 0, "cancelled": 1},
            input_tokens=2_000, cache_creation_input_tokens=18_000, cache_read_input_tokens=180_000, output_tokens=900,
            loads=300 + 4 * n, loads_used=280 + 4 * n, wasted_loads=9, used_block_turns=900, covered_block_turns=886,
            wasted_share=9 / (289 + 4 * n), coverage=0.984, recomputed_tokens=128, recalled_tokens=19_200,
            window_loads=4_000, window_wasted_loads=1_800, window_wasted_share=0.45 + 0.02 * math.sin(n / 3),
            window_coverage=0.31, window_cut_tokens=24_000 + 320 * n,
            p0_access_latency_us=Percentiles(
                1.2 + 0.2 * math.sin(n), 4.5 + math.sin(n / 2), 14.0 + 3 * math.sin(n / 4), 2_000 + n
            ),
            ttft_s=Percentiles(0.41, 0.93, 1.4, 40), decode_s_per_token=0.034, queue_length=1, running=2,
            sessions_live=2, sessions_parked=1, device_bytes=90 * MIB, device_budget_bytes=256 * MIB,
            tier_bytes={"device": (60 + 8 * math.sin(n / 5)) * MIB, "host": (150 + n) * MIB, "disk": 230 * MIB},
            tier_capacity_bytes={"device": 256 * MIB, "host": 4096 * MIB, "disk": 16384 * MIB},
            tier_tokens={"device": 4_096, "host": 24_000, "disk": 33_000},
            grade_tokens={"P0": 1_792, "P1": int(3_800 + 300 * math.sin(n / 4)), "P2": 12_000, "P3": 15_360},
            grade_blocks={"P0": 28, "P1": 60, "P2": 190, "P3": 240},
        )  # fmt: skip


def _sample(moment: float, totals: Totals) -> TotalsSample:
    names = [part.name for part in fields(TotalsSample) if part.name != "time"]
    return TotalsSample(moment, **{name: getattr(totals, name) for name in names})


@contextmanager
def serving(service: Any, **options: Any) -> Iterator[str]:
    """The real app over a service, in a thread, on a free port of this machine; yields its address."""
    config = uvicorn.Config(
        create_app(service, HttpOptions(**options)), port=0, log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
