"""A server of the Messages API in a thread, for what a zerolayer server cannot show: one that is none.

It answers every turn with one sentence and notes every request's body. `metrics` of None stands for a server that is
not zerolayer; `strict` for one that refuses fields it does not know, in the words of the public API.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = "The term ends on 1 May 2031."
USAGE = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 7,
    "output_tokens": 9,
}
KNOWN = {"model", "max_tokens", "messages", "stream", "system", "temperature", "stop_sequences", "metadata"}


class MessagesServer(ThreadingHTTPServer):
    """`bodies` are (path, body) of all requests, oldest first."""

    def __init__(
        self, metrics: dict[str, Any] | None = None, strict: bool = False, event: str = "message_delta"
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.metrics, self.strict, self.event = metrics, strict, event
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.get: dict[str, tuple[int, Any]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def running(self) -> Iterator[MessagesServer]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: MessagesServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        code, body = self.server.get.get(self.path, (404, {"error": "no such page"}))
        self._send(code, body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append((self.path, body))
        if self.path != "/v1/messages":
            self._send(
                200,
                {"session": body.get("session_id", ""), "needs": [{"label": "9 Term", "probability": 0.6}]},
            )
            return
        unknown = sorted(set(body) - KNOWN) if self.server.strict else []
        if unknown:
            message = f"{unknown[0]}: Extra inputs are not permitted"
            self._send(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        elif body.get("stream"):
            self._stream()
        else:
            content, extra = [{"type": "text", "text": TEXT}], self._extra()
            self._send(200, {**self._message(content), "stop_reason": "end_turn", "usage": USAGE, **extra})

    def _extra(self) -> dict[str, Any]:
        return {} if self.server.metrics is None else {"rtls_metrics": self.server.metrics}

    @staticmethod
    def _message(content: list[dict[str, str]]) -> dict[str, Any]:
        shape = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
        return {**shape, "stop_reason": None, "stop_sequence": None, "usage": USAGE}

    def _stream(self) -> None:
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": self._message([])},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                for piece in (TEXT[:8], TEXT[8:])
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": USAGE,
            },
            {"type": "message_stop"},
        ]
        for event in events:
            if event["type"] == self.server.event:
                event.update(self._extra())
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(200, text, "text/event-stream")

    def _send(self, code: int, body: Any, kind: str = "application/json") -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
