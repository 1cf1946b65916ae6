"""`client.messages` with the extension fields, sync and async: they travel as extra fields of the SDK's own request."""

from __future__ import annotations

import re
from typing import Any, Literal, cast, overload

from anthropic import BadRequestError, omit
from anthropic.resources.messages import AsyncMessages, Messages
from anthropic.types import Message, RawMessageStreamEvent

from zerolayer.client.metrics import RtlsMetrics
from zerolayer.client.options import Hints, Rtls, hints_field, rtls_field
from zerolayer.client.streaming import (
    AsyncRtlsStream,
    AsyncRtlsStreamManager,
    RtlsMessage,
    RtlsStream,
    RtlsStreamManager,
)

EXTENSIONS = ("context_hints", "rtls")
_NOT_KNOWN = re.compile(
    r"\b(context_hints|rtls)\b.*extra inputs are not permitted", re.IGNORECASE | re.DOTALL
)
"""How a server of the Messages API that is not zerolayer refuses a field it does not know."""


class RtlsMessages(Messages):
    """`messages` of a client with real-time loading and scheduling."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._plain_post, self._post = self._post, self._rtls_post

    @overload  # type: ignore[override]  # the SDK's parameters pass through as they are
    def create(
        self,
        *,
        stream: Literal[True],
        context_hints: Hints | None = None,
        rtls: Rtls | None = None,
        **params: Any,
    ) -> RtlsStream[RawMessageStreamEvent]: ...
    @overload
    def create(
        self,
        *,
        stream: Any = omit,
        context_hints: Hints | None = None,
        rtls: Rtls | None = None,
        **params: Any,
    ) -> RtlsMessage: ...
    def create(
        self, *, context_hints: Hints | None = None, rtls: Rtls | None = None, **params: Any
    ) -> RtlsMessage | RtlsStream[RawMessageStreamEvent]:
        """As the SDK's `messages.create`; `context_hints` stay on the device, `rtls` chooses how to schedule.

        Raises SettingError or UnknownNameError before anything is sent where these cannot be meant.
        """
        answer = super().create(**_extended(self._client, params, context_hints, rtls))
        _note(self._client, answer)
        return cast("RtlsMessage", answer)

    def stream(  # type: ignore[override]  # as `create`
        self, *, context_hints: Hints | None = None, rtls: Rtls | None = None, **params: Any
    ) -> RtlsStreamManager[Any]:
        """As the SDK's `messages.stream`, with the arguments of `create`."""
        manager = super().stream(**_extended(self._client, params, context_hints, rtls))
        return RtlsStreamManager(manager, params.get("output_format", omit))

    def _rtls_post(self, path: str, **request: Any) -> Any:
        if path != "/v1/messages":
            return self._plain_post(path, **request)
        request = _typed(request, RtlsStream[RawMessageStreamEvent])
        try:
            return self._plain_post(path, **request)
        except BadRequestError as error:
            plain = _without_extensions(self._client, request, error)
            return self._plain_post(path, **plain)


class AsyncRtlsMessages(AsyncMessages):
    """`messages` of an async client with real-time loading and scheduling."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._plain_post, self._post = self._post, self._rtls_post

    @overload  # type: ignore[override]  # the SDK's parameters pass through as they are
    async def create(
        self,
        *,
        stream: Literal[True],
        context_hints: Hints | None = None,
        rtls: Rtls | None = None,
        **params: Any,
    ) -> AsyncRtlsStream[RawMessageStreamEvent]: ...
    @overload
    async def create(
        self,
        *,
        stream: Any = omit,
        context_hints: Hints | None = None,
        rtls: Rtls | None = None,
        **params: Any,
    ) -> RtlsMessage: ...
    async def create(
        self, *, context_hints: Hints | None = None, rtls: Rtls | None = None, **params: Any
    ) -> RtlsMessage | AsyncRtlsStream[RawMessageStreamEvent]:
        """As `RtlsMessages.create`."""
        answer = await super().create(**_extended(self._client, params, context_hints, rtls))
        _note(self._client, answer)
        return cast("RtlsMessage", answer)

    def stream(  # type: ignore[override]  # as `create`
        self, *, context_hints: Hints | None = None, rtls: Rtls | None = None, **params: Any
    ) -> AsyncRtlsStreamManager[Any]:
        """As the SDK's `messages.stream`, with the arguments of `create`."""
        manager = super().stream(**_extended(self._client, params, context_hints, rtls))
        return AsyncRtlsStreamManager(manager, params.get("output_format", omit))

    async def _rtls_post(self, path: str, **request: Any) -> Any:
        if path != "/v1/messages":
            return await self._plain_post(path, **request)
        request = _typed(request, AsyncRtlsStream[RawMessageStreamEvent])
        try:
            return await self._plain_post(path, **request)
        except BadRequestError as error:
            plain = _without_extensions(self._client, request, error)
            return await self._plain_post(path, **plain)


def _extended(client: Any, params: dict[str, Any], hints: Hints | None, rtls: Rtls | None) -> dict[str, Any]:
    """The SDK's arguments with the extension fields in `extra_body`, none where the client has them off."""
    # Checked either way: what is wrong stays wrong when scheduling is switched on again.
    fields = {
        "context_hints": hints_field(hints) if hints is not None else None,
        "rtls": rtls_field(rtls, client.rtls_policy),
    }
    sent = {name: value for name, value in fields.items() if value}
    if not sent or not client.enable_rtls or client.rtls_refused:
        return params
    given = params.get("extra_body")
    return {**params, "extra_body": {**sent, **(given if isinstance(given, dict) else {})}}


def _typed(request: dict[str, Any], stream_cls: Any) -> dict[str, Any]:
    """The request, answered with the classes that know `rtls_metrics`; `parse` keeps its own."""
    if request.get("stream_cls") is not None:
        request["stream_cls"] = stream_cls
    if request.get("cast_to") is Message and not request["options"].get("post_parser"):
        request["cast_to"] = RtlsMessage
    return request


def _without_extensions(client: Any, request: dict[str, Any], error: BadRequestError) -> dict[str, Any]:
    """The request without them, if they are what the server did not know; else the error is raised."""
    extra = request["options"].get("extra_json") or {}
    if not any(name in extra for name in EXTENSIONS) or not _NOT_KNOWN.search(str(error)):
        raise error
    client.rtls_refused = True
    kept = {name: value for name, value in extra.items() if name not in EXTENSIONS}
    return {**request, "options": {**request["options"], "extra_json": kept}}


def _note(client: Any, answer: object) -> None:
    """Say why a message came without metrics, and remember whose session answered."""
    if not isinstance(answer, RtlsMessage):
        return
    told = "rtls_metrics" in answer.model_fields_set and isinstance(answer.rtls_metrics, RtlsMetrics)
    if not told:
        answer.rtls_metrics = RtlsMetrics(reason=client.rtls_reason)
    elif answer.rtls_metrics.session_id:
        client.last_session_id = answer.rtls_metrics.session_id
