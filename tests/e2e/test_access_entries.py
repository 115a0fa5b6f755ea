"""Nodes join by access entries, and roles move from aws-auth to them and back without a gap.

Clouds of their own: how a cluster authenticates concerns every group in it.
"""

import contextlib

import pytest

from e2e import harness, logs
from e2e.proxy import Proxy
from e2e.test_crash_points import NO_ELECTION, AwsPoint, KubePoint
from localcloud.tests.support import eventually

pytestmark = pytest.mark.private

FOREIGN = """\
# Ask before you change anything here.
- rolearn:   arn:aws:iam::123456789012:role/admins   # keep the spaces
  groups: ["system:masters"]
  username: admin
"""
SHORT_RESYNC = ("--resync-period", "6s")


def entries(cloud):
    """Every access entry of the cluster by its principal's ARN."""
    eks, name = cloud.boto("eks"), {"clusterName": cloud["cluster_name"]}
    found = {}
    for arn in eks.list_access_entries(**name)["accessEntries"]:
        # One that goes in between is not there.
        with contextlib.suppress(eks.exceptions.ResourceNotFoundException):
            found[arn] = eks.describe_access_entry(**name, principalArn=arn)["accessEntry"]
    return found


def role_of(group):
    """The ARN of its nodes' role."""
    return group.status()["nodesInstanceRoleArn"]


def ownership(group):
    """The tags that prove that something is this group's."""
    named = {"ClusterName": group.cloud["cluster_name"], "InstanceGroup": group.name, "Namespace": group.tenant.namespace}
    return {harness.OWNERSHIP + key: value for key, value in named.items()}


def calls(cloud, operation):
    """The controller's calls of an operation, in order."""
    return [e for e in cloud.aws_events() if logs.is_controller_call(e) and e["operation"] == operation]


def rejected_nodes(cloud):
    """Nodes that were turned away after they had joined, with the reason."""
    states = [e for e in cloud.aws_events() if e["kind"] == "state" and e["object"] == "node"]
    return [(e["id"], e["reason"]) for e in states if e["state"] == "dead"]


@pytest.fixture(scope="module")
def api(pooled_cloud):
    """A cluster that reads access entries only, and a controller without a flag for it."""
    with pooled_cloud("--authentication-mode", "API") as cloud:
        cloud.install()
        controller = harness.Controller(cloud, [*NO_ELECTION, *SHORT_RESYNC]).start()
        yield cloud, controller
        controller.kill()


def test_nodes_join_with_an_access_entry_only(api, make_tenant):
    """A cluster in the mode API reads no aws-auth: without an entry no node joins, and one that is left behind lets a role in permanently."""
    cloud, controller = api
    group = make_tenant(cloud=cloud, controller=controller).group(size=(1, 1)).wait_ready(nodes=1)
    arn = role_of(group)
    entry = entries(cloud)[arn]
    role = cloud.boto("iam").get_role(RoleName=arn.rsplit("/", 1)[-1])["Role"]["RoleId"]
    assert entry["type"] == "EC2_LINUX" and entry["tags"] == ownership(group) | {harness.OWNERSHIP + "RoleId": role}
    assert group.status()["join"] == {"awsAuth": False, "accessEntry": "EC2_LINUX", "roleId": role}
    assert cloud.get(harness.AWS_AUTH) is None
    made = [calls(cloud, name)[-1]["seq"] for name in ("CreateAccessEntry", "CreateAutoScalingGroup")]
    assert made == sorted(made), "the entry is there before the first node"
    mark = cloud.log_position()
    group.annotate(reconcile_now="1")
    group.wait(lambda g: g.status().get("lastReconcileNow") == "1", what="a look at the group")
    group.wait_ready()
    assert group.writes(after=mark) == []
    group.delete()
    group.wait_gone()
    assert arn not in entries(cloud)
    gone = [calls(cloud, name)[-1]["seq"] for name in ("DeleteAutoScalingGroup", "DeleteAccessEntry", "DeleteRole")]
    assert gone == sorted(gone), "the entry stays until the last node is gone"


def test_windows_nodes_get_an_entry_of_their_own_type(api, make_tenant):
    """Their kube-proxy needs one right more than other nodes have."""
    cloud, controller = api
    tenant = make_tenant(cloud=cloud, controller=controller)
    tenant.set_defaults(annotations={harness.PREFIX + "os-family": "windows"}, image=cloud["amis"]["windows"][0])
    group = tenant.group(size=(1, 1), annotations={harness.PREFIX + "os-family": "windows"}).wait_ready(nodes=1)
    assert entries(cloud)[role_of(group)]["type"] == "EC2_WINDOWS"


def create_access_entry(cloud, arn, kind, **tags):
    """A person's access entry, once IAM knows the role everywhere."""
    eks = cloud.boto("eks")

    def made():
        with contextlib.suppress(eks.exceptions.InvalidParameterException):
            return eks.create_access_entry(clusterName=cloud["cluster_name"], principalArn=arn, type=kind, tags=tags)

    eventually(made, harness.WAIT, f"an access entry for {arn}")


def test_a_shared_role_keeps_its_access_entry_until_its_last_group_is_gone(api, make_tenant, unique):
    """One entry for one role, by its whole ARN: removed with the first group, it would cut off the other's nodes."""
    cloud, controller = api
    arn = cloud.make_role(unique, path="/platform/nodes/")
    tenant = make_tenant(cloud=cloud, controller=controller)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    first, second = (tenant.group(name, size=(1, 1)) for name in ("first", "second"))
    for group in (first, second):
        group.wait_ready(nodes=1)
    assert entries(cloud)[arn]["type"] == "EC2_LINUX" and ":role/platform/nodes/" in arn
    made = [c for c in calls(cloud, "CreateAccessEntry") if arn in str(c["params"]) and c["status"] == 200]
    assert len(made) == 1
    first.delete()
    first.wait_gone()
    assert arn in entries(cloud) and len(second.ready_nodes()) == 1
    second.delete()
    second.wait_gone()
    assert arn not in entries(cloud)


def test_an_existing_access_entry_is_used_and_not_changed(api, make_tenant, unique):
    """Its owner may need it for other things; with the controller's tags on it, the controller could delete it later."""
    cloud, controller = api
    arn = cloud.make_role(unique)
    create_access_entry(cloud, arn, "EC2_LINUX", owner="platform")
    tenant = make_tenant(cloud=cloud, controller=controller)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    before = entries(cloud)[arn]
    assert before["tags"] == {"owner": "platform"}
    group.delete()
    group.wait_gone()
    assert entries(cloud)[arn] == before


def test_an_access_entry_of_another_type_is_reported_and_not_changed(api, make_tenant, unique):
    """It may give users access. The type of an entry cannot be changed, so only an admin can decide."""
    cloud, controller = api
    arn = cloud.make_role(unique)
    eks, name = cloud.boto("eks"), {"clusterName": cloud["cluster_name"], "principalArn": arn}
    create_access_entry(cloud, arn, "STANDARD")
    tenant = make_tenant(cloud=cloud, controller=controller)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group = tenant.group(size=(1, 1))
    stalled = group.wait_condition("Stalled", reason="AuthConflict")
    assert arn in stalled["message"] and "STANDARD" in stalled["message"] and "delete it" in stalled["message"]
    assert entries(cloud)[arn]["type"] == "STANDARD" and group.asg() is None
    eks.delete_access_entry(**name)
    group.wait_ready(nodes=1)
    assert entries(cloud)[arn]["type"] == "EC2_LINUX"


def test_a_deleted_role_loses_its_access_entry_of_any_creator(api, make_tenant):
    """The old entry would keep out nodes of a new role of that name, because EKS knows a role by its id."""
    cloud, controller = api
    group = make_tenant(cloud=cloud, controller=controller).group(size=(1, 1)).wait_ready(nodes=1)
    arn, eks = role_of(group), cloud.boto("eks")
    which = {"clusterName": cloud["cluster_name"], "principalArn": arn}
    controller.kill()
    try:
        eks.delete_access_entry(**which)
        eks.create_access_entry(**which, type="EC2_LINUX")
    finally:
        controller.start()
    group.patch_spec(eks={"maxSize": 2})
    group.wait(lambda g: g.asg()["MaxSize"] == 2, what="other work")
    assert entries(cloud)[arn]["tags"] == {}
    group.delete()
    group.wait_gone()
    assert arn not in entries(cloud)


def test_a_recreated_role_gets_a_new_access_entry(api, make_tenant):
    """EKS lets in the very role that an entry was made for: nodes of a later one of the same name would stay outside."""
    cloud, controller = api
    group = make_tenant(cloud=cloud, controller=controller).group(size=(1, 2)).wait_ready(nodes=1)
    arn, iam, old = role_of(group), cloud.boto("iam"), group.instances()
    new = lambda g: [i for i in g.instances() if i not in old]  # noqa: E731
    name, before = arn.rsplit("/", 1)[-1], entries(cloud)[arn]
    controller.kill()
    try:
        iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
        for policy in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            iam.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
        iam.delete_role(RoleName=name)
    finally:
        controller.start()
    role = lambda: entries(cloud).get(arn, {}).get("tags", {}).get(harness.OWNERSHIP + "RoleId")  # noqa: E731
    eventually(lambda: role() not in (None, before["tags"].get(harness.OWNERSHIP + "RoleId")), harness.WAIT, "an entry for the new role")
    assert role() == iam.get_role(RoleName=name)["Role"]["RoleId"]
    cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=2)
    group.wait(lambda g: new(g) and new(g)[0] in {n["spec"]["providerID"].rsplit("/", 1)[-1] for n in g.ready_nodes()}, what="a Ready node of the new role")


def test_a_join_method_that_the_cluster_does_not_support_is_rejected(api, start_controller, make_tenant):
    """Entries that the cluster ignores would look like a working configuration."""
    cloud, controller = api
    controller.kill()
    try:
        asked = start_controller(cloud, *NO_ELECTION, "--join-auth", "aws-auth")
        group = make_tenant(cloud=cloud, controller=asked).group(size=(1, 1))
        stalled = group.wait_condition("Stalled", reason="AuthModeUnsupported")
        assert "clusterName" in stalled["message"] and "--join-auth" in stalled["message"]
        assert group.asg() is None
        asked.kill()
    finally:
        controller.start()
    group.tenant.controller = controller
    group.wait_ready(nodes=1)


# --- migration ------------------------------------------------------------------------------------------

AUTH_WRITE = KubePoint("PATCH", r"/configmaps/aws-auth")
STEPS = {
    "both": AwsPoint("CreateAccessEntry", until=""),
    "access-entries": AUTH_WRITE,
    "both again": AUTH_WRITE,
    "aws-auth": AwsPoint("DeleteAccessEntry", until=""),
}
"""Where the controller is killed in each step of the migration and of the way back."""


class Migration:
    """A cluster that reads both, whose controller is started with one join method after the other."""

    def __init__(self, cloud):
        self.cloud, self.proxy = cloud, Proxy(cloud)
        self.controller, self.tenants, self.held = None, [], None

    def start(self, method):
        """A controller with that join method."""
        flags = (*NO_ELECTION, *SHORT_RESYNC, "--join-auth", method)
        self.controller = harness.Controller(self.cloud, flags, kubeconfig=self.proxy.kubeconfig).start()
        for tenant in self.tenants:
            tenant.controller = self.controller

    def stop(self):
        """It ends as it would with a new image."""
        self.controller.stop()

    def crash(self, method, point, answer):
        """Starts a controller that is killed in its first write of that kind, whose answer is lost or just came, and another one."""
        self.cloud.control("DELETE", "faults")
        if isinstance(point, AwsPoint):
            self.cloud.control("POST", "faults", action="hold", operation=point.operation, caller="controller", count=1)
        else:
            self.held = self.proxy.hold(point.method, point.path)
        self.start(method)
        eventually(lambda: point.reached(self), harness.WAIT, f"{point} on the way to {method}")
        if answer == "delivered":
            if isinstance(point, AwsPoint):
                for number in list(self.cloud.control("GET", "held")):
                    self.cloud.control("POST", "release", id=int(number), lose=False)
            else:
                self.held.release(lose=False)
        self.controller.kill()
        self.proxy.clear()
        self.cloud.control("DELETE", "faults")
        self.cloud.control("POST", "release", lose=True)
        self.start(method)


@pytest.fixture
def migration(own_cloud):
    made = Migration(own_cloud("--authentication-mode", "API_AND_CONFIG_MAP"))
    yield made
    if made.controller:
        made.controller.kill()
    made.proxy.stop()


@pytest.mark.parametrize("answer", ["lost", "delivered"])
def test_roles_migrate_and_return_with_the_controller_killed_in_every_step(migration, make_tenant, unique, answer):
    """Between two ways in there is no moment without one, and what others wrote stays byte for byte."""
    cloud = migration.cloud
    admin = cloud.make_role(f"{unique}-admin")
    create_access_entry(cloud, admin, "STANDARD")
    foreign = entries(cloud)
    given = cloud.make_role(f"{unique}-given")
    cloud.edit_map_roles(lambda text: FOREIGN + text)
    migration.start("aws-auth")
    own, shares = migration.tenants = [make_tenant(cloud=cloud, controller=migration.controller) for _ in range(2)]
    shares.set_defaults(roleName=f"{unique}-given", instanceProfileName=f"{unique}-given")
    groups = [own.group("own", size=(1, 1)), *(shares.group(name, size=(1, 1)) for name in ("first", "second"))]
    for group in groups:
        group.wait_ready(nodes=1)
    roles = {role_of(group) for group in groups}
    assert roles == {role_of(groups[0]), given}
    # As in a cluster that never used access entries.
    assert all("join" not in group.status() for group in groups) and not calls(cloud, "ListAccessEntries")
    migration.stop()

    def joined(method):
        wanted = {"both": (True, "EC2_LINUX"), "access-entries": (False, "EC2_LINUX"), "both again": (True, "EC2_LINUX"), "aws-auth": (True, None)}[method]
        for group in groups:
            group.wait(lambda g: (lambda j: (j.get("awsAuth"), j.get("accessEntry")) == wanted)(g.status().get("join", {})), what=f"{method} in status.join")
            group.wait_ready(nodes=1)

    for method, point in STEPS.items():
        migration.crash(method.split()[0], point, answer)
        joined(method)
        text, there = cloud.map_roles(), entries(cloud)
        in_text = {arn for arn in roles if f"role/{arn.rsplit('/', 1)[-1]}" in text}
        assert in_text == (set() if method == "access-entries" else roles)
        assert roles & set(there) == (set() if method == "aws-auth" else roles)
        assert FOREIGN in text and {arn: there[arn] for arn in foreign} == foreign
        assert rejected_nodes(cloud) == []
        migration.stop()


def test_auto_keeps_existing_aws_auth_entries_and_creates_access_entries_for_new_roles(migration, make_tenant, unique):
    """An upgrade of the controller changes no existing group. A missing permission stops only the groups that need it."""
    cloud = migration.cloud
    given = cloud.make_role(f"{unique}-given")
    entry = f"- rolearn: {given}\n  username: system:node:{{{{EC2PrivateDNSName}}}}\n  groups: [system:bootstrappers, system:nodes]\n"
    cloud.edit_map_roles(lambda text: entry + text)
    migration.start("auto")
    before, after = migration.tenants = [make_tenant(cloud=cloud, controller=migration.controller) for _ in range(2)]
    with cloud.fault(action="deny", operation="ListAccessEntries", count=-1):
        before.set_defaults(roleName=f"{unique}-given", instanceProfileName=f"{unique}-given")
        old = before.group(size=(1, 1)).wait_ready(nodes=1)
        new = after.group(size=(1, 1))
        new.wait_condition("Stalled", reason="MissingPermission", text="eks:ListAccessEntries")
        assert new.asg() is None and old.has_condition("Ready")
    new.wait_ready(nodes=1)
    there = entries(cloud)
    assert there[role_of(new)]["type"] == "EC2_LINUX" and given not in there
    assert cloud.map_roles() == entry and "join" not in old.status()


def test_events_on_the_config_map_say_when_the_next_migration_step_is_safe(migration, make_tenant, unique):
    """An admin who turns aws-auth off too early disconnects nodes; without the event, an admin would never know."""
    cloud = migration.cloud
    cloud.edit_map_roles(lambda text: FOREIGN + text)
    migration.start("aws-auth")
    tenant = make_tenant(cloud=cloud, controller=migration.controller)
    migration.tenants.append(tenant)
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    migration.stop()

    def notes(reason):
        found = cloud.get("/apis/events.k8s.io/v1/namespaces/instance-manager/events")["items"]
        return [e["note"] for e in found if e["reason"] == reason and e["regarding"]["name"] == "instance-manager"]

    migration.start("both")
    eventually(lambda: any("1 of 1" in note for note in notes("AccessEntriesComplete")), harness.WAIT, "that every role has one")
    group.wait_ready(nodes=1)
    migration.stop()
    migration.start("access-entries")
    eventually(lambda: any("role/admins" in note for note in notes("AwsAuthEntriesRemaining")), harness.WAIT, "what is left in aws-auth")
    assert role_of(group).rsplit("/", 1)[-1] not in cloud.map_roles() and FOREIGN in cloud.map_roles()


def test_windows_and_linux_nodes_with_one_role_migrate_together(migration, make_tenant, unique):
    """An access entry counts before aws-auth: one for Linux alone would turn the Windows nodes of the role away at once."""
    cloud = migration.cloud
    arn = cloud.make_role(f"{unique}-given")
    migration.start("aws-auth")
    windows, linux = migration.tenants = [make_tenant(cloud=cloud, controller=migration.controller) for _ in range(2)]
    family = {harness.PREFIX + "os-family": "windows"}
    windows.set_defaults(annotations=family, image=cloud["amis"]["windows"][0], roleName=f"{unique}-given", instanceProfileName=f"{unique}-given")
    linux.set_defaults(roleName=f"{unique}-given", instanceProfileName=f"{unique}-given")
    groups = [windows.group("b", size=(1, 1), annotations=family).wait_ready(nodes=1)]
    groups.append(linux.group("a", size=(1, 1)).wait_ready(nodes=1))
    assert "eks:kube-proxy-windows" in cloud.map_roles()
    # The Linux group is the first to make an entry, for the other one's spec cannot be worked with at this time.
    groups[0].patch_spec(taints=harness.REPEATED_TAINTS)
    groups[0].wait_condition("Stalled", reason="InvalidSpec")
    migration.stop()
    migration.start("both")
    groups[1].wait(lambda g: g.status().get("join", {}).get("accessEntry"), what="an access entry")
    assert entries(cloud)[arn]["type"] == "EC2_WINDOWS"
    groups[0].patch_spec(taints=None)
    for method, wanted in (("both", (True, "EC2_WINDOWS")), ("access-entries", (False, "EC2_WINDOWS"))):
        migration.stop()
        migration.start(method)
        for group in groups:
            group.wait(lambda g: (lambda j: (j.get("awsAuth"), j.get("accessEntry")) == wanted)(g.status().get("join", {})), what=f"{method} in status.join")
            group.wait_ready(nodes=1)
        assert entries(cloud)[arn]["type"] == "EC2_WINDOWS" and rejected_nodes(cloud) == []
    assert arn not in cloud.map_roles()


def test_a_windows_group_that_starts_to_use_a_linux_role_can_join(api, make_tenant, unique):
    """The entry of the Linux nodes does not let it in, and the one that replaces it must let in both."""
    cloud, controller = api
    arn = cloud.make_role(unique)
    windows, linux = [make_tenant(cloud=cloud, controller=controller) for _ in range(2)]
    family = {harness.PREFIX + "os-family": "windows"}
    windows.set_defaults(annotations=family, image=cloud["amis"]["windows"][0], roleName=unique, instanceProfileName=unique)
    linux.set_defaults(roleName=unique, instanceProfileName=unique)
    first = linux.group(size=(1, 1)).wait_ready(nodes=1)
    assert entries(cloud)[arn]["type"] == "EC2_LINUX"
    windows.group(size=(1, 1), annotations=family).wait_ready(nodes=1)
    assert entries(cloud)[arn]["type"] == "EC2_WINDOWS"
    first.annotate(reconcile_now="1")
    first.wait(lambda g: g.status().get("lastReconcileNow") == "1", what="a look at the group")
    first.wait_ready(nodes=1)
    assert entries(cloud)[arn]["type"] == "EC2_WINDOWS"
