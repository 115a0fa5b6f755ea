"""What the controllers of a world have written, from the simulator's log and the API server's audit log."""

import time

from e2e import logs


class Writes:
    """The logs of one run. A control plane has run before: its audit log begins where this run does."""

    def __init__(self, cloud, user):
        self._user = user
        self._aws, self._audit = logs.Log(cloud["aws_log"]), logs.Log(cloud["audit_log"])
        self._audit.skip()
        self._counted = [(0, 0), (0, 0)]
        """Of both logs: how many lines have been looked at, and how many of them are writes of the controllers."""

    def aws(self):
        """The simulator's log of this run."""
        return self._aws.lines()

    def audit(self):
        """The API server's audit log of this run."""
        return self._audit.lines()

    def count(self):
        """How many writes the controllers have made: to AWS, to the API server."""
        for number, lines in enumerate((self.aws(), self.audit())):
            seen, count = self._counted[number]
            self._counted[number] = (len(lines), count + sum(map(self._is_controllers, lines[seen:])))
        return sum(count for _, count in self._counted)

    def _is_controllers(self, line):
        """Whether a line of either log is a write of a controller under test, other than of a lease."""
        if "kind" in line and "seq" in line:
            return line["kind"] == "call" and line["caller"]["key"].startswith("controller")
        return line["user"]["username"] == self._user and line.get("objectRef", {}).get("resource") != "leases"


class WriteInactivity:
    """How long nothing has been written, since it was made or since the last write that it saw."""

    def __init__(self, writes):
        self._writes, self._last, self._since = writes, writes.count(), time.monotonic()

    def seconds(self):
        """So many seconds; it has to be asked often, because it notices a write when it is asked."""
        written = self._writes.count()
        if written != self._last:
            self._last, self._since = written, time.monotonic()
        return time.monotonic() - self._since
