"""Which perturbations of a run hit: a fault that no request met has no effect, nor has a manual change that found nothing to change."""

from campaign import perturbations
from e2e import logs
from e2e.proxy import Proxy

BY_HAND = ("manual_changes_", "orders")
"""Modules of perturbations that write as a user does."""
ADMIN = "admin"
"""The user of the runner in the audit log."""
OF_THE_RUNNER = ("leases", "events", "rollingupgrades")
"""What the runner and its threads write while a perturbation acts."""


class CountingProxy(Proxy):
    """A proxy that knows every fault and hold that was ever set."""

    def __init__(self, cloud):
        self.made = []
        super().__init__(cloud)

    def fault(self, **fields):
        """See Proxy.fault."""
        self.made.append(super().fault(**fields))
        return self.made[-1]

    def hold(self, *arguments, **fields):
        """See Proxy.hold."""
        self.made.append(super().hold(*arguments, **fields))
        return self.made[-1]


def is_met(made):
    """Whether a request met a fault or a hold of the proxy."""
    return made.hits > 0 if hasattr(made, "hits") else made.reached.is_set()


def of_run(run):
    """The events of the perturbations that hit, in order.

    One that sets faults hits when a request meets one of them, which the runner notes as `met`. One by hand hits when AWS
    or the API server takes a write of a user while it acts. Every other one hits.
    """
    events = [event for event in run["scenario"]["events"] if event["kind"] == "perturbation"]
    begun, ended = ([entry for entry in run["journal"] if entry["what"] == what] for what in ("perturbation", "perturbed"))
    return [event for event, begin, end in zip(events, begun, ended, strict=False) if _hit(run, event, begin["time"], end)]


def _hit(run, event, begin, end):
    if "met" in end:
        return end["met"]
    module = perturbations.load()[event["name"]].module.rpartition(".")[2]
    return not module.startswith(BY_HAND) or _was_written_by_hand(run, begin, end["time"])


def _was_written_by_hand(run, begin, end):
    calls = (e for e in run["aws"] if e["kind"] == "call" and not e["caller"]["key"].startswith("controller") and (e.get("status") or 500) < 300)
    writes = (e for e in run["audit"] if e["user"]["username"] == ADMIN and e["verb"] not in ("get", "list", "watch") and _is_accepted(e))
    return any(begin <= logs.timestamp(e) <= end for each in (calls, writes) for e in each)


def _is_accepted(event):
    is_done = event["responseStatus"].get("code", 500) < 300
    return is_done and (event.get("objectRef") or {}).get("resource") not in OF_THE_RUNNER
