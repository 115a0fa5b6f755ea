"""Groups of the provisioner eks-fargate: a profile, its role, and their turn before EKS."""

import fnmatch
import json

import pytest

from localcloud.tests import support
from e2e.harness import OWNERSHIP, PREFIX, WAIT, Tenant
from localcloud.tests.support import eventually

EXCLUDED = {PREFIX + "config-excluded": "true"}
SUBNETS = ["demo-private-a", "demo-private-b"]


@pytest.fixture
def fargate(make_tenant):
    """A tenant whose groups need no boundaries."""
    return make_tenant(annotations=EXCLUDED)


def manifest(tenant, name="web", **settings):
    """A group whose selector is the tenant's namespace, unless `settings` say otherwise."""
    settings = {"clusterName": "demo", "subnets": SUBNETS, "selectors": [{"namespace": tenant.namespace}], **settings}
    return {
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1",
        "kind": "InstanceGroup",
        "metadata": {"name": name},
        "spec": {"provisioner": "fargate", "strategy": {"type": "managed"}, "eks-fargate": settings},
    }


def change(group, **settings):
    """Another spec."""
    return group.patch({"spec": {"eks-fargate": settings}})


def profiles(group):
    """The Fargate profiles that carry the group's tags, by name."""
    namespace, name = group.tenant.namespace, group.name
    found = group.cloud.snapshot()["fargate"]
    mine = {OWNERSHIP + "Namespace": namespace, OWNERSHIP + "InstanceGroup": name}
    return {n: p for n, p in found.items() if mine.items() <= p["tags"].items()}


def the_profile(group):
    """Its only one."""
    (profile,) = profiles(group).values()
    return profile


def role_of(group):
    """The name of its role."""
    return group.status()["nodesInstanceRoleArn"].rpartition("/")[2]


def serving(cloud, namespace, after):
    """After each change of the cluster's profiles, whether an ACTIVE one takes pods of the namespace, from the simulator's log."""
    selectors, active, seen = {}, set(), []
    for event in cloud.aws_events():
        if event["kind"] == "call" and event["operation"] == "CreateFargateProfile" and not event.get("error"):
            selectors[event["params"]["fargateProfileName"]] = event["params"]["selectors"]
        elif event["kind"] == "state" and event["object"] == "fargate-profile":
            (active.add if event["state"] == "ACTIVE" else active.discard)(event["id"])
            fits = any(fnmatch.fnmatchcase(namespace, s["namespace"]) for name in active for s in selectors.get(name, []))
            seen += [fits] if event["seq"] > after else []
    return seen


def calls(cloud, operation, text, after=0):
    """Calls of an operation that name something."""
    return [e for e in cloud.aws_events(after) if e["kind"] == "call" and e["operation"] == operation and text in json.dumps(e["params"])]


def test_a_profile_runs_pods_and_is_deleted_with_its_role(fargate):
    """A user asks for pods without nodes of their own, and for a bill that ends with the group."""
    cloud = fargate.cloud
    group = fargate.apply(manifest(fargate, tags=[{"owner": "web"}, {"Name": "pods"}])).wait_ready()
    profile, role = the_profile(group), role_of(group)
    assert profile["status"] == "ACTIVE" and profile["fargateProfileName"] == group.status()["activeScalingGroupName"]
    assert (profile["tags"]["owner"], profile["tags"]["Name"]) == ("web", "pods")
    assert group.status()["provisioner"] == "eks-fargate" and group.status()["strategy"] == "managed"
    assert cloud.snapshot()["roles"][role]["policies"] == ["arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy"]
    entry = cloud.map_roles().partition(role)[2].partition("rolearn")[0]
    assert "system:node:{{SessionName}}" in entry and "system:node-proxier" in entry
    fargate.deployment("app", 2)
    fargate.wait_pods_running(2)
    assert all(p["spec"]["nodeName"].startswith("fargate-ip-") for p in fargate.pods())
    group.delete()
    group.wait_gone()
    assert profile["fargateProfileName"] not in cloud.snapshot()["fargate"]
    assert role not in cloud.snapshot()["roles"] and role not in cloud.map_roles()


def test_a_policy_that_a_user_detached_from_the_role_is_attached_again(fargate):
    """No pod of the profile could start. Without a read at each resync, the group would not report it for an hour."""
    group = fargate.apply(manifest(fargate)).wait_ready()
    attached = lambda: fargate.cloud.snapshot()["roles"][role_of(group)]["policies"]  # noqa: E731
    (policy,) = attached()
    fargate.cloud.boto("iam").detach_role_policy(RoleName=role_of(group), PolicyArn=policy)
    group.wait(lambda _: attached() == [policy], what="the policy of the role")


def test_the_example_gives_what_it_asks_for(fargate):
    """Some pods of a namespace, and all of others, by wildcards."""
    group = fargate.apply((support.REPOSITORY / "examples" / "fargate.yaml").read_text()).wait_ready()
    profile = the_profile(group)
    assert profile["selectors"] == [{"namespace": "batch-*"}, {"namespace": "tenant-a", "labels": {"compute": "fargate"}}]
    assert profile["tags"]["owner"] == "search" and profile["tags"]["cost-center"] == "1234" and len(profile["subnets"]) == 2
    group.delete()
    group.wait_gone()


def test_a_change_of_selectors_always_leaves_one_profile_active(fargate):
    """A pod that starts during the change must find a profile, or it stays pending."""
    cloud = fargate.cloud
    group = fargate.apply(manifest(fargate)).wait_ready()
    first, mark = the_profile(group)["fargateProfileName"], cloud.log_position()
    change(group, selectors=[{"namespace": fargate.namespace}, {"namespace": f"{fargate.namespace}-*"}])
    group.wait_ready()
    second = the_profile(group)["fargateProfileName"]
    assert second.startswith(first + "-") and [s["namespace"] for s in the_profile(group)["selectors"]] == [fargate.namespace, f"{fargate.namespace}-*"]
    seen = serving(cloud, fargate.namespace, mark)
    assert len(seen) >= 4 and all(seen), seen
    assert group.status()["activeScalingGroupName"] == second and "waitingSince" not in group.status()["fargate"]


def test_tags_change_in_place_and_foreign_tags_stay(fargate):
    """A new tag must not cost the pods their lives, and a cost center's tag is not the controller's to remove."""
    cloud = fargate.cloud
    group = fargate.apply(manifest(fargate, tags=[{"owner": "web"}])).wait_ready()
    before = the_profile(group)
    cloud.boto("eks").tag_resource(resourceArn=before["fargateProfileArn"], tags={"cost": "1"})
    change(group, tags=[{"team": "a"}])
    group.wait(lambda g: the_profile(g)["tags"].get("team") == "a" and "owner" not in the_profile(g)["tags"], what="the new tags")
    group.wait_ready()
    assert the_profile(group)["fargateProfileArn"] == before["fargateProfileArn"] and the_profile(group)["tags"]["cost"] == "1"


def test_a_lock_keeps_the_pods_of_the_older_profile(fargate):
    """EKS deletes the pods that run by a profile with it; a lock must hold that."""
    group = fargate.apply(manifest(fargate)).wait_ready()
    fargate.deployment("app", 1)
    fargate.wait_pods_running(1)
    (pod,) = fargate.pods()
    group.annotate(lock_upgrades="true")
    change(group, subnets=["demo-private-c"])
    group.wait_state("Locked")
    assert sorted(p["status"] for p in profiles(group).values()) == ["ACTIVE", "ACTIVE"]
    assert [p["metadata"]["uid"] for p in fargate.pods()] == [pod["metadata"]["uid"]]
    group.annotate(lock_upgrades=None)
    group.wait_ready()
    assert len(profiles(group)) == 1
    fargate.wait_pods_running(1)


def test_the_provisioner_of_a_group_cannot_be_changed(fargate):
    """The profile would still select pods beside the nodes, and no controller would remove it."""
    group = fargate.apply(manifest(fargate)).wait_ready()
    group.patch({"spec": {"provisioner": "eks"}})
    condition = group.wait_condition("Stalled", reason="InvalidSpec")
    assert "spec.provisioner `eks`" in condition["message"] and "restore eks-fargate" in condition["message"]
    assert the_profile(group)["status"] == "ACTIVE"
    group.delete()
    group.wait_gone()
    assert profiles(group) == {}


def test_profiles_of_one_cluster_change_one_at_a_time(fargate):
    """EKS makes one profile at a time: each group must get its own, and its status must say why it waits."""
    cloud, mark = fargate.cloud, fargate.cloud.log_position()
    groups = [fargate.apply(manifest(fargate, name, selectors=[{"namespace": f"{fargate.namespace}-{name}"}])) for name in ("one", "two", "three")]
    waits = set()

    def done(_):
        for group in groups:
            condition = group.condition("Reconciling") or {}
            waits.update({group.name} if "queued behind" in condition.get("message", "") else set())
        return all(group.state() == "Ready" for group in groups)

    groups[0].wait(done, what="every group's turn")
    assert waits, "no group reported that it waits"
    made = calls(cloud, "CreateFargateProfile", fargate.namespace, mark)
    assert sum(not e.get("error") for e in made) == 3
    for group in groups:
        group.delete()
    for group in groups:
        group.wait_gone()


def test_values_that_eks_rejects_are_reported_before_any_call(fargate):
    """The message must say which field, and EKS must not be bothered."""
    mark = fargate.cloud.log_position()
    bad = manifest(fargate, subnets=["demo-public-a"])
    group = fargate.apply(bad)
    condition = group.wait_condition("Stalled", reason="InvalidSpec")
    assert "spec.eks-fargate.subnets" in condition["message"] and "internet gateway" in condition["message"]
    wrong = manifest(fargate, "wrong", selectors=[{"namespace": "No_Namespace"}])
    wrong["spec"]["strategy"] = {"type": "rollingUpdate"}
    condition = fargate.apply(wrong).wait_condition("Stalled", reason="InvalidSpec")
    assert "spec.strategy.type" in condition["message"] and "spec.eks-fargate.selectors[0].namespace" in condition["message"]
    assert calls(fargate.cloud, "CreateFargateProfile", fargate.namespace, mark) == []
    change(group, subnets=SUBNETS)
    group.wait_ready()


def keiko_profile(tenant):
    """The name of the profile that the other controller would have made for the group web; made with its role."""
    cloud = tenant.cloud
    eks = cloud.boto("eks")
    number = 0xCBF29CE484222325
    for byte in f"demo-{tenant.namespace}-web".encode():
        number = ((number ^ byte) * 0x100000001B3) % 2**64
    name = f"fargate-demo-{number}"
    arn = execution_role(cloud, f"{name}-role")
    subnets = [s["SubnetId"] for s in cloud.boto("ec2").describe_subnets(Filters=[{"Name": "tag:Name", "Values": SUBNETS}])["Subnets"] if s["VpcId"]]
    mine = set(eks.describe_cluster(name="demo")["cluster"]["resourcesVpcConfig"]["subnetIds"])
    call = {
        "clusterName": "demo", "fargateProfileName": name, "podExecutionRoleArn": arn, "subnets": [s for s in subnets if s in mine],
        "selectors": [{"namespace": tenant.namespace}], "tags": {"owner": "web"},
    }  # fmt: skip

    def made():
        try:
            return eks.create_fargate_profile(**call)
        except (eks.exceptions.InvalidParameterException, eks.exceptions.ResourceInUseException):
            return None

    eventually(made, WAIT, "EKS to take the call")
    eventually(lambda: cloud.snapshot()["fargate"][name]["status"] == "ACTIVE", WAIT, "the profile")
    return name


def test_a_profile_of_the_keiko_controller_is_adopted_unchanged(fargate):
    """The takeover must neither make another profile nor lose the pods of this one."""
    cloud, name = fargate.cloud, keiko_profile(fargate)
    mark = cloud.log_position()
    group = fargate.apply(manifest(fargate, tags=[{"owner": "web"}])).wait_ready()
    assert list(profiles(group)) == [name]
    group.wait_condition("Adopted", text="adopted")
    assert calls(cloud, "CreateFargateProfile", name, mark) == calls(cloud, "DeleteFargateProfile", name, mark) == []
    group.delete()
    group.wait_gone()
    assert name not in cloud.snapshot()["fargate"] and f"{name}-role" not in cloud.snapshot()["roles"]


def test_a_role_that_is_still_in_use_stays(fargate):
    """Named by its ARN in the group's own spec or in another one's, it must not go: new pods of both could not start."""
    cloud = fargate.cloud
    one = fargate.apply(manifest(fargate, "one")).wait_ready()
    arn, role = one.status()["nodesInstanceRoleArn"], role_of(one)
    attached = lambda: cloud.snapshot()["roles"].get(role, {}).get("policies")  # noqa: E731
    policies = attached()
    change(one, podExecutionRoleArn=arn)
    one.wait_ready()
    assert attached() == policies != []
    two = fargate.apply(manifest(fargate, "two", podExecutionRoleArn=arn, selectors=[{"namespace": f"{fargate.namespace}-two"}])).wait_ready()
    change(one, podExecutionRoleArn=None)
    one.wait_ready()
    one.delete()
    one.wait_gone()
    assert attached() == policies and the_profile(two)["podExecutionRoleArn"] == arn
    assert role in one.wait_event("RoleRetained")["note"] and role in cloud.map_roles()
    three = fargate.apply(manifest(fargate, "three")).wait_ready()
    change(three, podExecutionRoleArn=three.status()["nodesInstanceRoleArn"])
    three.wait_ready()
    own = role_of(three)
    for group in (two, three):
        group.delete()
        group.wait_gone()
    assert own not in cloud.snapshot()["roles"] and attached() == policies


def execution_role(cloud, name):
    """The ARN of a role that pods may start by."""
    trust = {"Effect": "Allow", "Principal": {"Service": "eks-fargate-pods.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam = cloud.boto("iam")
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy")
    return arn


def test_a_role_that_all_groups_stop_using_admits_pods_until_the_last_has_changed(fargate):
    """Another default for the role is one line of the admin's: pods of groups that wait must not lose the cluster meanwhile."""
    cloud = fargate.cloud
    old, new = (execution_role(cloud, f"{fargate.namespace}-{name}") for name in ("old", "new"))
    one, two = (
        fargate.apply(manifest(fargate, name, podExecutionRoleArn=old, selectors=[{"namespace": f"{fargate.namespace}-{name}"}]))
        for name in ("one", "two")
    )
    for group in (one, two):
        group.wait_ready()
    two.annotate(lock_upgrades="true")
    for group in (one, two):
        change(group, podExecutionRoleArn=new)
    two.wait_state("Locked")
    one.wait(lambda g: g.state() == "Ready" and the_profile(g)["podExecutionRoleArn"] == new, what="its new profile alone")
    assert len(profiles(two)) == 2 and old in cloud.map_roles()
    two.annotate(lock_upgrades=None)
    two.wait(lambda _: old not in cloud.map_roles(), what="the removal of the unused role's entry")
    assert the_profile(two)["podExecutionRoleArn"] == new and new in cloud.map_roles()


SHORT_RESYNC = ("--resync-period", "5s")
NO_ELECTION = ("--enable-leader-election=false", *SHORT_RESYNC)


def tenant_without_boundaries(cloud, controller):
    """A tenant of a private cloud, whose groups need no boundaries."""
    return Tenant(cloud, controller, annotations=EXCLUDED)


@pytest.mark.long
@pytest.mark.private
def test_a_failed_profile_is_reported_and_created_again(own_cloud, start_controller):
    """EKS fails for a while: the reason must be seen, and nothing be left to do by hand."""
    cloud = own_cloud()
    tenant = tenant_without_boundaries(cloud, start_controller(cloud, *SHORT_RESYNC))
    cloud.control("POST", "fargate-failure", profile="*", state="CREATE_FAILED", code="AccessDenied")
    group = tenant.apply(manifest(tenant))
    condition = group.wait_condition("Stalled", reason="ProfileFailed")
    assert "AccessDenied" in condition["message"] and "the next attempt is after" in condition["message"]
    cloud.control("POST", "fargate-failure", profile="*", state="CREATE_FAILED", code=None)
    group.wait_ready()
    made = [e for e in calls(cloud, "CreateFargateProfile", tenant.namespace) if not e.get("error")]
    assert len(made) >= 2 and "failures" not in group.status()["fargate"]
    cloud.control("POST", "fargate-failure", profile="*", state="DELETE_FAILED", code="InternalFailure")
    group.delete()
    condition = group.wait_condition("Stalled", reason="ProfileFailed")
    assert "InternalFailure" in condition["message"] and group.state() == "Deleting"
    cloud.control("POST", "fargate-failure", profile="*", state="DELETE_FAILED", code=None)
    group.wait_gone()
    assert cloud.snapshot()["fargate"] == {}


@pytest.mark.long
@pytest.mark.private
def test_crashes_leave_no_duplicates_and_nothing_after_deletion(own_cloud, start_controller):
    """Killed after a write whose answer it never got: the next one finds what there is, and makes nothing twice."""
    cloud = own_cloud()
    controller = start_controller(cloud, *NO_ELECTION)
    tenant = tenant_without_boundaries(cloud, controller)
    before = cloud.snapshot()["roles"].keys()

    def killed_after(operation, act):
        nonlocal controller
        cloud.control("POST", "faults", action="hold", operation=operation, caller="controller", count=1)
        group = act()
        eventually(lambda: cloud.control("GET", "held"), WAIT, f"the held {operation}")
        controller.kill()
        cloud.control("DELETE", "faults")
        cloud.control("POST", "release", lose=True)
        controller = tenant.controller = start_controller(cloud, *NO_ELECTION)
        return group

    for number, operation in enumerate(["CreateRole", "AttachRolePolicy", "CreateFargateProfile"]):
        group = killed_after(operation, lambda n=number: tenant.apply(manifest(tenant, f"g{n}", selectors=[{"namespace": f"{tenant.namespace}-{n}"}])))
        group.wait_ready()
        assert len(profiles(group)) == 1, operation
    for operation, namespace in (("CreateFargateProfile", "a"), ("DeleteFargateProfile", "b")):
        killed_after(operation, lambda n=namespace: change(group, selectors=[{"namespace": f"{tenant.namespace}-{n}"}]))
        group.wait_ready()
        assert len(profiles(group)) == 1 and the_profile(group)["selectors"][0]["namespace"].endswith(f"-{namespace}")
    groups = [tenant.apply(manifest(tenant, f"g{n}")) for n in range(3)]
    for gone, operation in zip(groups, ["DeleteFargateProfile", "DetachRolePolicy", "DeleteRole"], strict=True):
        gone.wait_ready()
        killed_after(operation, gone.delete)
        gone.wait_gone()
    assert cloud.snapshot()["fargate"] == {} and cloud.snapshot()["roles"].keys() == before
    assert "fargate-" not in cloud.map_roles()


@pytest.mark.private
def test_a_missing_permission_is_reported_and_the_group_recovers_once_granted(own_cloud, start_controller):
    """A right that is missing stops the act that needs it and nothing else."""
    cloud = own_cloud()
    tenant = tenant_without_boundaries(cloud, start_controller(cloud, *SHORT_RESYNC))
    with cloud.fault(action="deny", service="eks", operation="CreateFargateProfile", count=-1):
        group = tenant.apply(manifest(tenant))
        condition = group.wait_condition("Stalled", reason="MissingPermission")
        assert "eks:CreateFargateProfile" in condition["message"]
    group.wait_ready()


@pytest.mark.private
def test_in_api_mode_pods_start_with_an_access_entry(own_cloud, start_controller):
    """Without an entry the node of a pod is turned away; one that is left behind lets a role in permanently."""
    cloud = own_cloud("--authentication-mode", "API")
    tenant = tenant_without_boundaries(cloud, start_controller(cloud, *SHORT_RESYNC))
    group = tenant.apply(manifest(tenant)).wait_ready()
    arn = group.status()["nodesInstanceRoleArn"]
    entry = cloud.boto("eks").describe_access_entry(clusterName="demo", principalArn=arn)["accessEntry"]
    assert entry["type"] == "FARGATE_LINUX" and entry["tags"][OWNERSHIP + "InstanceGroup"] == "web"
    role = cloud.boto("iam").get_role(RoleName=arn.rsplit("/", 1)[1])["Role"]["RoleId"]
    assert group.status()["join"] == {"awsAuth": False, "accessEntry": "FARGATE_LINUX", "roleId": role}
    tenant.deployment("app", 1)
    tenant.wait_pods_running(1)
    group.delete()
    group.wait_gone()
    assert arn not in cloud.boto("eks").list_access_entries(clusterName="demo")["accessEntries"]


@pytest.mark.private
def test_a_missing_role_blocks_only_its_own_group(own_cloud, start_controller):
    """EKS makes one profile at a time: a group that can never succeed must not block the others."""
    cloud = own_cloud("--authentication-mode", "API")
    tenant = tenant_without_boundaries(cloud, start_controller(cloud, *SHORT_RESYNC))
    arn = f"arn:aws:iam::123456789012:role/{tenant.unique}-missing"
    one = tenant.apply(manifest(tenant, "one", podExecutionRoleArn=arn))
    message = one.wait_condition("Stalled", reason="RefusedByAws")["message"]
    assert "spec.eks-fargate.podExecutionRoleArn" in message and "invalid principal" in message
    two = tenant.apply(manifest(tenant, "two", selectors=[{"namespace": f"{tenant.namespace}-two"}])).wait_ready()
    two.delete()
    two.wait_gone()
    change(one, podExecutionRoleArn=None)
    one.wait_ready()


def test_a_changed_trust_policy_of_the_own_role_is_repaired_before_the_next_profile(fargate):
    """EKS refuses a profile whose role does not trust it, and the group would stay as it is until a user repairs the role."""
    group = fargate.apply(manifest(fargate)).wait_ready()
    iam, name = fargate.cloud.boto("iam"), role_of(group)
    before = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(before).replace("eks-fargate-pods", "ec2"))
    change(group, selectors=[{"namespace": f"{fargate.namespace}-other"}])
    group.wait_ready()
    assert iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"] == before


@pytest.mark.long
@pytest.mark.private
def test_settled_groups_cost_one_list_call_per_cluster(own_cloud, start_controller):
    """Profiles hardly change: looking at each of them again and again would cost more than they do."""
    cloud = own_cloud()
    tenant = tenant_without_boundaries(cloud, start_controller(cloud, *SHORT_RESYNC))
    groups = [tenant.apply(manifest(tenant, f"g{n}", selectors=[{"namespace": f"x-{n}"}])) for n in range(3)]
    for group in groups:
        group.wait_ready()
    wait_reconciles(groups, 2)
    cloud.control("POST", "reset-log")
    wait_reconciles(groups, 4)
    counts = cloud.control("GET", "calls")
    assert counts["writes"] == {}
    # Each profile is described once in three resync periods.
    assert counts["reads"].get("eks:DescribeFargateProfile", 0) <= 2 * len(groups), counts
    assert counts["reads"].get("eks:ListFargateProfiles", 0) <= 8, counts


def wait_reconciles(groups, times):
    """Waits until each group was looked at so often again."""
    controller = groups[0].tenant.controller

    def looks(group):
        series = f'instance_manager_reconcile_success_total{{instancegroup="{group.key}"}} '
        return next((float(line.rsplit(" ", 1)[1]) for line in controller.metrics().splitlines() if line.startswith(series)), 0)

    before = {group.name: looks(group) for group in groups}
    eventually(lambda: all(looks(g) >= before[g.name] + times for g in groups), WAIT, "another look at every group")
