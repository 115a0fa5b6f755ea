"""The EKS operations on managed node groups.

Follows the Amazon EKS API Reference. The functions are named after the API operations.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.responses import EKSResponse

from localcloud.aws.eks.nodegroups import update_validation, validation
from localcloud.aws.eks.nodegroups.model import NodeGroup, invalid_parameter
from localcloud.aws.eks.nodegroups.releases import check_release
from localcloud.aws.eks.operations import add_operations, find_repeated_call, get_cluster, page, request_params
from localcloud.aws.errors import AwsError
from localcloud.aws.iam import callers

BUSY = "Nodegroup cannot be updated as it is currently not in Active State"
TOLERATED_ISSUES = ("AsgInstanceLaunchFailures", "InstanceLimitExceeded", "InsufficientFreeAddresses", "ClusterUnreachable")


def install(simulator: Any) -> None:
    """Add the operations to moto."""
    EKSResponse.simulator = simulator
    add_operations(NodeGroupOperations)


def get_nodegroup(simulator: Any, params: dict[str, Any]) -> NodeGroup:
    """The node group of a call. Raises EKS's error if it does not exist."""
    get_cluster(simulator, params["clusterName"])
    found = simulator.nodegroups.all.get(params["nodegroupName"])
    if found is None:
        raise AwsError("ResourceNotFoundException", f"No node group found for name: {params['nodegroupName']}.")
    simulator.nodegroups.refresh_health(found)
    return found


def check_idle(found: NodeGroup) -> None:
    """Reject a change while another one is in progress."""
    if found.status not in ("ACTIVE", "DEGRADED"):
        raise AwsError("ResourceInUseException", BUSY)


class NodeGroupOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def create_nodegroup(self) -> ActionResult:
        params, groups = request_params(self), self.simulator.nodegroups
        cluster = get_cluster(self.simulator, params["clusterName"])
        found, name = find_repeated_call(groups.all.values(), params), params.get("nodegroupName")
        if found is None and name in groups.all:
            message = f"NodeGroup already exists with name {name} and cluster name {cluster.name}"
            raise AwsError("ResourceInUseException", message)
        if found is None:
            version = params.get("version") or cluster.version
            if version != cluster.version:
                raise invalid_parameter(f"Requested Nodegroup version {version} is invalid. Allowed nodegroup version is {cluster.version}")
            callers.check_service_linked_role(self.simulator, self, "AWSServiceRoleForAmazonEKSNodegroup")
            settings = validation.validate_create(self.simulator, cluster, params)
            release = check_release(self.simulator, settings["amiType"], version, params.get("releaseVersion"))
            found = groups.create(cluster, params, settings, version, release)
        return ActionResult({"nodegroup": groups.describe(found)})

    def describe_nodegroup(self) -> ActionResult:
        found = get_nodegroup(self.simulator, request_params(self))
        return ActionResult({"nodegroup": self.simulator.nodegroups.describe(found)})

    def list_nodegroups(self) -> ActionResult:
        params = request_params(self)
        get_cluster(self.simulator, params["clusterName"])
        names, token = page(sorted(self.simulator.nodegroups.all), params)
        return ActionResult({"nodegroups": names, "nextToken": token})

    def delete_nodegroup(self) -> ActionResult:
        found = get_nodegroup(self.simulator, request_params(self))
        if found.status in ("CREATING", "UPDATING", "DELETING"):
            raise AwsError("ResourceInUseException", f"You cannot delete while nodegroup {found.name} is in status {found.status}")
        self.simulator.nodegroups.delete(found)
        return ActionResult({"nodegroup": self.simulator.nodegroups.describe(found)})

    def update_nodegroup_config(self) -> ActionResult:
        params, groups = request_params(self), self.simulator.nodegroups
        found = get_nodegroup(self.simulator, params)
        update = find_repeated_call(self.simulator.updates.all, params)
        if update is None:
            check_idle(found)
            settings, shown = update_validation.merge_config(groups.sizes(found), found.settings, params)
            update = groups.update_config(found, settings, shown, params)
        return ActionResult({"update": update.describe()})

    def update_nodegroup_version(self) -> ActionResult:
        params, groups = request_params(self), self.simulator.nodegroups
        found = get_nodegroup(self.simulator, params)
        update = find_repeated_call(self.simulator.updates.all, params)
        if update is None:
            check_idle(found)
            if any(issue["code"] not in TOLERATED_ISSUES for issue in found.issues):
                raise AwsError("InvalidRequestException", f"Nodegroup health has issues other than [ {', '.join(TOLERATED_ISSUES)} ]")
            cluster = get_cluster(self.simulator, params["clusterName"])
            target = update_validation.resolve_target(self.simulator, cluster, found, params)
            update = groups.update_version(found, target, params)
        return ActionResult({"update": update.describe()})
