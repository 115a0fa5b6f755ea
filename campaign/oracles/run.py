"""A run with what several oracles need of it."""

import json
import re
from datetime import datetime

from campaign import perturbations, state
from campaign import scenario as scenarios
from e2e import logs

GRACE = 20
"""Seconds in which a controller need not have seen that a node was lost without it, or that more were asked for."""

LOSES_STATUS = ("status wiped", "made again without its finalizer")
"""Perturbations that take the status of a group away, by their arguments."""

WITHOUT_MANUAL_CHANGES = ("aws", "clock", "network", "process")
"""Modules of perturbations that change nothing by hand."""


class Run:
    """A run with what several oracles need of it."""

    def __init__(self, run):
        self.raw = run
        self.aws, self.audit, self.journal = [logs.Line(line) for line in run["aws"]], run["audit"], run["journal"]
        self.user = run["settings"]["user"]
        self.names = scenarios.names(run["scenario"])
        self._templates = _templates(self.aws)
        longest = sorted(self.names, key=len, reverse=True)
        self._named = re.compile(rf"\b{state.NAMESPACE}-({'|'.join(longest)})\b")

    def has_manual_changes(self):
        """Whether users changed something by hand."""
        registry = perturbations.load()
        used = [registry[e["name"]].module for e in self.raw["scenario"]["events"] if e["kind"] == "perturbation"]
        return any(module.rpartition(".")[2] not in WITHOUT_MANUAL_CHANGES for module in used)

    def has_manual_changes_of(self, group):
        """Whether users changed something by hand that is this group's, or everyone's."""
        registry = perturbations.load()
        used = [e for e in self.raw["scenario"]["events"] if e["kind"] == "perturbation" and e["arguments"].get("group") in (None, group)]
        return any(registry[e["name"]].module.rpartition(".")[2] not in WITHOUT_MANUAL_CHANGES for e in used)

    def group_in(self, text):
        """The group that a text names, or None."""
        found = self._named.search(text)
        return found and found[1]

    def group_of(self, line):
        """The group that a line of a log names, or None."""
        if "objectRef" in line:
            return line["objectRef"].get("name") if line["objectRef"].get("resource") == "instancegroups" else None
        return self.group_in(line.params_text)

    def moment(self, what):
        """When the runner first noted something."""
        return next((entry["time"] for entry in self.journal if entry["what"] == what), "9")

    def note(self, what):
        """The runner's last note of that kind."""
        return next((entry for entry in reversed(self.journal) if entry["what"] == what), {})

    def is_ours(self, line):
        """Whether a line of the simulator's log is a call of a controller under test."""
        return line["kind"] == "call" and line["caller"]["key"].startswith("controller")

    def calls(self, done=True):
        """The controllers' calls that wrote; those that AWS accepted unless `done` is false."""
        return [e for e in self.aws if self.is_ours(e) and (not done or (e.get("status") or 500) < 300)]

    def writes(self):
        """The controllers' accepted writes to the API server, without leases and events."""
        audited = [e for e in self.audit if e["user"]["username"] == self.user and e["responseStatus"].get("code", 500) < 300]
        return [e for e in audited if e.get("objectRef", {}).get("resource") not in ("leases", "events")]

    def template(self, names, version, when):
        """The content that a version of a launch template of one of these names or ids had at a moment, or None."""
        found = [data for at, name, number, data in self._templates if name in names and number == str(version) and at <= when]
        return found[-1] if found else None

    def content_of(self, reference, instance):
        """The content of a launch template version, given a reference to it, as it was when an instance launched, or is now."""
        launched = (logs.timestamp(e) for e in self.aws if e["kind"] == "state" and e.get("id") == instance)
        names = (reference.get("LaunchTemplateId"), reference.get("LaunchTemplateName"))
        return self.template(names, reference["Version"], next(launched, "9"))

    def specs(self, group):
        """(moment, spec) of a group's specs, oldest first; a spec of None when it was deleted."""
        found = [(e["time"], e["to"]["spec"] if e["what"] == "apply" else None) for e in self.journal if e["what"] in ("apply", "delete") and e["group"] == group]
        return found

    def is_deleted(self, group, when):
        """Whether the group is gone at a moment, or its last deletion has not ended: by the runner's notes and the audit log.

        A group that was applied again meanwhile counts as deleted until the API server has created the new object.
        """
        if spec_at(self.specs(group), when) is None:
            return True
        past = [e for e in self.audit if _is_group(e, group) and logs.timestamp(e) <= when]
        deletions = [at for at, e in enumerate(past) if e["verb"] == "delete"]
        if not deletions:
            return False
        created = any(e["responseStatus"].get("code") == 201 for e in past[deletions[-1] :])
        return not created or between(logs.timestamp(past[deletions[-1]]), when) < GRACE

    def was_replaced_unseen(self, group):
        """Whether the group was created again without a deletion by the controller, and its spec changed within moments.

        The status is lost, and with it what the controller attached for the spec before.
        """
        past = [e for e in self.audit if _is_group(e, group)]
        specs = self.specs(group)
        for at, event in enumerate(past[1:], 1):
            if event["responseStatus"].get("code") != 201:
                continue
            deletion = max((i for i, e in enumerate(past[:at]) if e["verb"] == "delete"), default=0)
            released = any(e["user"]["username"] == self.user and "finalizers" in str(e.get("requestObject")) for e in past[deletion:at])
            created = logs.timestamp(event)
            changed = [spec for when, spec in specs if spec is not None and 0 < between(created, when) < GRACE]
            if not released and changed and changed[-1] != spec_at(specs, created):
                return True
        return False

    def lost_the_record_of(self, role):
        """Whether a group whose spec had named a role of users then lost its status, with it that the controller made the role's entry.

        An entry of aws-auth says nothing of its maker, so it stays when the group leaves the role, or had just left it.
        """
        name = re.compile(rf"\b{re.escape(role.rpartition('/')[2])}\b(?!-)")
        return any(
            name.search(json.dumps(spec)) for group in self.names for lost in self._losses_of_status(group) for when, spec in self.specs(group) if when <= lost
        )

    def _losses_of_status(self, group):
        """When a user removed what the status of a group records, by hand."""
        wiped = [e for e in self.journal if e["what"] == "perturbation" and e["name"] in LOSES_STATUS and e["arguments"].get("group") == group]
        return [e["time"] for e in wiped if e["arguments"].get("part", "all") in ("all", "managed") and not e["arguments"].get("status")]

    def clock_ahead(self, when):
        """By how many seconds the controller's clock may have been ahead at a moment or before."""
        moved = [e["arguments"].get("by", 0) for e in self.journal if e["what"] == "perturbation" and e["name"] == "clock jumps" and e["time"] <= when]
        return max([0, *moved])

    def provisioner(self, group):
        """The provisioner of a group."""
        return next(spec["provisioner"] for _, spec in self.specs(group) if spec)


def _is_group(event, name):
    """Whether a line of the audit log is an accepted request for an InstanceGroup, and not for its status."""
    ref = event.get("objectRef") or {}
    accepted = event["responseStatus"].get("code", 500) < 300
    return accepted and ref.get("resource") == "instancegroups" and ref.get("name") == name and not ref.get("subresource")


def _templates(aws):
    """The launch template versions in the order in which they were made: (moment, the template's name or its id, version, data)."""
    found, latest = [], {}
    for line in aws:
        if line["kind"] != "call" or (line.get("status") or 500) >= 300 or line["operation"] not in ("CreateLaunchTemplate", "CreateLaunchTemplateVersion"):
            continue
        params = line["params"]
        name = params.get("LaunchTemplateName") or params.get("LaunchTemplateId")
        latest[name] = 1 if line["operation"] == "CreateLaunchTemplate" else line.get("version") or latest.get(name, 1) + 1
        found.append((logs.timestamp(line), name, str(latest[name]), params.get("LaunchTemplateData")))
    return found


def text(value):
    """A value for a message."""
    return json.dumps(value, sort_keys=True)[:300]


def between(one, other):
    """Seconds from one moment to another, as the logs write them."""
    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


def seconds(one, other):
    """Seconds from one line to another."""
    return between(logs.timestamp(one), logs.timestamp(other))


def spec_at(specs, when):
    """The spec at a moment, None if the group did not exist."""
    return ([None] + [spec for at, spec in specs if at <= when])[-1]
