"""What goes wrong around the controller leaves nothing broken: configuration, permissions, AWS, and the controller itself."""

import signal
import time

import pytest
import requests
import yaml

from e2e import harness, logs, rotation
from e2e.harness import AWS_AUTH, CONFIG, WAIT
from e2e.proxy import Proxy
from localcloud.tests.support import eventually

pytestmark = pytest.mark.private

SOON = ("--resync-period", "5s")
LAST_GOOD = f"{CONFIG}-last-good"
WRITES = ("Create", "Delete", "Terminate", "Update", "Attach", "Detach", "Put", "Remove", "Add", "Suspend")
"""How the names of AWS's writes begin."""


def tenant_of(cloud, controller):
    """A tenant of a private cloud."""
    return harness.Tenant(cloud, controller)


def performed_writes(cloud, after, key=None):
    """Calls that were performed and changed something in AWS, by any controller or the one with an access key."""
    found = [e for e in cloud.aws_events(after) if e["kind"] == "call" and 0 < e["status"] < 300 and e["operation"].startswith(WRITES)]
    return [e["operation"] for e in found if e["caller"]["key"] == key or (key is None and e["caller"]["key"] != "person")]


def metric(controller, series):
    """The value of one series, or None."""
    found = [line.rsplit(" ", 1)[1] for line in controller.metrics().splitlines() if line.startswith(series + " ")]
    return float(found[0]) if found else None


def config_events(cloud, reason):
    """Events of a reason on the ConfigMap."""
    found = cloud.get("/apis/events.k8s.io/v1/namespaces/instance-manager/events")["items"]
    return [e for e in found if e["reason"] == reason and e["regarding"]["kind"] == "ConfigMap"]


def wait_reconciled_again(group, controller):
    """Waits until the controller has looked at a group once more."""
    series = [f'instance_manager_reconcile_success_total{{instancegroup="{group.key}"}}']
    series += [f'instance_manager_reconcile_fail_total{{instancegroup="{group.key}",reason="{r}"}}' for r in ("ApplyDefaults", "HandleReconcile", "ResourceValidation")]
    total = lambda: sum(metric(controller, s) or 0 for s in series)  # noqa: E731
    before = total()
    eventually(lambda: total() >= before + 2, WAIT, f"another look at {group.key}")


@pytest.mark.long
def test_the_last_known_good_boundaries_stay_active(own_cloud, start_controller):
    """Without this, a slip in the ConfigMap would free every tenant, or rotate every node, or stop all work."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    group = tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    good, mark = cloud.get(CONFIG)["data"], cloud.log_position()

    def in_force(reason_of_event):
        group.wait_condition("BoundariesApplied", "False", "UsingLastKnownGood")
        eventually(lambda: config_events(cloud, reason_of_event), WAIT, f"an event {reason_of_event} on the ConfigMap")
        assert metric(controller, "instance_manager_boundaries_valid") == 0
        assert cloud.get(LAST_GOOD)["data"] == good

    def restart():
        assert controller.stop() == 0
        new = start_controller(cloud, *SOON)
        tenant.controller = new
        return new

    cloud.patch(CONFIG, {"data": {"boundaries": "restricted: {"}})
    broken = group.wait_condition("BoundariesApplied", "False", "UsingLastKnownGood")
    assert "boundaries" in broken["message"]
    warnings = eventually(lambda: [e for e in cloud.get("/apis/events.k8s.io/v1/namespaces/instance-manager/events")["items"] if e["type"] == "Warning" and e["regarding"]["kind"] == "ConfigMap"], WAIT, "a warning on the ConfigMap")
    in_force(warnings[0]["reason"])
    controller = restart()
    in_force(warnings[0]["reason"])
    late = tenant.group("late", size=(1, 2), image="ami-0aaaaaaaaaaaaaaaa").wait_ready(nodes=1)
    assert late.template_versions()[0]["LaunchTemplateData"]["ImageId"] == "ami-02100000000000001", "restricted still holds"
    cloud.kubectl("delete", "configmap", "instance-manager", "-n", "instance-manager")
    in_force("BoundariesMissing")
    controller = restart()
    in_force("BoundariesMissing")
    assert group.writes(mark) == []
    cloud.install()
    group.wait_condition("BoundariesApplied", "True")
    eventually(lambda: metric(controller, "instance_manager_boundaries_valid") == 1, WAIT, "valid boundaries")
    assert group.writes(mark) == []


def test_without_a_valid_revision_groups_that_had_one_are_not_changed(own_cloud, start_controller):
    """Without this, a restore without ConfigMaps would strip groups of what the admin had set."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    group = tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    controller.stop()
    cloud.kubectl("delete", "configmap", "instance-manager", "instance-manager-last-good", "-n", "instance-manager")
    mark = cloud.log_position()
    group.patch_spec(eks={"maxSize": 3})
    controller = start_controller(cloud, *SOON)
    stalled = group.wait_condition("Stalled", reason="BoundariesUnavailable")
    assert "instance-manager" in stalled["message"]
    assert group.has_condition("BoundariesApplied", "False", "BoundariesUnavailable"), "the opposite would stand beside it"
    group.delete()
    wait_reconciled_again(group, controller)
    assert performed_writes(cloud, mark) == [] and group.get() is not None
    cloud.install()
    group.wait_gone()
    assert group.asg() is None


def test_a_cluster_without_a_config_map_runs_without_boundaries(own_cloud, start_controller):
    """keikoproj/instance-manager does so too: without boundaries no ConfigMap is needed."""
    cloud = own_cloud(config=None)
    controller = start_controller(cloud)
    tenant = tenant_of(cloud, controller)
    configuration = yaml.safe_load(yaml.safe_load(harness.BASIC.read_text())["data"]["defaults"])["spec"]["eks"]["configuration"]
    family = {"instancemgr.keikoproj.io/os-family": "amazonlinux2023"}
    group = tenant.group("web", spec={"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": configuration}}, annotations=family)
    group.wait_ready(nodes=1)
    assert group.condition("BoundariesApplied")["reason"] == "NoBoundaries" and not group.status().get("configMD5")


@pytest.mark.long
def test_without_permission_to_evict_nothing_is_terminated(own_cloud, start_controller):
    """Without this, a forgotten line in a Role would take nodes away under running pods."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    group = rotation.start_group(tenant, 2)
    tenant.deployment("app", 2, rotation.pool(tenant), affinity=rotation.spread("app"))
    tenant.wait_pods_running(2)
    old, path = group.instances(), "/apis/rbac.authorization.k8s.io/v1/clusterroles/instance-manager"
    rules = cloud.get(path)["rules"]
    mark = cloud.log_position()
    cloud.patch(path, {"rules": [r for r in rules if r["resources"] != ["pods/eviction"]]})
    cloud.wait_permission(logs.CONTROLLER, False, resource="pods", subresource="eviction", verb="create")
    new = rotation.images(cloud)[1]
    tenant.set_defaults(image=new)
    stalled = group.wait_condition("Stalled", reason="MissingPermission")
    assert "create" in stalled["message"] and "pods/eviction" in stalled["message"]
    wait_reconciled_again(group, controller)
    group.wait(lambda g: rotation.draining_nodes(g) == [], what="the uncordoned node")
    assert rotation.terminated(group, mark) == []
    # The controller asks about the permission: it need not evict pods to notice that it is restored.
    time.sleep(15)
    assert rotation.draining_nodes(group) == [] and "permission restored" not in controller.log.read_text()
    cloud.patch(path, {"rules": rules})
    rotation.wait_rotated(group, old, 2, new)
    assert "permission restored" in controller.log.read_text()
    assert group.undrained() == {} and group.max_unavailable_seen() == 1


def test_an_action_that_aws_denies_blocks_only_the_groups_that_need_it(own_cloud, start_controller):
    """Without this, an admin would have to guess the action, and one group would hold up all."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    tenant.set_defaults(image=rotation.images(cloud)[0])
    first, second = (tenant.group(name, size=(1, 2)) for name in ("first", "second"))
    first.wait_ready(nodes=1)
    second.wait_ready(nodes=1)
    old, new = second.instances(), rotation.images(cloud)[1]
    template = first.asg()["LaunchTemplate"]["LaunchTemplateId"]
    with cloud.fault(action="deny", operation="CreateLaunchTemplateVersion", match=template, count=-1):
        tenant.set_defaults(image=new)
        stalled = first.wait_condition("Stalled", reason="MissingPermission")
        assert "ec2:CreateLaunchTemplateVersion" in stalled["message"]
        rotation.wait_rotated(second, old, 1, new)
        assert first.pinned() == "1"
    first.wait(lambda g: g.pinned() == "2", what="the new version")
    first.wait_ready(nodes=1)


@pytest.mark.long
@pytest.mark.parametrize(("action", "reason", "retries"), [("throttle", "AWSThrottled", "12"), ("error5xx", "AWSUnavailable", "1"), ("deny", None, "1")])
def test_failed_reads_are_not_treated_as_absence(own_cloud, start_controller, action, reason, retries):
    """Without this, everything would be made a second time, or a finalizer would go while instances still run.

    With the default of 12 attempts, a call takes 90 seconds to fail; its group must say sooner what is wrong.
    """
    cloud = own_cloud()
    controller = start_controller(cloud)
    tenant = tenant_of(cloud, controller)
    stays, goes = (tenant.group(name, size=(1, 2)) for name in ("stays", "goes"))
    stays.wait_ready(nodes=1)
    goes.wait_ready(nodes=1)
    controller.stop()
    mark = cloud.log_position()
    with cloud.fault(action=action, kind="read", count=-1):
        goes.delete()
        controller = start_controller(cloud, *SOON, "--max-api-retries", retries)

        def refused():
            reads = [e for e in cloud.aws_events(mark) if e["kind"] == "read" and e.get("fault") == action]
            return len(reads) >= 12

        eventually(refused, WAIT, "reads that were refused")
        assert performed_writes(cloud, mark) == []
        assert goes.get() is not None and goes.asg() is not None
        if reason:
            reported = stays.wait_condition("Reconciling", reason=reason)
            assert " Describe" in reported["message"] and "since 20" in reported["message"] and stays.has_condition("Ready")
            stays.wait_event(reason, " Describe")
            on_config_map = lambda reason, text: [e for e in cloud.config_events(text) if e["reason"] == reason]
            eventually(lambda: on_config_map(reason, " Describe"), WAIT, "the event for the admin")
            mark_of_retries = cloud.log_position()
            eventually(lambda: len([e for e in cloud.aws_events(mark_of_retries) if e.get("fault") == action]) >= 4, WAIT, "retries")
            assert stays.condition("Reconciling") == reported, "one write says it, not one for each try"
            assert metric(controller, f'instance_manager_instance_group_read_failed{{instancegroup="{stays.key}",reason="{reason}"}}') == 1
    goes.wait_gone()
    stays.wait(lambda g: g.has_condition("Reconciling", "False"), what="an end of the condition")
    stays.wait_ready(nodes=1)
    if reason:
        eventually(lambda: on_config_map("AWSAvailable", "again"), WAIT, "the event about the end")
    assert goes.asg() is None and stays.writes(mark) == []


def test_an_invalid_aws_auth_is_not_changed(own_cloud, start_controller):
    """Without this, an edit of ours could lock every node out of the cluster."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    group = tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    arn = group.status()["nodesInstanceRoleArn"]
    good = cloud.map_roles()

    def write(text):
        cloud.patch(AWS_AUTH, {"data": {"mapRoles": text}})

    for bad in (good + "- rolearn: {\n", good.replace("system:bootstrappers", "system:masters")):
        write(bad)
        stalled = group.wait_condition("Stalled", reason="AuthConflict")
        assert "aws-auth" in stalled["message"]
        size = group.asg()["MaxSize"] + 1
        group.patch_spec(eks={"maxSize": size})
        group.wait(lambda g, size=size: g.asg()["MaxSize"] == size, what="other work")
        late = tenant.group(f"late{size}", size=(1, 2))
        late.wait(lambda g: g.status().get("observedGeneration"), what="a look at the new group")
        assert arn in bad and bad in cloud.map_roles(), "byte for byte"
        write(good)
        group.wait_ready(nodes=1)
        late.wait_ready(nodes=1)
        good = cloud.map_roles()
    cloud.kubectl("delete", "configmap", "aws-auth", "-n", "kube-system")
    eventually(lambda: arn in cloud.map_roles(), WAIT, "a new aws-auth")
    group.wait_ready(nodes=1)


# --- more than one controller ---------------------------------------------------------------------


def standby(start_controller, cloud, key="second"):
    """A controller with an access key of its own that waits for the lease."""
    other = start_controller(cloud, wait=False, env={"AWS_ACCESS_KEY_ID": key})
    eventually(lambda: answer(other) == (200, "standby: another process is the leader"), WAIT, "a second controller that waits")
    return other


def answer(controller):
    """What /readyz says."""
    try:
        said = requests.get(f"http://127.0.0.1:{controller.port}/readyz", timeout=5)
        return said.status_code, said.text.strip()
    except (requests.ConnectionError, requests.Timeout):
        return None


def test_the_standby_controller_becomes_leader_after_the_first_stops(own_cloud, start_controller):
    """Without this, an upgrade of the controller would have two writers, or none for a while."""
    cloud = own_cloud()
    first = start_controller(cloud)
    second = standby(start_controller, cloud)
    tenant = tenant_of(cloud, first)
    group = tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    assert performed_writes(cloud, 0, "second") == [] and not second.ready()
    assert first.stop() == 0
    # Seen by one that does not lead yet.
    (node,) = group.nodes()
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    cloud.patch(path, {"metadata": {"labels": {"kubernetes.io/role": None}}})
    tenant.controller = second
    eventually(second.ready, WAIT, "a new leader")
    eventually(lambda: cloud.get(path)["metadata"]["labels"].get("kubernetes.io/role") == "web", WAIT, "the role's label")
    mark = cloud.log_position()
    group.patch_spec(eks={"maxSize": 3})
    group.wait(lambda g: g.asg()["MaxSize"] == 3, what="the new size")
    assert performed_writes(cloud, mark, "second") == ["UpdateAutoScalingGroup"] and performed_writes(cloud, mark, "controller") == []
    lease = cloud.get("/apis/coordination.k8s.io/v1/namespaces/instance-manager/leases/instance-manager")
    assert lease["spec"]["leaseTransitions"] >= 1


def rotating(cloud, controller, nodes=3):
    """A group in the middle of its rotation, its old instances and the new image."""
    tenant = tenant_of(cloud, controller)
    group = rotation.start_group(tenant, nodes)
    tenant.deployment("app", nodes, rotation.pool(tenant), {"maxUnavailable": 1}, affinity=rotation.spread("app"))
    tenant.wait_pods_running(nodes)
    old, new = group.instances(), rotation.images(cloud)[1]
    tenant.set_defaults(image=new)
    group.wait(lambda g: rotation.terminated(g), what="the first terminated node")
    return group, old, new


def assert_each_drained_once(group, old):
    """Each old node went once, drained, one at a time."""
    assert sorted(terminated(group)) == sorted(old)
    assert group.undrained() == {} and group.max_unavailable_seen() == 1


def terminated(group):
    """Instances that any controller terminated."""
    calls = [e for e in group.events_in_aws() if e["kind"] == "call" and e["operation"] == "TerminateInstanceInAutoScalingGroup"]
    return [e["params"]["InstanceId"] for e in calls if 0 < e["status"] < 300]


def test_a_leader_crash_during_a_rotation_repeats_no_step(own_cloud, start_controller):
    """Without this, a crash would take more nodes than may be unavailable."""
    cloud = own_cloud()
    first = start_controller(cloud)
    second = standby(start_controller, cloud)
    group, old, new = rotating(cloud, first)
    first.kill()
    group.tenant.controller = second
    rotation.wait_rotated(group, old, 3, new)
    assert_each_drained_once(group, old)


def test_a_label_is_set_later_after_conflicts_of_the_api_server(own_cloud, start_controller, make_tenant):
    """A healthy node has no events for minutes. Until then, tools that select it by its role do not find it."""
    cloud = own_cloud()
    proxy = Proxy(cloud)
    controller = start_controller(cloud, *SOON, kubeconfig=proxy.kubeconfig)
    # The node's next events come before the controller tries again.
    conflicts = proxy.fault(method="PATCH", path="/nodes/", status=409, count=4)
    group = make_tenant(cloud=cloud, controller=controller).group("web", size=(1, 1)).wait_ready(nodes=1)
    labels = lambda: group.ready_nodes()[0]["metadata"]["labels"]  # noqa: E731
    wanted = ("kubernetes.io/role", "instancegroups.keikoproj.io/InstanceGroup")
    eventually(lambda: all(labels().get(key) == "web" for key in wanted), WAIT, "the labels")
    proxy.end_fault(conflicts)
    proxy.stop()


def test_a_paused_leader_writes_nothing_after_it_resumes(own_cloud, start_controller):
    """Without this, two leaders would each take the nodes that may be unavailable."""
    cloud = own_cloud()
    proxy = Proxy(cloud)
    first = start_controller(cloud, kubeconfig=proxy.kubeconfig)
    second = standby(start_controller, cloud)
    group, old, new = rotating(cloud, first)
    first.process.send_signal(signal.SIGSTOP)
    group.tenant.controller = second
    eventually(second.ready, WAIT, "a new leader")
    mark, written = cloud.log_position(), len(proxy.written)
    first.process.send_signal(signal.SIGCONT)
    eventually(lambda: first.process.poll() is not None or not first.ready(), WAIT, "the end of the old leader's term")
    rotation.wait_rotated(group, old, 3, new)
    assert_each_drained_once(group, old)
    assert performed_writes(cloud, mark, "controller") == []
    leases = "/apis/coordination.k8s.io/v1/namespaces/instance-manager/leases"
    left = [w for w in proxy.written[written:] if not w[1].startswith(leases)]
    # The signal may stop the process between its question whether it leads and the event that it then sends.
    assert len(left) <= 1 and all(path.startswith("/apis/events.k8s.io/") for _, path in left), left
    proxy.stop()


def test_stale_reads_create_no_duplicates(own_cloud, start_controller):
    """Without this, eventual consistency would leave a second group behind."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SOON)
    tenant = tenant_of(cloud, controller)
    with cloud.fault(action="stale", count=-1):
        group = tenant.group("web", size=(1, 2))
        group.wait(lambda g: g.asg() is not None, what="the scaling group")
        wait_reconciled_again(group, controller)
    group.wait_ready(nodes=1)
    made = [e["operation"] for e in group.writes() if e["operation"].startswith("Create") and e["status"] < 300]
    assert sorted(made) == ["CreateAutoScalingGroup", "CreateInstanceProfile", "CreateLaunchTemplate", "CreateRole"], group.diagnostics()
    for kind, things in cloud.snapshot().items():
        # A group of this provisioner is made of these, and of nothing else.
        expected = 1 if kind in ("groups", "templates", "roles", "profiles") else 0
        assert len([name for name in things if tenant.namespace in name]) == expected, kind
