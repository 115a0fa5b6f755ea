"""Prints one line for each change of a group, each node that joins or leaves, and each event worth following."""

import time

from cloud import Failed

# Event reasons that are printed; `kubectl describe` shows all of them.
PRINTED_REASONS = ("NodeDraining", "InstanceTerminated", "TemplateVersionCreated", "TenantValuesOverridden", "DrainBlocked",
                   "InstanceGroupUpgradeFailed", "RevisionTaken", "RevisionReturned")
# The end of every node's name, which is not printed.
DOMAIN = ".us-west-2.compute.internal"
COLUMNS = "    time  group                 state               ready  updated  draining"


def condition(item, kind):
    """A condition of an object, or an empty dictionary."""
    return next((c for c in item.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def is_true(item, kind):
    """Whether a condition is True."""
    return condition(item, kind).get("status") == "True"


def group_of(node):
    """The group of a node, from the label that its user data set."""
    labels = node["metadata"]["labels"]
    return labels.get("node.kubernetes.io/role") or labels.get("eks.amazonaws.com/nodegroup") or labels.get("eks.amazonaws.com/compute-type", "?")


class Watch:
    """Polls the cluster and prints changes; records the lowest number of ready nodes and pods."""

    def __init__(self, cloud, controller):
        self._cloud, self._controller = cloud, controller
        self._began = time.monotonic()
        self._rows, self._nodes, self._events = {}, {}, set()
        self.fewest_pods = self.fewest_nodes = None

    def until(self, done, what, timeout=180, header=True):
        """Polls until `done(groups)`; `what` names the goal in the error message of a timeout."""
        if header:
            print(COLUMNS)
        deadline = time.monotonic() + timeout
        while True:
            self._controller.check()
            groups = self._cloud.groups()
            self._print_events()
            self._print_nodes()
            self._print_groups(groups)
            if done(groups):
                return groups
            if time.monotonic() > deadline:
                raise Failed(f"{what} did not happen within {timeout} s:\n{self._state(groups)}")
            time.sleep(0.25)

    def count_from_now(self):
        """Resets the recorded minimums."""
        self.fewest_pods = self.fewest_nodes = None

    def pods(self):
        """The nodes of the ready pods of the demo's service, one entry for each pod."""
        pods = self._cloud.items("/api/v1/namespaces/team-search/pods?labelSelector=app%3Dweb")
        return [p["spec"]["nodeName"] for p in pods if is_true(p, "Ready") and "deletionTimestamp" not in p["metadata"]]

    def _print(self, text):
        print(f"  {time.monotonic() - self._began:5.1f}s  {text.replace(DOMAIN, '')}", flush=True)

    def _print_groups(self, groups):
        for name, group in groups.items():
            status = group.get("status", {})
            nodes = status.get("nodes") or {}
            desired = nodes.get("desired", next((section["minSize"] for section in group["spec"].values() if "minSize" in section), 0))
            row = (status.get("currentState", ""), f"{nodes.get('ready', 0)}/{desired}", f"{nodes.get('updated', 0)}/{desired}", nodes.get("draining", 0))
            if self._rows.get(name) != row:
                self._rows[name] = row
                self._print(f"{name:21} {row[0]:19} {row[1]:>5}  {row[2]:>7}  {row[3]:>8}")
        for name in self._rows.keys() - groups.keys():
            del self._rows[name]
            self._print(f"{name:21} deleted")

    def _print_nodes(self):
        nodes = self._cloud.nodes()
        ready = {name: node for name, node in nodes.items() if is_true(node, "Ready")}
        for name, node in ready.items():
            if name not in self._nodes:
                labels = node["metadata"]["labels"]
                image = labels.get("instancemgr.keikoproj.io/image") or labels.get("eks.amazonaws.com/nodegroup-image")
                where = [f"zone {labels.get('topology.kubernetes.io/zone', '?')}", *([image] if image else [])]
                self._print(f"  + node {name} of {group_of(node)}, {', '.join(where)}")
        for name in self._nodes.keys() - nodes.keys():
            self._print(f"  - node {name} of {group_of(self._nodes[name])}")
        self._nodes = {name: node for name, node in nodes.items() if name in ready or name in self._nodes}
        web = sum(group_of(n) == "web" and not n["spec"].get("unschedulable") for n in ready.values())
        pods = len(self.pods())
        self.fewest_nodes = web if self.fewest_nodes is None else min(web, self.fewest_nodes)
        self.fewest_pods = pods if self.fewest_pods is None else min(pods, self.fewest_pods)

    def _print_events(self):
        for event in self._cloud.items("/apis/events.k8s.io/v1/events?fieldSelector=regarding.kind%3DInstanceGroup"):
            key = (event["metadata"]["uid"], event.get("series", {}).get("count"))
            if key in self._events:
                continue
            self._events.add(key)
            if event.get("reason") in PRINTED_REASONS:
                pods = f"; {len(self.pods())} pods ready" if event["reason"] == "NodeDraining" and event["regarding"]["name"] == "web" else ""
                note = event.get("note", "")
                if event["reason"] == "InstanceTerminated" and "): " in note:
                    note = note.split("): ")[0].removesuffix(")") + ")"  # the reason was printed when the drain began
                self._print(f"  {event['regarding']['name']}: {note}{pods}")

    @staticmethod
    def _state(groups):
        lines = []
        for name, group in groups.items():
            messages = [f"{c['type']} {c.get('reason', '')}: {c['message']}" for c in group.get("status", {}).get("conditions", []) if c.get("message")]
            lines.append(f"  {name}: {group.get('status', {}).get('currentState')} {'; '.join(messages)}")
        return "\n".join(lines)
