"""`zerolayer serve` as a process of its own, with the default model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from zerolayer.client.probe import fetch_json
from zerolayer.errors import ServerError

READY_S = 120


class RealServer:
    """A process that serves on a free port; `url` is where. What it says on stderr is kept in `said`."""

    def __init__(self, home: Path, *flags: str, api_keys: str = "") -> None:
        command = [
            sys.executable,
            "-m",
            "zerolayer.cli.main",
            "--home",
            str(home),
            "serve",
            "--port",
            "0",
            *flags,
        ]
        environment = os.environ | ({"ZEROLAYER_API_KEYS": api_keys} if api_keys else {})
        self.process = subprocess.Popen(
            command, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.url = self._wait_for_url()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def _wait_for_url(self) -> str:
        end = time.monotonic() + READY_S
        while time.monotonic() < end and self.process.poll() is None:
            for line in list(self.said):
                if found := re.search(r"listening on (http://\S+?);", line):
                    return found[1]
            time.sleep(0.05)
        raise AssertionError("".join(self.said))

    def wait_until_ready(self) -> None:
        end = time.monotonic() + READY_S
        while True:
            try:
                fetch_json(f"{self.url}/ready")
                return
            except ServerError as error:
                assert time.monotonic() < end and self.process.poll() is None, (
                    f"{error}\n{''.join(self.said)}"
                )
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30) -> int:
        """Send a signal; returns the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self.process.wait()
            self._reading.join()
            assert self.process.stdout is not None and self.process.stderr is not None
            assert self.process.stdout.read() == ""  # stdout is data, and a server has none
            self.process.stdout.close()
            self.process.stderr.close()
