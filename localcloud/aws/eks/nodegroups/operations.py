"""The EKS operations on managed node groups, put into moto's dispatcher over our own groups.

Follows the Amazon EKS API Reference; the operations are named by the functions.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.responses import EKSResponse

from localcloud.aws.eks.nodegroups import validation as nodegroup_input, update_validation as nodegroup_update_input
from localcloud.aws.eks.operations import cluster_of, page, parameters, put, repeated
from localcloud.aws.errors import Refused
from localcloud.aws.eks.nodegroups.model import NodeGroup, bad
from localcloud.aws.eks.nodegroups.releases import check_release

BUSY = "Nodegroup cannot be updated as it is currently not in Active State"
TOLERATED = ("AsgInstanceLaunchFailures", "InstanceLimitExceeded", "InsufficientFreeAddresses", "ClusterUnreachable")


def mend(world: Any) -> None:
    """Put the operations into moto."""
    EKSResponse.world = world
    put(NodeGroupActions)


def nodegroup_of(world: Any, params: dict[str, Any]) -> NodeGroup:
    """The node group that a call names, or EKS's error for its absence."""
    cluster_of(world, params["clusterName"])
    found = world.nodegroups.all.get(params["nodegroupName"])
    if found is None:
        raise Refused("ResourceNotFoundException", f"No node group found for name: {params['nodegroupName']}.")
    world.nodegroups.look(found)
    return found


def check_idle(found: NodeGroup) -> None:
    """One change at a time."""
    if found.status not in ("ACTIVE", "DEGRADED"):
        raise Refused("ResourceInUseException", BUSY)


class NodeGroupActions:
    """Methods for moto's response class; `self` is that class's instance."""

    def create_nodegroup(self) -> ActionResult:
        params, groups = parameters(self), self.world.nodegroups
        cluster = cluster_of(self.world, params["clusterName"])
        found, name = repeated(groups.all.values(), params), params.get("nodegroupName")
        if found is None and name in groups.all:
            message = f"NodeGroup already exists with name {name} and cluster name {cluster.name}"
            raise Refused("ResourceInUseException", message)
        if found is None:
            version = params.get("version") or cluster.version
            if version != cluster.version:
                raise bad(f"Requested Nodegroup version {version} is invalid. Allowed nodegroup version is {cluster.version}")
            settings = nodegroup_input.checked(self.world, cluster, params)
            release = check_release(self.world, settings["amiType"], version, params.get("releaseVersion"))
            found = groups.create(cluster, params, settings, version, release)
        return ActionResult({"nodegroup": groups.describe(found)})

    def describe_nodegroup(self) -> ActionResult:
        found = nodegroup_of(self.world, parameters(self))
        return ActionResult({"nodegroup": self.world.nodegroups.describe(found)})

    def list_nodegroups(self) -> ActionResult:
        params = parameters(self)
        cluster_of(self.world, params["clusterName"])
        names, token = page(sorted(self.world.nodegroups.all), params)
        return ActionResult({"nodegroups": names, "nextToken": token})

    def delete_nodegroup(self) -> ActionResult:
        found = nodegroup_of(self.world, parameters(self))
        if found.status in ("CREATING", "UPDATING", "DELETING"):
            raise Refused("ResourceInUseException", f"You cannot delete while nodegroup {found.name} is in status {found.status}")
        self.world.nodegroups.delete(found)
        return ActionResult({"nodegroup": self.world.nodegroups.describe(found)})

    def update_nodegroup_config(self) -> ActionResult:
        params, groups = parameters(self), self.world.nodegroups
        found = nodegroup_of(self.world, params)
        update = repeated(self.world.updates.all, params)
        if update is None:
            check_idle(found)
            settings, shown = nodegroup_update_input.changed(groups.sizes(found), found.settings, params)
            update = groups.update_config(found, settings, shown, params)
        return ActionResult({"update": update.describe()})

    def update_nodegroup_version(self) -> ActionResult:
        params, groups = parameters(self), self.world.nodegroups
        found = nodegroup_of(self.world, params)
        update = repeated(self.world.updates.all, params)
        if update is None:
            check_idle(found)
            if any(issue["code"] not in TOLERATED for issue in found.issues):
                raise Refused("InvalidRequestException", f"Nodegroup health has issues other than [ {', '.join(TOLERATED)} ]")
            cluster = cluster_of(self.world, params["clusterName"])
            target = nodegroup_update_input.target(self.world, cluster, found, params)
            update = groups.update_version(found, target, params)
        return ActionResult({"update": update.describe()})
