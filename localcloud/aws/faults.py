"""Fault injection: which calls fail, how, and how often."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from localcloud.aws.event_log import is_read
from localcloud.aws.request import Call

ACTIONS = ("throttle", "error5xx", "deny", "error", "delay", "lose", "stale", "hold")


@dataclass
class Fault:
    """One fault. :mod:`localcloud.aws.control` describes its fields."""

    id: int
    action: str
    service: str = "*"
    operation: str = "*"
    kind: str = "any"
    match: str = ""
    caller: str = ""
    count: int = 1
    after: int = 0
    before: bool = False
    seconds: float = 0.0
    code: str = ""
    message: str = ""
    status: int = 400
    writes: int = 0
    states: list[Any] = field(default_factory=list, repr=False)
    """Of `stale`: copies of the state, oldest first; the first is shown."""
    hits: int = 0

    def applies(self, call: Call) -> bool:
        """Whether the fault matches a call."""
        return (
            self.service in ("*", call.service)
            and self.operation in ("*", call.operation)
            and self.kind in ("any", "read" if is_read(call.operation) else "write")
            and self.match in call.text
            and self.caller in f"{call.access_key} {call.agent}"
        )


class Faults:
    """The active faults, and the calls that they hold back."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.held: dict[int, HeldCall] = {}

    def add(self, fields: dict[str, Any], states: list[Any] | None = None) -> Fault:
        """Add a fault. Raises ValueError for unknown fields and actions."""
        if fields.get("action") not in ACTIONS:
            raise ValueError(f"action: {fields.get('action')!r} is not one of {', '.join(ACTIONS)}")
        unknown = set(fields) - set(Fault.__dataclass_fields__) | {"id", "states", "hits"} & set(fields)
        if unknown:
            raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
        fault = Fault(id=next(self._ids), states=states or [], **fields)
        with self._lock:
            self._faults.append(fault)
        return fault

    def next_fault(self, call: Call) -> Fault | None:
        """The first active fault that matches this call, if any. Counts as a hit."""
        with self._lock:
            for fault in self._faults:
                if fault.count == 0 or not fault.applies(call):
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.hits += 1
                if fault.count > 0:
                    fault.count -= 1
                return fault
        return None

    def denies(self, action: str, access_key: str) -> bool:
        """Whether an active fault denies an IAM action (`autoscaling:EnterStandby`) to the client with that access key."""
        service, _, operation = action.partition(":")
        call = Call(service, operation, {}, access_key, "", {})
        with self._lock:
            active = [fault for fault in self._faults if fault.action == "deny" and fault.count and not fault.after]
            return any(fault.applies(call) for fault in active)

    def remove(self, number: int | None = None) -> None:
        """Remove every fault, or the one with this id. Held calls stay held until they are released."""
        with self._lock:
            self._faults = [fault for fault in self._faults if number not in (None, fault.id)]

    def written(self, copy_state: Callable[[], Any]) -> None:
        """Let stale faults with `writes` follow the state at that distance. Called after each write."""
        with self._lock:
            followers = [fault for fault in self._faults if fault.writes]
        state = copy_state() if followers else None
        for fault in followers:
            fault.states[:] = [*fault.states, state][-fault.writes - 1 :]

    def describe(self) -> list[dict[str, Any]]:
        """The faults as JSON values."""
        hidden = {"states"}
        with self._lock:
            return [{k: v for k, v in vars(fault).items() if k not in hidden} for fault in self._faults]


class HeldCall:
    """A call whose response is held back."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.call = call
        self.lose = False
        self._released = threading.Event()

    def release(self, lose: bool) -> None:
        """Send the response, or drop the connection."""
        self.lose = lose
        self._released.set()

    def wait(self) -> None:
        """Block until the call is released."""
        self._released.wait()
