"""Totals without waiting long: the service looks at itself between two steps of the model, and a step may take seconds.

A scrape that waits longer than its timeout is a metric that is missing; one that is a little old, and says so, is not.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from zerolayer.server.service import Service
from zerolayer.server.views import Totals

WAIT_S = 2.0
"""How long is waited for new totals before the last ones are told."""


class LatestTotals:
    """The service's totals, new ones where they come in time. Safe from any thread."""

    def __init__(self, service: Service, wait_s: float = WAIT_S) -> None:
        self._service, self._wait_s = service, wait_s
        self._lock = threading.Lock()
        self._asking: Future[tuple[Totals, float]] | None = None
        self._last: tuple[Totals, float] | None = None
        self._asker = ThreadPoolExecutor(1, "zerolayer-totals")  # starts no thread before it is asked

    def get(self) -> tuple[Totals, float]:
        """Totals, and how many seconds ago they were taken. The first ones are waited for.

        Raises what the service raises.
        """
        with self._lock:
            if self._asking is None:
                self._asking = self._asker.submit(self._ask)
            asking, last = self._asking, self._last
        try:
            found = asking.result(self._wait_s if last is not None else None)
        except TimeoutError:
            assert last is not None
            found = last
        return found[0], time.monotonic() - found[1]

    def _ask(self) -> tuple[Totals, float]:
        try:
            found = self._service.totals(), time.monotonic()
            with self._lock:
                self._last = found
            return found
        finally:
            with self._lock:
                self._asking = None
