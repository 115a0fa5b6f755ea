"""Waves hold managed node groups and the strategy crd as they hold scaling groups; Fargate profiles have no nodes to hold."""

import pytest
import yaml

from e2e import harness, logs, managed, rotation, strategies, test_fargate, test_plan
from e2e.managed import RELEASES
from e2e.test_rollout import LONG_SOAK, ROLLOUT, end_soak, first_change, launched_images, newest, phase, policy, wait_revision, waves

EKS, MANAGED = {"e2e-kind": "eks"}, {"e2e-kind": "managed"}


def set_nodes(cloud, image, release, role):
    """The admin's change: an image for scaling groups, a release for managed node groups."""
    managed_nodes = {"releaseVersion": release, "nodeRole": role}
    defaults = [
        {"annotationSelector": "e2e-kind = eks", "defaults": {"spec": {"eks": {"configuration": {"image": image}}}}},
        {"annotationSelector": "e2e-kind = managed", "defaults": {"spec": {"eks-managed": {"configuration": managed_nodes}}}},
    ]
    cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump(defaults)))


def with_restricted(boundaries, field):
    """The boundaries, in which the admin also decides this field of managed node groups."""
    found = yaml.safe_load(boundaries)
    found["restricted"].append(f"spec.eks-managed.configuration.{field}")
    return yaml.safe_dump(found)


class MixedRolloutGroups:
    """A canary of the provisioner eks, and in the second wave one group each of what replaces nodes in another way."""

    def __init__(self, cloud, start_controller, make_tenant, rollout):
        self.cloud = cloud
        strategies.install(cloud, strategies.ROLLING_UPGRADE)
        self.images, self.role = rotation.images(cloud), cloud.make_role("managed-nodes")
        cloud.edit_config_map(lambda data: data.update(rollout=rollout, boundaries=with_restricted(data["boundaries"], "releaseVersion")))
        self.set(0)
        self.controller = start_controller(cloud, "--resync-period", "10s")
        tenants = [make_tenant(cloud=cloud, controller=self.controller) for _ in range(4)]
        cloud.patch(f"/api/v1/namespaces/{tenants[0].namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
        self.canary = tenants[0].group(annotations=EKS, size=(1, 3))
        tenants[1].apply(managed.manifest(tenants[1], size=(1, 3), annotations=MANAGED))
        self.managed = managed.Managed(tenants[1], "web")
        self.crd = tenants[2].group(annotations=EKS, spec={"strategy": strategies.rolling_upgrade()}, size=(2, 4))
        self.upgrades = strategies.StrategyController(self.crd, strategies.ROLLING_UPGRADE)
        self.fargate = tenants[3].apply(test_fargate.manifest(tenants[3]))
        self.tenants = tenants
        for group, nodes in ((self.canary, 1), (self.managed, 1), (self.crd, 2), (self.fargate, None)):
            group.wait_ready(nodes=nodes, timeout=ROLLOUT)

    def set(self, number):
        """Gives every group another image or release."""
        set_nodes(self.cloud, self.images[number], RELEASES[number], self.role)

    def updates(self, mark):
        """The updates of the managed node group's release."""
        return self.managed.calls("UpdateNodegroupVersion", after=mark)


@pytest.mark.private
@pytest.mark.long
def test_waves_delay_managed_node_groups_and_the_crd_strategy(own_cloud, start_controller, make_tenant):
    """EKS and upgrade-manager replace nodes on their own. The controller must not start them before their wave."""
    rollout_groups = MixedRolloutGroups(own_cloud(), start_controller, make_tenant, policy(soak=LONG_SOAK))
    cloud, mark = rollout_groups.cloud, rollout_groups.cloud.log_position()
    rollout_groups.set(1)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert launched_images(rollout_groups.canary) == {rollout_groups.images[1]}
    for group in (rollout_groups.managed, rollout_groups.crd):
        group.wait_condition("RolloutPending", reason="WaveNotOpen")
        assert group.has_condition("Ready"), group.status()
    assert rollout_groups.updates(mark) == [] and rollout_groups.upgrades.resources() == [] and rollout_groups.crd.writes(mark) == []
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    name = rollout_groups.upgrades.wait_submitted()
    rollout_groups.upgrades.set_phase(name, "running")
    rollout_groups.upgrades.replace_nodes()
    rollout_groups.upgrades.set_phase(name, "completed")
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    assert rollout_groups.managed.nodegroup()["releaseVersion"] == RELEASES[1] and launched_images(rollout_groups.crd) == {rollout_groups.images[1]}
    passed = found["status"]["waves"][0]["passed"][:19]
    assert passed <= first_change(rollout_groups.crd, mark) and passed <= min(logs.timestamp(call) for call in rollout_groups.updates(mark))[:19]
    assert len(rollout_groups.updates(mark)) == 1 and rollout_groups.upgrades.created() == [name]
    assert not rollout_groups.fargate.has_condition("RolloutPending") and len(test_fargate.profiles(rollout_groups.fargate)) == 1
    assert [e for e in rollout_groups.fargate.tenant.aws_events(mark) if logs.is_controller_call(e) and "FargateProfile" in e["operation"] and not e["operation"].startswith(("Describe", "List"))] == []


@pytest.mark.private
@pytest.mark.long
def test_an_abort_starts_no_waiting_group_and_names_groups_that_cannot_return(own_cloud, start_controller, make_tenant):
    """A RollingUpgrade or an EKS update that still begins after an abort would replace every node of the group."""
    rollout_groups = MixedRolloutGroups(own_cloud(), start_controller, make_tenant, policy(soak="300s"))
    cloud, mark = rollout_groups.cloud, rollout_groups.cloud.log_position()
    rollout_groups.set(1)
    found = wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    cloud.patch(f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions/{found['metadata']['name']}", {"spec": {"orders": {"aborted": True}}})
    wait_revision(cloud, lambda r: phase(r) == "Aborted", "the return")
    # The rollout is over when each group has its old content; the nodes follow.
    rollout_groups.canary.wait(lambda g: launched_images(g) == {rollout_groups.images[0]}, ROLLOUT, "the return of the nodes")
    assert rollout_groups.updates(mark) == [] and rollout_groups.upgrades.created() == [] and rollout_groups.crd.writes(mark) == []
    for group in (rollout_groups.managed, rollout_groups.crd):
        group.wait_condition("RolloutPending", reason="Aborted")
        assert group.has_condition("Ready"), group.status()


@pytest.mark.private
@pytest.mark.long
def test_a_node_group_that_cannot_return_is_reported_and_delays_no_other_group(own_cloud, start_controller, make_tenant):
    """EKS refuses an earlier release. A controller that retried it forever, or waited for it, would keep the other groups from their return."""
    rollout_groups = MixedRolloutGroups(own_cloud(), start_controller, make_tenant, policy(soak="300s"))
    cloud, mark = rollout_groups.cloud, rollout_groups.cloud.log_position()
    cloud.patch(f"/api/v1/namespaces/{rollout_groups.tenants[1].namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
    rollout_groups.set(1)
    found = wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert rollout_groups.managed.nodegroup()["releaseVersion"] == RELEASES[1]
    cloud.patch(f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions/{found['metadata']['name']}", {"spec": {"orders": {"aborted": True}}})
    rollout_groups.canary.wait(lambda g: launched_images(g) == {rollout_groups.images[0]} and g.state() == "Ready", ROLLOUT, "the return")
    rollout_groups.managed.wait(lambda g: g.has_condition("Stalled"), ROLLOUT, "a word about the release")
    wait_revision(cloud, lambda r: phase(r) == "Aborted", "the end of the return")
    stalled = rollout_groups.managed.condition("Stalled")
    assert stalled["reason"] == "RefusedByAws" and RELEASES[1] in stalled["message"] and RELEASES[0] in stalled["message"], stalled
    assert len(rollout_groups.updates(mark)) <= 3 and rollout_groups.managed.nodegroup()["releaseVersion"] == RELEASES[1]


@pytest.mark.private
@pytest.mark.long
def test_a_taint_that_evicts_pods_reaches_managed_node_groups_in_waves(own_cloud, start_controller, make_tenant):
    """EKS puts it on all running nodes: the change replaces no node, and would empty every node of the cluster at once."""
    cloud = own_cloud()
    role = cloud.make_role("managed-nodes")

    def set_taints(*taints):
        configuration = {"nodeRole": role, "taints": list(taints)}
        default = {"annotationSelector": "e2e-kind = managed", "defaults": {"spec": {"eks-managed": {"configuration": configuration}}}}
        return cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump([default])))

    restrict = lambda data: data.update(rollout=policy(soak=LONG_SOAK), boundaries=with_restricted(data["boundaries"], "taints"))  # noqa: E731
    cloud.edit_config_map(restrict)
    set_taints()
    controller = start_controller(cloud, "--enable-leader-election=false", "--resync-period", "10s")
    tenants = [make_tenant(cloud=cloud, controller=controller) for _ in range(2)]
    cloud.patch(f"/api/v1/namespaces/{tenants[0].namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
    for tenant in tenants:
        tenant.apply(managed.manifest(tenant, size=(1, 2), annotations=MANAGED))
    canary, other = groups = [managed.Managed(tenant, "web") for tenant in tenants]
    for group in groups:
        group.wait_ready(nodes=1, timeout=ROLLOUT)
    mark = cloud.log_position()
    set_taints({"key": "maintenance", "value": "now", "effect": "NO_EXECUTE"})
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert canary.nodegroup()["taints"] and not other.nodegroup().get("taints")
    assert other.wait_condition("RolloutPending", reason="WaveNotOpen") and other.calls("UpdateNodegroupConfig", after=mark) == []
    code, found = test_plan.planned(cloud, other.key)
    assert found["groups"][0]["rollout"]["effect"] == {"kind": "evict", "nodes": 1}, found
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    other.wait(lambda g: g.nodegroup().get("taints") and g.state() == "Ready", ROLLOUT, "the taint everywhere")
    assert [len(group.calls("UpdateNodegroupConfig", after=mark)) for group in groups] == [1, 1]
