"""The ordered log of calls and state changes, one JSON object per line."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

READ_PREFIXES = ("Describe", "Get", "List", "Head")


def is_read(operation: str) -> bool:
    """Whether an operation only reads. Decided by its name, as IAM's access levels are."""
    return operation.startswith(READ_PREFIXES)


class EventLog:
    """Writes `aws-events.jsonl` and counts the calls in it.

    Every line has `seq` (increases by one), `time` and `kind`:

        - `call`: a write: service, operation, params (without user data), status, error, fault, caller
        - `read`: service, operation, status, error, fault, caller
        - `invalid`: service, operation, caller and violations of a request that breaks the service's model
        - `state`: object (`instance`, `node`, ...), id and its new state
        - `reset`: the counters were set to zero
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._seq = 0
        self._counts: dict[str, Counter[str]] = {"reads": Counter(), "writes": Counter()}

    def _write(self, kind: str, fields: dict[str, Any]) -> int:
        with self._lock:
            self._seq += 1
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            line = {"seq": self._seq, "time": now, "kind": kind, **fields}
            self._file.write(json.dumps(line, default=str) + "\n")
            return self._seq

    def call(self, service: str, operation: str, **fields: Any) -> None:
        """Record a call, after its response was sent or dropped."""
        read = is_read(operation)
        if read:
            fields.pop("params", None)
        with self._lock:
            self._counts["reads" if read else "writes"][f"{service}:{operation}"] += 1
        fields = {key: value for key, value in fields.items() if value is not None}
        self._write("read" if read else "call", {"service": service, "operation": operation, **fields})

    def invalid(self, service: str, operation: str, caller: dict[str, str], violations: list[str]) -> None:
        """Record why a request breaks the service's model. The call itself follows."""
        self._write("invalid", {"service": service, "operation": operation, "caller": caller, "violations": violations})

    def state(self, kind: str, identifier: str, **fields: Any) -> None:
        """Record a state change of a simulated resource."""
        self._write("state", {"object": kind, "id": identifier, **fields})

    def counts(self) -> dict[str, Any]:
        """Number of calls by service and operation since the last reset."""
        with self._lock:
            reads, writes = (dict(sorted(self._counts[kind].items())) for kind in ("reads", "writes"))
        total = {"reads": sum(reads.values()), "writes": sum(writes.values())}
        return {"reads": reads, "writes": writes, "total": total}

    def reset(self) -> int:
        """Set the counters to zero. Returns the sequence number of the `reset` line."""
        with self._lock:
            for counter in self._counts.values():
                counter.clear()
        return self._write("reset", {})
