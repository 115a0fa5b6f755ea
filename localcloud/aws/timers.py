"""Timers that run on one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

log = logging.getLogger(__name__)

# When it is due, its number, and what it runs.
Timer = tuple[float, int, Callable[[], None]]


class Timers:
    """Runs functions after a delay, one at a time, each while holding the given lock."""

    def __init__(self, name: str, lock: AbstractContextManager | None = None) -> None:
        self._lock = lock or nullcontext()
        self._wake = threading.Condition()
        self._due: list[Timer] = []
        self._order = itertools.count()
        self._paused = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Run the function after that many seconds. Functions with equal times run in the order in which they were
        added.
        """
        with self._wake:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), function))
            self._wake.notify()

    def pause(self, paused: bool) -> None:
        """Run no function from now on, or run again those whose time has come meanwhile and all later ones."""
        with self._wake:
            self._paused = paused
            self._wake.notify()

    def _next(self) -> Timer:
        with self._wake:
            while True:
                if self._paused or not self._due:
                    self._wake.wait()
                    continue
                wait = self._due[0][0] - time.monotonic()
                if wait <= 0:
                    return heapq.heappop(self._due)
                self._wake.wait(wait)

    def _run(self) -> None:
        while True:
            timer = self._next()
            try:
                with self._lock:
                    if not self._held_back(timer):
                        timer[2]()
            except Exception:
                log.exception("a timer failed")

    def _held_back(self, timer: Timer) -> bool:
        """Put the timer back if its turn came just before a pause."""
        with self._wake:
            if self._paused:
                heapq.heappush(self._due, timer)
            return self._paused
