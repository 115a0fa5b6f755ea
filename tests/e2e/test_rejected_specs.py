"""InstanceGroups whose specs were never accepted: their deletion must not delete what the specs name."""

import pytest

from localcloud.tests import support
from e2e import harness, logs, managed
from e2e.harness import FINALIZER, OWNERSHIP
from e2e.test_fargate import manifest as fargate_manifest
from e2e.test_fargate import keiko_profile

NO_ELECTION = ("--enable-leader-election=false", "--resync-period", "5s")
POLICY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: instance-manager, namespace: instance-manager}
data:
  policy: |
    roles: ['*-tenants']
    fargateNamespaces: [shared]
"""
WAIT = 400
NOTHING_DELETED = "nothing is deleted in AWS, because nothing was created for this group"


def delete_calls(cloud, after):
    """The controller's calls that delete, from a line of the simulator's log on."""
    return [e["operation"] for e in cloud.aws_events(after) if logs.is_controller_call(e) and e["operation"].startswith(("Delete", "Detach"))]


def refused_and_deleted(tenant, manifest, path):
    """Applies a group that bears our finalizer already, as a copy does, sees it refused at a field, and delete_calls it."""
    manifest["metadata"]["finalizers"] = [FINALIZER]
    group = tenant.apply(manifest)
    group.wait_condition("Stalled", reason="PolicyViolation", text=path)
    group.delete()
    group.wait_gone(WAIT)
    return group


@pytest.mark.private
def test_a_manifest_of_another_cluster_deletes_nothing_there(own_cloud, start_controller):
    """The production's manifest in staging: its three tags are the same in both, and what serves in production must stay."""
    cloud = own_cloud(config=POLICY)
    production = start_controller(cloud, *NO_ELECTION)
    tenant = harness.Tenant(cloud, production)
    nodes = managed.manifest(tenant, "nodes", (1, 2), nodeRole=cloud.make_role(f"{tenant.unique}-tenants"))
    pods = fargate_manifest(tenant, "pods")
    groups = [tenant.apply(nodes), tenant.apply(pods)]
    for group in groups:
        group.wait_ready(timeout=WAIT)
    production.kill()
    for group in groups:
        group.patch({"metadata": {"finalizers": None}})
        group.delete()
        group.wait_gone()
    tenant.controller = start_controller(cloud, *NO_ELECTION, "--cluster-name", "staging")
    mark = cloud.log_position()
    groups = [refused_and_deleted(tenant, nodes, "spec.eks-managed.configuration.clusterName")]
    groups.append(refused_and_deleted(tenant, pods, "spec.eks-fargate.clusterName"))
    assert delete_calls(cloud, mark) == []
    assert all(group.wait_event("PolicyViolation", NOTHING_DELETED) for group in groups)
    (name,) = managed.names_in_eks(cloud)
    there = cloud.boto("eks").describe_nodegroup(clusterName="demo", nodegroupName=name)["nodegroup"]
    assert there["status"] == "ACTIVE" and there["tags"][OWNERSHIP + "Namespace"] == tenant.namespace
    assert [p["status"] for p in cloud.snapshot()["fargate"].values()] == ["ACTIVE"]


@pytest.mark.private
def test_a_rejected_name_and_role_delete_no_node_group(own_cloud, start_controller):
    """A tenant calls an InstanceGroup as the admin's node group, with its role: refused, and its deletion takes nothing."""
    cloud = own_cloud(config=POLICY)
    tenant = harness.Tenant(cloud, start_controller(cloud, *NO_ELECTION))
    arn, eks = cloud.make_role("platform"), cloud.boto("eks")
    manifest = managed.manifest(tenant, "system", (1, 2), nodeRole=arn)
    tenant.apply(manifest).wait_condition("Stalled", reason="PolicyViolation")
    # Younger than the InstanceGroup, so that its age alone would not save it.
    sizes = {"minSize": 1, "maxSize": 2, "desiredSize": 1}
    eks.create_nodegroup(clusterName="demo", nodegroupName="system", subnets=cloud["subnets"], nodeRole=arn, scalingConfig=sizes, instanceTypes=["m5.large"])
    described = lambda: eks.describe_nodegroup(clusterName="demo", nodegroupName="system")["nodegroup"]
    support.eventually(lambda: described()["status"] == "ACTIVE", WAIT, "the admin's node group")
    mark = cloud.log_position()
    group = refused_and_deleted(tenant, manifest, "spec.eks-managed.configuration.nodeRole")
    assert delete_calls(cloud, mark) == [] and described()["status"] == "ACTIVE" and not described()["tags"]
    assert group.wait_event("PolicyViolation", NOTHING_DELETED)


@pytest.mark.private
def test_resources_of_the_keiko_controller_are_deleted_though_the_spec_is_rejected(own_cloud, start_controller):
    """The rejection replaces the status that recorded the profile: without a deletion it would keep running pods."""
    cloud = own_cloud(config=POLICY)
    tenant = harness.Tenant(cloud, start_controller(cloud, *NO_ELECTION))
    name = keiko_profile(tenant)
    selectors = [{"namespace": tenant.namespace}, {"namespace": "kube-system"}]
    group = refused_and_deleted(tenant, fargate_manifest(tenant, "web", selectors=selectors), "spec.eks-fargate.selectors[1].namespace")
    assert name not in cloud.snapshot()["fargate"] and f"{name}-role" not in cloud.snapshot()["roles"]
    assert group.has_no_event("PolicyViolation", NOTHING_DELETED)
