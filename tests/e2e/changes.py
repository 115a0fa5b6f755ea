"""Waiting for something new in the logs of a cloud: looks in short intervals would cost more than the controller under test."""

import time

from e2e import logs
from localcloud.aws.fork_server import SERVICES

LONGEST = 1
"""Seconds after which a test looks again in any case: a moment that passes is in no log."""


class Changes:
    """What the simulated AWS and the API server log from now on."""

    def __init__(self, cloud):
        self._aws, self._kubernetes = (logs.NewLines(cloud[key]) for key in ("aws_log", "audit_log"))

    def wait(self, shortest, asked, names):
        """Waits that many seconds, and then for a line about what a test `asked` for (see `Cloud.asked`) with one of the
        texts `names`."""
        time.sleep(shortest)
        kubernetes = {each for each in asked if each.startswith("/") or each == "audit"}
        aws = {each for each in asked if each in SERVICES or each in ("aws_events", "control/snapshot", "control/group")}
        if not asked or asked - kubernetes - aws:
            return
        ignored = ['"kind": "read"', '"resource":"leases"']
        if not any("/events" in each for each in kubernetes):
            ignored.append('"resource":"events"')
        wanted, unwanted = ([text.encode() for text in texts] for texts in (names, ignored))
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            lines = [*(self._aws.read() if aws else []), *(self._kubernetes.read() if kubernetes else [])]
            if any(any(text in line for text in wanted) and not any(text in line for text in unwanted) for line in lines):
                return
            time.sleep(0.1)
