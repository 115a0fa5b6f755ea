"""InstanceGroups that were never accepted, and go: what their specs name is somebody else's, whatever it is called and tagged."""

import pytest

import support
from e2e import harness, judge, managed
from e2e.harness import FINALIZER, OWNERSHIP
from e2e.test_fargate import manifest as fargate_manifest
from e2e.test_fargate import originals

ALONE = ("--enable-leader-election=false", "--resync-period", "5s")
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
TOLD = "nothing is deleted in AWS, because nothing was created for this group"


def deletes(cloud, after):
    """The controller's calls that delete, from a line of the simulator's log on."""
    return [e["operation"] for e in cloud.aws_events(after) if judge.by_controller(e) and e["operation"].startswith(("Delete", "Detach"))]


def refused_and_deleted(tenant, manifest, path):
    """Applies a group that bears our finalizer already, as a copy does, sees it refused at a field, and deletes it."""
    manifest["metadata"]["finalizers"] = [FINALIZER]
    group = tenant.apply(manifest)
    assert path in group.wait_condition("Stalled", reason="PolicyViolation")["message"]
    group.delete()
    group.wait_gone(WAIT)
    return group


@pytest.mark.private
def test_a_manifest_of_another_cluster_takes_nothing_of_that_cluster_along(own_cloud, start_controller):
    """The production's manifest in staging: its three tags are the same in both, and what serves in production must stay."""
    cloud = own_cloud(config=POLICY)
    production = start_controller(cloud, *ALONE)
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
    tenant.controller = start_controller(cloud, *ALONE, "--cluster-name", "staging")
    mark = cloud.now()
    groups = [refused_and_deleted(tenant, nodes, "spec.eks-managed.configuration.clusterName")]
    groups.append(refused_and_deleted(tenant, pods, "spec.eks-fargate.clusterName"))
    assert deletes(cloud, mark) == []
    assert all(group.event("PolicyViolation", TOLD) for group in groups)
    (name,) = managed.names_in_eks(cloud)
    there = cloud.boto("eks").describe_nodegroup(clusterName="demo", nodegroupName=name)["nodegroup"]
    assert there["status"] == "ACTIVE" and there["tags"][OWNERSHIP + "Namespace"] == tenant.namespace
    assert [p["status"] for p in cloud.snapshot()["fargate"].values()] == ["ACTIVE"]


@pytest.mark.private
def test_a_name_and_a_role_that_the_policy_forbids_take_no_node_group_along(own_cloud, start_controller):
    """A tenant calls an InstanceGroup as the admin's node group, with its role: refused, and its deletion takes nothing."""
    cloud = own_cloud(config=POLICY)
    tenant = harness.Tenant(cloud, start_controller(cloud, *ALONE))
    arn, eks = cloud.make_role("platform"), cloud.boto("eks")
    manifest = managed.manifest(tenant, "system", (1, 2), nodeRole=arn)
    tenant.apply(manifest).wait_condition("Stalled", reason="PolicyViolation")
    # Younger than the InstanceGroup, so that its age alone would not save it.
    sizes = {"minSize": 1, "maxSize": 2, "desiredSize": 1}
    eks.create_nodegroup(clusterName="demo", nodegroupName="system", subnets=cloud["subnets"], nodeRole=arn, scalingConfig=sizes, instanceTypes=["m5.large"])
    described = lambda: eks.describe_nodegroup(clusterName="demo", nodegroupName="system")["nodegroup"]
    support.eventually(lambda: described()["status"] == "ACTIVE", WAIT, "the admin's node group")
    mark = cloud.now()
    group = refused_and_deleted(tenant, manifest, "spec.eks-managed.configuration.nodeRole")
    assert deletes(cloud, mark) == [] and described()["status"] == "ACTIVE" and not described()["tags"]
    assert group.event("PolicyViolation", TOLD)


@pytest.mark.private
def test_what_the_other_controller_made_goes_though_its_spec_is_refused_by_now(own_cloud, start_controller):
    """The refusal takes the place of the status that told of the profile: it would go on taking pods, and nobody would know."""
    cloud = own_cloud(config=POLICY)
    tenant = harness.Tenant(cloud, start_controller(cloud, *ALONE))
    name = originals(tenant)
    selectors = [{"namespace": tenant.namespace}, {"namespace": "kube-system"}]
    group = refused_and_deleted(tenant, fargate_manifest(tenant, "web", selectors=selectors), "spec.eks-fargate.selectors[1].namespace")
    assert name not in cloud.snapshot()["fargate"] and f"{name}-role" not in cloud.snapshot()["roles"]
    assert not group.event("PolicyViolation", TOLD)
