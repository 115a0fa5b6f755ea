"""Tenants side by side: names that collide, values that are refused, namespaces that are excluded."""

import pytest
import yaml

from e2e.harness import OWNERSHIP, PREFIX, tags_of


def named(group):
    """Everything in the account that its status names, and its role's ARN."""
    status = group.status()
    return {status["activeScalingGroupName"], status["activeLaunchTemplateName"], status["nodesInstanceRoleArn"]}


def shown(group, name):
    """Its scaling group under the name in its status."""
    found = group.cloud.boto("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return next(iter(found), None)


def test_two_tenants_with_colliding_names_both_get_nodes(make_tenant, unique):
    """a-b/c and a/b-c have one derived name between them: taking it over would give one tenant's nodes to the other."""
    one, two = make_tenant(namespace=f"{unique}-b"), make_tenant(namespace=unique)
    first, second = one.group("c", size=(1, 2)), two.group("b-c", size=(1, 2))
    assert first.scaling_group == second.scaling_group

    def converged(group):
        status = group.status()
        found = status.get("currentState") == "Ready" and shown(group, status["activeScalingGroupName"])
        return found and sum(i["LifecycleState"] == "InService" for i in found["Instances"]) == 1 and found

    owner = {}
    for group in (first, second):
        asg = group.wait(converged, what="a node of its own")
        tags = tags_of(asg)
        assert (tags[OWNERSHIP + "Namespace"], tags[OWNERSHIP + "InstanceGroup"]) == (group.tenant.namespace, group.name)
        owner[group.name] = asg["AutoScalingGroupName"]
    assert named(first).isdisjoint(named(second))
    instances = {name: {i["InstanceId"] for i in shown(first, asg)["Instances"]} for name, asg in owner.items()}
    snapshot = first.cloud.snapshot()["groups"][owner["b-c"]]
    first.delete()
    first.wait_gone()
    assert shown(first, owner["c"]) is None
    assert {i["InstanceId"] for i in shown(second, owner["b-c"])["Instances"]} == instances["b-c"]
    after = second.cloud.snapshot()["groups"][owner["b-c"]]
    assert after == snapshot
    # It removes the entry of the role whose name it tried first, which the first group could not remove.
    second.wait_state("Ready")
    nodes = [n for n in second.cloud.get("/api/v1/nodes")["items"] if n["spec"]["providerID"].rsplit("/", 1)[-1] in instances["b-c"]]
    assert len(nodes) == 1 and second.status()["nodesInstanceRoleArn"] in second.cloud.map_roles()
    second.delete()
    second.wait_gone()
    assert not [name for things in second.cloud.snapshot().values() for name in things if unique in name]


def test_a_foreign_role_of_the_derived_name_is_not_used(tenant):
    """A tenant who chooses a group's name would else choose the role of its nodes, past every policy."""
    cloud, name = tenant.cloud, f"{tenant.cloud['cluster_name']}-{tenant.namespace}-web"
    theirs = cloud.make_role(name)
    before = {kind: cloud.snapshot()[kind][name] for kind in ("roles", "profiles")}
    group = tenant.group("web", size=(1, 1))
    status = group.wait(lambda g: g.state() == "Ready" and g.status(), what="nodes with a role of its own")
    assert status["activeScalingGroupName"] != name and status["nodesInstanceRoleArn"] != theirs
    roles = cloud.map_roles().splitlines()
    assert not any(line.endswith(theirs) for line in roles)
    assert any(line.endswith(status["nodesInstanceRoleArn"]) for line in roles)
    assert {kind: cloud.snapshot()[kind][name] for kind in before} == before
    group.delete()
    group.wait_gone()
    assert {kind: cloud.snapshot()[kind][name] for kind in before} == before
    assert [name for kind, things in cloud.snapshot().items() for name in things if tenant.unique in name] == [name, name]


def test_an_excluded_namespace_has_no_boundaries(make_tenant, shared):
    """The platform team's own groups say everything themselves; the tenants' defaults must not reach them."""
    tenant = make_tenant(annotations={PREFIX + "config-excluded": "TRUE"})
    network = {"subnets": shared["subnets"], "securityGroups": [shared["security_group"]]}
    spec = {"provisioner": "EKS", "strategy": {"type": "RollingUpdate"}}
    image = shared["amis"]["bottlerocket"][0]
    annotations = {PREFIX + "os-family": "bottlerocket"}
    group = tenant.group("own", spec, annotations, size=(1, 1), clusterName="demo", image=image, instanceType="m5.large", **network).wait_ready(nodes=1)
    (node,) = group.nodes()
    assert node["metadata"]["labels"][PREFIX + "image"] == image and "example.com/pool" not in node["metadata"]["labels"]
    assert "owner" not in tags_of(group.asg())
    assert not group.status().get("configMD5")
    assert group.has_condition("BoundariesApplied", reason="NoBoundaries")


def test_an_overridden_tenant_value_is_reported(tenant):
    """Silently ignored, a tenant would look for the fault in their image for hours."""
    group = tenant.group(size=(1, 1), image="ami-0badbadbadbadbad0", labels={"team": "a"}).wait_ready(nodes=1)
    condition = group.has_condition("BoundariesApplied", reason="TenantValuesOverridden")
    assert condition and "spec.eks.configuration.image" in condition["message"] and "ami-0badbadbadbadbad0" in condition["message"]
    group.wait_event("TenantValuesOverridden", "ami-0badbadbadbadbad0")
    (node,) = group.nodes()
    assert node["metadata"]["labels"][PREFIX + "image"] == tenant.cloud["amis"]["amazonlinux2023"][0]
    group.patch_spec(image=None)
    group.wait(lambda g: g.has_condition("BoundariesApplied", reason="Applied"), what="BoundariesApplied without a refusal")


@pytest.mark.private
def test_a_quota_of_vcpus_rejects_a_larger_type_and_a_surge(own_cloud, start_controller, make_tenant):
    """Ten nodes may be ten of the largest: AWS's quota is in vCPUs, and one tenant must not use that of all others up."""
    cloud = own_cloud()
    quotas = {"quotas": {"*": {"maxVcpus": 8, "maxSurge": 1}}}
    cloud.edit_config_map(lambda data: data.update(policy=yaml.safe_dump(quotas)))
    controller = start_controller(cloud, "--resync-period", "10s")
    tenant = make_tenant(cloud=cloud, controller=controller)
    group = tenant.group(size=(1, 2), instanceType="m5.large").wait_ready(nodes=1)
    group.wait(lambda g: g.status().get("quotaVcpus") == 4, what="what the quota allowed")
    used = f'instance_manager_quota{{kind="used",namespace="{tenant.namespace}",resource="vcpus"}} 4'
    assert used in controller.metrics() and used.replace("used", "limit").replace("} 4", "} 8") in controller.metrics()
    mark = cloud.log_position()
    group.patch_spec(instanceType="m5.4xlarge")
    rejected = group.wait_condition("FieldsRejected", reason="PolicyViolation")
    for text in ("spec.eks.configuration.instanceType `32 vCPUs` is more than policy.quotas[*] leaves", "may have 8 vCPUs"):
        assert text in rejected["message"], rejected
    group.patch({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 2}}, "eks": {"configuration": {"instanceType": "m5.large"}}}})
    group.wait(lambda g: "maxSurge" in (g.has_condition("FieldsRejected") or {}).get("message", ""), what="the rejected surge")
    assert group.writes(mark) == [] and group.status()["quotaVcpus"] == 4
    group.patch({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}, "eks": {"configuration": {"instanceType": "m5.xlarge"}}}})
    group.wait(lambda g: g.status().get("quotaVcpus") == 8 and g.state() == "Ready", what="the type that fits")
    assert any(write["operation"] == "CreateLaunchTemplateVersion" for write in group.writes(mark))
