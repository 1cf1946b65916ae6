"""Curves since the service started, in bounded memory: whoever opens the dashboard late sees what came before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from zerolayer.server.views import TotalsHistory, TotalsSample

INTERVAL_S = 2.0
"""Seconds between two samples at first."""

MOST_SAMPLES = 600
"""Samples that are kept, at 2 s the first 20 minutes of all; a curve on the dashboard is some 400 pixels wide."""


class History:
    """Samples from the start to now, evenly spaced. Above `most` every second one goes, and the interval doubles.

    One thread takes samples, any thread may look. Between samples passes time that no clock jump changes; a moment is
    told by the wall clock as it is when somebody looks, so that moments always rise.
    """

    def __init__(
        self,
        interval_s: float = INTERVAL_S,
        most: int = MOST_SAMPLES,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """With an even `most` the newest sample outlives every thinning; the first one always does."""
        self._interval_s, self._most = interval_s, most
        self._clock, self._wall = clock, wall
        self._tried: float | None = None
        self._samples: list[tuple[float, TotalsSample]] = []
        self._lock = threading.Lock()

    def sample(self, take: Callable[[], TotalsSample]) -> None:
        """Take a sample where it is time for one.

        Raises what `take` raises: then there is none, and the next try is an interval later.
        """
        now = self._clock()
        if self._tried is not None and now - self._tried < self._interval_s:
            return
        self._tried = now
        taken = take()
        with self._lock:
            self._samples.append((now, taken))
            if len(self._samples) > self._most:
                del self._samples[1::2]
                self._interval_s *= 2

    def view(self, started: float) -> TotalsHistory:
        """All samples, oldest first, of a service that started at that moment."""
        with self._lock:
            samples, interval_s = list(self._samples), self._interval_s
            now, wall = self._clock(), self._wall()
        told = tuple(replace(sample, time=round(wall - (now - moment), 3)) for moment, sample in samples)
        return TotalsHistory(started, round(wall, 3), interval_s, told)
