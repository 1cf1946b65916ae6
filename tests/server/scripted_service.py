"""A service that does what a script says, for what a real one cannot be made to do at will.

A slow prefill, a failure in the middle of an answer, a full queue: how the HTTP side tells them is tested with this;
everything else is tested with the real service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from zerolayer.errors import UnknownNameError
from zerolayer.server.turns import Cited, Failed, Finished, Started, TextDelta, TurnEvent, TurnRequest, Usage
from zerolayer.server.views import ModelView, Readiness, SessionView, Totals, TotalsHistory, TotalsSample

USAGE = Usage(3, 40, 21, 0)
ANSWER: tuple[TurnEvent | float, ...] = (
    Started("s1", USAGE),
    TextDelta("The rent ", 0, 3),
    TextDelta("is 5\u2028£.", 3, 9),
    Finished("end_turn", None, Usage(3, 40, 21, 9), {"status": "active", "reason": "", "ttft_s": 0.2}),
)
CITED = Cited(0, "lease", "rent is 5", 3, 4, 13, 0.9)


class ScriptedTurn:
    def __init__(self, script: Sequence[TurnEvent | float]) -> None:
        self.script, self.cancelled, self.session_id = script, 0, "s1"

    async def events(self) -> AsyncIterator[TurnEvent]:
        for step in self.script:
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    def cancel(self) -> None:
        self.cancelled += 1


class ScriptedService:
    """Plays `script` for every turn; a float in it is a pause in seconds; an exception is raised by `submit`."""

    def __init__(self, script: Sequence[TurnEvent | float] | Exception = ANSWER) -> None:
        self.script, self.ok = script, True
        self.asked: list[TurnRequest] = []
        self.turns: list[ScriptedTurn] = []
        self.known: list[SessionView] = []

    def ready(self) -> Readiness:
        return Readiness(self.ok, () if self.ok else ("the model of /root/models/x.gguf is loading",))

    def submit(self, request: TurnRequest) -> ScriptedTurn:
        if isinstance(self.script, Exception):
            raise self.script
        self.asked.append(request)
        self.turns.append(ScriptedTurn(self.script))
        return self.turns[-1]

    def count_tokens(self, request: TurnRequest) -> int:
        self.asked.append(request)
        return 64

    def models(self) -> list[ModelView]:
        return [ModelView("smollm2", "SmolLM2", 1.7e9, 2048, 1024)]

    def sessions(self, tenant: str | None = None) -> list[SessionView]:
        return [view for view in self.known if tenant is None or view.tenant == tenant]

    def blocks(self, session_id: str, tenant: str | None = None) -> list:
        if session_id not in {view.id for view in self.sessions(tenant)}:
            raise UnknownNameError("session", session_id, [view.id for view in self.sessions(tenant)])
        return []

    def totals(self) -> Totals:
        return Totals(loads=3, tier_bytes={"device": 5, "host": 6, "disk": 7}, requests={"finished": 2})

    def history(self) -> TotalsHistory:
        samples = (TotalsSample(1006.0, {"device": 5}), TotalsSample(1008.0, wasted_share=float("nan")))
        return TotalsHistory(1000.0, 1009.5, 2.0, samples)


def failing(error: Exception, after: float = 0.0) -> tuple[TurnEvent | float, ...]:
    """A turn that starts, says something and fails."""
    return (Started("s1", USAGE), TextDelta("The", 0, 1), after, Failed(error))


class Stage:
    """Stands for whichever service plays: an app takes longer to make than most tests."""

    def __init__(self) -> None:
        self.service = ScriptedService()

    def __getattr__(self, name: str):
        return getattr(self.service, name)
