"""The official client of the Messages API, for a zerolayer server: the same calls, and what the scheduler adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self

import anthropic
from anthropic import BaseModel
from pydantic import Field

from zerolayer.client.messages import AsyncRtlsMessages, RtlsMessages
from zerolayer.client.metrics import NOT_ZEROLAYER, REFUSED, SWITCHED_OFF
from zerolayer.client.options import policy_field, questions_of, thresholds_field
from zerolayer.errors import SettingError

History = Iterable[str | Mapping[str, Any]]


class Need(BaseModel):
    """One likely need of the next question: a section of the document and how likely it is asked for."""

    label: str = ""
    probability: float = 0.0
    blocks: list[int] = Field(default=[])
    pages: list[int] = Field(default=[])
    char_start: int = 0
    char_end: int = 0


class Intent(BaseModel):
    """Where the next question is likely to go, best first; the needs' probabilities and `other` add up to 1."""

    session: str = ""
    needs: list[Need] = Field(default=[])
    other: float = 0.0
    entropy_bits: float = 0.0
    entropy: float = 0.0  # of the largest possible one: 0 certain, 1 no idea


class Prefetch(BaseModel):
    """What a forecast moved: block indices, and bytes."""

    session: str = ""
    needs: list[Need] = Field(default=[])
    wanted: list[int] = Field(default=[])
    resident: list[int] = Field(default=[])
    to_host: list[int] = Field(default=[])
    to_device: list[int] = Field(default=[])
    host_bytes: int = 0
    device_bytes: int = 0


class _Rtls:
    """What both clients know of scheduling. Stands before an official client among the bases.

    A call about a session means the one that it names, else the one that answered this client last, else the server's
    latest used.
    """

    enable_rtls: bool
    rtls_policy: str | None
    rtls_refused: bool
    last_session_id: str | None

    def __init__(self, *, enable_rtls: bool = True, rtls_policy: str | None = None, **options: Any) -> None:
        self._set_rtls(enable_rtls, rtls_policy)
        super().__init__(**options)

    def _validate_headers(self, headers: Any, omitted: Any) -> None:
        """A zerolayer server without keys is asked without one; elsewhere the official client's rules hold."""
        official = str(self.base_url).startswith("https://api.anthropic.com")  # type: ignore[attr-defined]
        if official or not self.enable_rtls:
            super()._validate_headers(headers, omitted)  # type: ignore[misc]

    def copy(
        self, *, enable_rtls: bool | None = None, rtls_policy: str | None = None, **options: Any
    ) -> Self:
        """A client with other options, as the official `copy`; None keeps this client's."""
        own = {
            "enable_rtls": self.enable_rtls if enable_rtls is None else enable_rtls,
            "rtls_policy": self.rtls_policy if rtls_policy is None else rtls_policy,
        }
        extra = {**own, **options.pop("_extra_kwargs", {})}
        client: Self = super().copy(_extra_kwargs=extra, **options)  # type: ignore[misc]
        return client

    with_options = copy

    def _set_rtls(self, enable_rtls: bool, rtls_policy: str | None) -> None:
        if not isinstance(enable_rtls, bool):
            raise SettingError(f"enable_rtls is {enable_rtls!r}; it must be True or False")
        if rtls_policy is not None:
            policy_field(rtls_policy)
        self.enable_rtls, self.rtls_policy = enable_rtls, rtls_policy
        self.rtls_refused, self.last_session_id = False, None

    @property
    def rtls_reason(self) -> str:
        """Why an answer has no metrics of its own."""
        if not self.enable_rtls:
            return SWITCHED_OFF
        return REFUSED if self.rtls_refused else NOT_ZEROLAYER

    def _of_session(self, session_id: str | None, history: History | None) -> dict[str, Any]:
        given = {"session_id": session_id or self.last_session_id, "history": questions_of(history)}
        return {name: value for name, value in given.items() if value is not None}


class Anthropic(_Rtls, anthropic.Anthropic):
    """`anthropic.Anthropic` with real-time loading and scheduling.

    `rtls_policy` is low_latency, balanced, memory_efficient, or a policy of the server; None leaves it to the server.
    With `enable_rtls=False` no request has anything that the official client's has not. Everything else, and every
    error, is the official client's. Raises SettingError, UnknownNameError where an argument cannot be meant.
    """

    @cached_property
    def messages(self) -> RtlsMessages:
        """The Messages API with `context_hints` and `rtls`."""
        return RtlsMessages(self)

    def set_entropy_thresholds(
        self,
        p0_min: float = 0.17,
        p1_min: float = 0.10,
        p2_min: float = 0.05,
        session_id: str | None = None,
    ) -> None:
        """Move the least persistence of P0, P1 and P2, of one session or (None) of all and of those to come.

        Raises SettingError unless 1 >= p0_min > p1_min > p2_min >= 0.
        """
        body = _thresholds(p0_min, p1_min, p2_min, session_id)
        self.post("/v1/rtls/thresholds", body=body, cast_to=object)

    def predict_next_intent(self, history: History | None = None, session_id: str | None = None) -> Intent:
        """Where the next question is likely to go; `session` in the answer is whose it is.

        `history` are questions or messages, oldest first; None: those that the session has been asked.
        """
        return self.post("/v1/rtls/intent", body=self._of_session(session_id, history), cast_to=Intent)

    def prefetch_intent(self, history: History | None = None, session_id: str | None = None) -> Prefetch:
        """Warm the blocks that the next question is likely to need; arguments as in `predict_next_intent`."""
        body = self._of_session(session_id, history)
        return self.post("/v1/rtls/prefetch_intent", body=body, cast_to=Prefetch)


class AsyncAnthropic(_Rtls, anthropic.AsyncAnthropic):
    """`anthropic.AsyncAnthropic` with real-time loading and scheduling; arguments as in `Anthropic`."""

    @cached_property
    def messages(self) -> AsyncRtlsMessages:
        """The Messages API with `context_hints` and `rtls`."""
        return AsyncRtlsMessages(self)

    async def set_entropy_thresholds(
        self,
        p0_min: float = 0.17,
        p1_min: float = 0.10,
        p2_min: float = 0.05,
        session_id: str | None = None,
    ) -> None:
        """As `Anthropic.set_entropy_thresholds`."""
        body = _thresholds(p0_min, p1_min, p2_min, session_id)
        await self.post("/v1/rtls/thresholds", body=body, cast_to=object)

    async def predict_next_intent(
        self, history: History | None = None, session_id: str | None = None
    ) -> Intent:
        """As `Anthropic.predict_next_intent`."""
        return await self.post("/v1/rtls/intent", body=self._of_session(session_id, history), cast_to=Intent)

    async def prefetch_intent(
        self, history: History | None = None, session_id: str | None = None
    ) -> Prefetch:
        """As `Anthropic.prefetch_intent`."""
        body = self._of_session(session_id, history)
        return await self.post("/v1/rtls/prefetch_intent", body=body, cast_to=Prefetch)


def _thresholds(p0_min: float, p1_min: float, p2_min: float, session_id: str | None) -> dict[str, Any]:
    cuts = thresholds_field(p0_min=p0_min, p1_min=p1_min, p2_min=p2_min)
    return cuts if session_id is None else {**cuts, "session_id": session_id}
