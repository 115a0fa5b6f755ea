"""Updates of managed node groups: of their configuration and of their version.

Every method runs while holding the simulator's lock. Follows the Amazon EKS User Guide, "Update a managed node group
for your cluster" and "Understand each phase of node updates".
"""

from __future__ import annotations

from typing import Any

from localcloud.aws.autoscaling.model import now
from localcloud.aws.eks.nodegroups.model import NodeGroup, issue
from localcloud.aws.eks.nodegroups.rolling_update import RollingUpdate
from localcloud.aws.eks.nodegroups.user_data import kubernetes_taint
from localcloud.aws.eks.updates import Update


class Updates:
    """The part of the node groups that updates them. See :class:`localcloud.aws.eks.nodegroups.lifecycle.NodeGroups`."""

    simulator: Any

    def sizes(self, found: NodeGroup) -> dict[str, int]:
        """The current sizes. The desired size is that of the scaling group, without the surge of an update."""
        group = self.scaling_group(found)
        configured = found.settings["scalingConfig"]
        if group is None or found.status == "DELETING":
            return configured
        return configured | {"desiredSize": max(group.desired - found.surge, 0)}

    def describe(self, found: NodeGroup) -> dict[str, Any]:
        """The node group as DescribeNodegroup returns it now."""
        return found.describe() | {"scalingConfig": self.sizes(found)}

    def begin(self, found: NodeGroup, kind: str, shown: dict[str, Any], request: dict[str, Any]) -> Update:
        """Start an update."""
        update = self.simulator.updates.begin(kind, shown, request, found.name)
        self.set_status(found, "UPDATING", found.issues)
        return update

    def finish(self, found: NodeGroup, update: Update, problem: dict[str, Any] | None = None) -> None:
        """End an update, with an issue if it failed. The group is ACTIVE again in either case."""
        self.simulator.updates.end(update, *([error_of(problem)] if problem else []))
        self.set_status(found, "ACTIVE")
        self.refresh_health(found)

    def update_config(self, found: NodeGroup, settings: dict[str, Any], shown: dict[str, Any], request: dict[str, Any]) -> Update:
        """Start to change the configuration."""
        update = self.begin(found, "ConfigUpdate", shown, request)
        self.after(lambda: self.apply_config(found, update, settings), self.delay(found, "nodegroup"))
        return update

    def apply_config(self, found: NodeGroup, update: Update, settings: dict[str, Any]) -> None:
        """Change the scaling group, the existing nodes, and the launch template of new nodes."""
        injected = found.injected_issues.get("update")
        group = self.scaling_group(found)
        if injected or group is None:
            self.finish(found, update, injected or self.missing_group(found))
            return
        before = {key: found.settings[key] for key in ("labels", "taints")}
        found.settings |= settings
        if "scalingConfig" in settings:
            sizes = settings["scalingConfig"]
            given = "DesiredSize" in update.params
            group.min_size, group.max_size = sizes["minSize"], sizes["maxSize"]
            group.desired = sizes["desiredSize"] if given else group.desired
            self.simulator.engine.reconcile_soon(group)
        if {"labels", "taints"} & set(settings):
            self.use_version(found, self.add_version(found, found.version, found.release))
            self.change_nodes(found, before)
        found.modified = now()
        self.after(lambda: self.finish(found, update), self.delay(found, "nodegroup"))

    def change_nodes(self, found: NodeGroup, before: dict[str, Any]) -> None:
        """Apply changed labels and taints to the existing nodes. Other labels and taints are kept."""
        old, new = before["labels"], found.settings["labels"]
        add = {key: value for key, value in new.items() if old.get(key) != value}
        remove = [key for key in old if key not in new]
        was, wanted = (list(map(kubernetes_taint, taints)) for taints in (before["taints"], found.settings["taints"]))
        changed = {(taint["key"], taint["effect"]) for taint in was + wanted if (taint in was) != (taint in wanted)}

        def taints(present: list[dict[str, Any]]) -> list[dict[str, Any]]:
            kept = [taint for taint in present if (taint["key"], taint["effect"]) not in changed]
            return kept + [taint for taint in wanted if (taint["key"], taint["effect"]) in changed]

        for member in self.scaling_group(found).members.values():
            if self.node_of(member):
                self.manager.update_labels_and_taints(self.node_of(member), add, remove, taints)

    def update_version(self, found: NodeGroup, target: tuple[str, str], request: dict[str, Any]) -> Update:
        """Start to replace the nodes by nodes of another version and release."""
        update = self.begin(found, "VersionUpdate", {"Version": target[0], "ReleaseVersion": target[1]}, request)
        self.after(lambda: self.start_rolling_update(found, update, target), self.delay(found, "nodegroup"))
        return update

    def start_rolling_update(self, found: NodeGroup, update: Update, target: tuple[str, str]) -> None:
        """Start to replace the nodes one after another."""
        injected = found.injected_issues.get("update")
        if injected or self.scaling_group(found) is None:
            self.finish(found, update, injected or self.missing_group(found))
            return
        RollingUpdate(self, found, update, target, bool(update.request.get("force"))).start()

    def delay(self, found: NodeGroup, name: str) -> float:
        """EKS's delay for this group, in seconds."""
        return found.delays.get(name, getattr(self.simulator.settings.delays, name))

    def set_delays(self, name: str, delays: dict[str, Any]) -> None:
        """Set EKS's delays for a group, for tests."""
        unknown = set(delays) - {"nodegroup", "node_join_timeout", "drain", "cordoned"}
        if unknown:
            raise ValueError(f"delays: {', '.join(sorted(unknown))} are not EKS's with a node group")
        self.all[name].delays |= {key: float(value) for key, value in delays.items()}

    def inject_issue(self, name: str, operation: str, code: str | None, message: str | None, resources: list[str]) -> None:
        """Set or remove an issue of a group's creation, updates, deletion, or of its health, for tests."""
        if operation not in ("create", "update", "delete", "degraded"):
            raise ValueError(f"operation: {operation!r} is not one of create, update, delete, degraded")
        found = self.all[name]
        found.injected_issues.pop(operation, None)
        if code:
            found.injected_issues[operation] = issue(code, message or f"{code}, injected by a test", resources)
        self.refresh_health(found)


def error_of(problem: dict[str, Any]) -> dict[str, Any]:
    """An issue as the error of an update."""
    return {"errorCode": problem["code"], "errorMessage": problem["message"], "resourceIds": problem["resourceIds"]}
