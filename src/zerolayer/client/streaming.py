"""Streams that keep the metrics of the answer they carry: a server sends them with one of its last events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from anthropic import AsyncMessageStream, AsyncMessageStreamManager, AsyncStream, MessageStream, Stream
from anthropic import MessageStreamManager as _Manager
from anthropic.types import Message, ParsedMessage

from zerolayer.client.metrics import STILL_STREAMING, RtlsMetrics

T = TypeVar("T")
Format = TypeVar("Format")


class RtlsMessage(Message):
    """A message with what scheduling did for it."""

    rtls_metrics: RtlsMetrics = RtlsMetrics()


class RtlsParsedMessage(ParsedMessage[Any]):
    """The message that a stream has put together, with what scheduling did for it."""

    rtls_metrics: RtlsMetrics = RtlsMetrics()


class MetricsBox:
    """Where a stream's reader leaves what it found: the SDK reads a stream through a copy of it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.metrics = RtlsMetrics(reason=STILL_STREAMING)
        self._found = False

    def look(self, event: object) -> None:
        """Take the metrics out of an event that has them, as an extra field of its own or of its message."""
        extra = getattr(event, "model_extra", None) or {}
        value = extra.get("rtls_metrics")
        if isinstance(value, dict):
            self.metrics, self._found = RtlsMetrics.construct(**value), True
            if self.metrics.session_id:
                self._client.last_session_id = self.metrics.session_id
        elif getattr(event, "type", "") == "message_stop" and not self._found:
            self.metrics = RtlsMetrics(reason=self._client.rtls_reason)


class RtlsStream(Stream[T]):
    """The events of `create(stream=True)`; `rtls_metrics` is complete once they have been read."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._box = MetricsBox(self._client)

    @property
    def rtls_metrics(self) -> RtlsMetrics:
        """What scheduling did for the answer; while it runs, `disabled` with that as its reason."""
        return self._box.metrics

    def __stream__(self) -> Iterator[T]:
        for event in super().__stream__():
            self._box.look(event)
            yield event


class AsyncRtlsStream(AsyncStream[T]):
    """As `RtlsStream`, to be read with `async for`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._box = MetricsBox(self._client)

    @property
    def rtls_metrics(self) -> RtlsMetrics:
        """What scheduling did for the answer; while it runs, `disabled` with that as its reason."""
        return self._box.metrics

    async def __stream__(self) -> AsyncIterator[T]:
        async for event in super().__stream__():
            self._box.look(event)
            yield event


class RtlsMessageStream(MessageStream[Format]):
    """What `messages.stream` gives: text, events, the final message, and `rtls_metrics`."""

    @property
    def rtls_metrics(self) -> RtlsMetrics:
        """What scheduling did for the answer; complete after the last event."""
        return cast("RtlsStream[Any]", self._raw_stream).rtls_metrics

    def get_final_message(self) -> RtlsParsedMessage:
        """Read to the end; the whole message, with `rtls_metrics`."""
        return _with_metrics(super().get_final_message(), self.rtls_metrics)


class AsyncRtlsMessageStream(AsyncMessageStream[Format]):
    """As `RtlsMessageStream`, to be read with `async for`."""

    @property
    def rtls_metrics(self) -> RtlsMetrics:
        """What scheduling did for the answer; complete after the last event."""
        return cast("AsyncRtlsStream[Any]", self._raw_stream).rtls_metrics

    async def get_final_message(self) -> RtlsParsedMessage:
        """Read to the end; the whole message, with `rtls_metrics`."""
        return _with_metrics(await super().get_final_message(), self.rtls_metrics)


def _with_metrics(message: Any, metrics: RtlsMetrics) -> RtlsParsedMessage:
    fields = {**dict(message), **(message.model_extra or {}), "rtls_metrics": metrics}
    return RtlsParsedMessage.construct(**fields)


class RtlsStreamManager(Generic[Format]):
    """Opens the stream on entering, closes it on leaving."""

    def __init__(self, manager: _Manager[Format], output_format: Any) -> None:
        self._manager, self._format = manager, output_format

    def __enter__(self) -> RtlsMessageStream[Format]:
        # The SDK's manager names no class to build, so its stream hands over the events it has not begun to read.
        return RtlsMessageStream(self._manager.__enter__()._raw_stream, self._format)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._manager.__exit__(kind, error, trace)


class AsyncRtlsStreamManager(Generic[Format]):
    """Opens the stream on entering, closes it on leaving."""

    def __init__(self, manager: AsyncMessageStreamManager[Format], output_format: Any) -> None:
        self._manager, self._format = manager, output_format

    async def __aenter__(self) -> AsyncRtlsMessageStream[Format]:
        return AsyncRtlsMessageStream((await self._manager.__aenter__())._raw_stream, self._format)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._manager.__aexit__(kind, error, trace)
