"""The service: turns of many conversations, one model, one device budget and one host budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from zerolayer.config import Settings
from zerolayer.server.options import ServiceOptions
from zerolayer.server.turns import Thresholds, TurnEvent, TurnRequest
from zerolayer.server.views import (
    BlockView,
    HeatView,
    IntentView,
    ModelView,
    PolicyView,
    PrefetchView,
    Readiness,
    ServiceEvent,
    SessionView,
    Totals,
)


class RunningTurn:
    """One turn that was taken in. Events may be awaited from any event loop, once."""

    @property
    def session_id(self) -> str:
        """The conversation's session; empty until the turn has been matched to one."""
        raise NotImplementedError

    def events(self) -> AsyncIterator[TurnEvent]:
        """Everything that happens to the turn, in order, up to Finished or Failed."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The client has left: the turn stops within one quantum. Safe from any thread, and more than once."""
        raise NotImplementedError


class Service:
    """Answers turns of many conversations with one model, within one device and one host budget.

    All methods are safe from any thread. Those that show a session wait for the running quantum, less than two
    seconds on a slow machine: call them from a thread pool, not from an event loop.
    """

    def __init__(self, settings: Settings, options: ServiceOptions | None = None) -> None:
        """Cheap: loads nothing. Raises SettingError, UnknownNameError."""
        self.settings, self.options = settings, options or ServiceOptions()

    def start(self) -> None:
        """Start the engine thread: it loads the model, answers a warm-up question, and is ready then."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop: running turns fail, everything that was read and said is stored, threads have ended."""
        raise NotImplementedError

    def ready(self) -> Readiness:
        """Whether turns are answered without delay."""
        raise NotImplementedError

    def submit(self, request: TurnRequest) -> RunningTurn:
        """Take a turn in: it is parsed here (a PDF may take a second) and queued.

        Raises UsageError or DocumentError where the request is wrong, OverloadedError where too many wait.
        """
        raise NotImplementedError

    def count_tokens(self, request: TurnRequest) -> int:
        """Tokens of the whole prompt, as it would be computed without anything stored. Raises as `submit`."""
        raise NotImplementedError

    def models(self) -> list[ModelView]:
        """The model that answers."""
        raise NotImplementedError

    def sessions(self, tenant: str | None = None) -> list[SessionView]:
        """Live and stored sessions, the latest used first; of one tenant where one is given."""
        raise NotImplementedError

    def blocks(self, session_id: str, tenant: str | None = None) -> list[BlockView]:
        """The blocks of a live session. Raises UnknownNameError."""
        raise NotImplementedError

    def events(self, since: int = 0, limit: int = 500, tenant: str | None = None) -> list[ServiceEvent]:
        """Events with an id above `since`, oldest first: at most `limit`, the latest of them."""
        raise NotImplementedError

    def heat(self, session_id: str, tenant: str | None = None) -> HeatView | None:
        """The heat map of a live session; None before its first turn. Raises UnknownNameError."""
        raise NotImplementedError

    def totals(self) -> Totals:
        """Counters since the service started."""
        raise NotImplementedError

    def set_thresholds(
        self, thresholds: Thresholds, session_id: str | None = None, tenant: str | None = None
    ) -> None:
        """Move the cuts of a session, or (None) of the tenant's sessions and of those to come.

        Raises SettingError for impossible cuts, UnknownNameError.
        """
        raise NotImplementedError

    def predict_intent(
        self, session_id: str, tenant: str | None = None, history: Sequence[str] | None = None
    ) -> IntentView:
        """Where the next question is likely to go. Raises UnknownNameError."""
        raise NotImplementedError

    def prefetch_intent(
        self, session_id: str, tenant: str | None = None, history: Sequence[str] | None = None
    ) -> PrefetchView:
        """Warm the blocks of the likeliest needs. Raises UnknownNameError, StoreFullError."""
        raise NotImplementedError

    def policies(self) -> list[PolicyView]:
        """Policies and presets that a request may name."""
        raise NotImplementedError
