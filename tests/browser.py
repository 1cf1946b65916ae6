"""A headless Chromium, driven over its DevTools protocol: opens a page, evaluates in it, takes pictures of it."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-component-update", "--no-first-run", "--hide-scrollbars",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip
START_S = 60.0


def find_chromium() -> str | None:
    """The program, None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab. `errors` are uncaught exceptions, console errors and refused resources, as text."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._ids, self.errors = socket, itertools.count(1), []
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=START_S))
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:600])
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(json.dumps(params["args"])[:600])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        """Load a page in a window of that size, under a preference of colours."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, timeout_s: float = 30.0) -> None:
        """Until an expression is true. Raises AssertionError with what the page says of its errors."""
        end = time.monotonic() + timeout_s
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"{expression} is not true after {timeout_s} s; errors: {self.errors}"
            )
            time.sleep(0.05)

    def key(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point(self, selector: str) -> None:
        """Move the pointer over the middle of an element, once it lies still: what is drawn above may still grow."""
        self.js(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        middle = (
            "(r => [r.x + r.width / 2, r.y + r.height / 2])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        box, before = self.js(middle), None
        while box != before:
            time.sleep(0.05)
            box, before = self.js(middle), box
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def picture(self, path: Path | None = None, whole: bool = True) -> bytes:
        """A PNG of the page."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(shot["data"])
        if path is not None:
            path.write_bytes(data)
        return data


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """A browser with a profile of its own, ended when the block ends."""
    from websockets.sync.client import connect

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port_file, end = Path(profile) / "DevToolsActivePort", time.monotonic() + START_S
            while not (port_file.is_file() and port_file.read_text().count("\n")):
                assert process.poll() is None and time.monotonic() < end, "chromium did not start"
                time.sleep(0.05)
            port = port_file.read_text().split("\n")[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = json.load(answer)
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            with connect(address, max_size=None, open_timeout=START_S) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
