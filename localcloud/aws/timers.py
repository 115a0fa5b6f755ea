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


class Timers:
    """Runs functions after a delay, one at a time, each while holding the given lock."""

    def __init__(self, name: str, lock: AbstractContextManager | None = None) -> None:
        self._lock = lock or nullcontext()
        self._wake = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Run the function after that many seconds. Functions with equal times run in the order in which they were
        added.
        """
        with self._wake:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), function))
            self._wake.notify()

    def _next(self) -> Callable[[], None]:
        with self._wake:
            while True:
                if not self._due:
                    self._wake.wait()
                    continue
                wait = self._due[0][0] - time.monotonic()
                if wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._wake.wait(wait)

    def _run(self) -> None:
        while True:
            function = self._next()
            try:
                with self._lock:
                    function()
            except Exception:
                log.exception("a timer failed")
