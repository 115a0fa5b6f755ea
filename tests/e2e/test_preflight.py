"""The change of controllers and back: `preflight` reports what is missing, `release` releases groups to the other controller."""

import json
import os
import subprocess

import pytest

from localcloud.tests import support
from e2e import harness, keiko_groups, keiko_loader, rotation

DONE, REFUSED, SOMETHING = 0, 1, 2
CONTROLLER = "system:serviceaccount:instance-manager:instance-manager"


def command(cloud, *arguments, **credentials):
    """Runs a command of the program as the administrator, or with other credentials for AWS; returns its exit code, its output and what it said beside it."""
    program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
    done = subprocess.run([str(program), *map(str, arguments)], env=cloud.environment | credentials, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def preflight(cloud, *arguments, **credentials):
    """The checks as data, by area, with the exit code."""
    code, out, err = command(cloud, "preflight", "-o", "json", *arguments, **credentials)
    checks = json.loads(out or "null") or pytest.fail(err)
    return code, {area: [c for c in checks if c["area"] == area] for area in {c["area"] for c in checks}}


def without(policy, sid):
    """The policy without the statement of that id."""
    (removed,) = [s for s in policy["Statement"] if s["Sid"] == sid]
    return policy | {"Statement": [s for s in policy["Statement"] if s is not removed]}


def only(checks, finding):
    """The messages of the checks with a finding."""
    return [c["message"] for c in checks if c["finding"] == finding]


@pytest.mark.private
def test_preflight_checks_a_keiko_cluster_without_changing_it(own_cloud, unique):
    """An admin reads what a change of controllers will do."""
    cloud = own_cloud(config=None)
    (group,) = keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(keiko_loader.Site.of(cloud, unique))[0]}).values()
    before, mark = group.snapshot(), group.mark()
    code, found = preflight(cloud, "--as", CONTROLLER)
    assert code == DONE
    assert [c["finding"] for area in ("kubernetes", "crd", "permissions") for c in found[area]] == ["ok"] * 3
    assert any("field manager manager wrote the status of 1 group," in m for m in only(found["writers"], "note"))
    (message,) = only(found["groups"], "ok")
    assert message.startswith(f"{group.key}: adopted at template version 1") and "userData" in message
    assert "may do 10 of EC2's actions" in only(found["iam"], "ok")[0]
    assert any("name the controller's AWS role with --role-arn" in m for m in only(found["iam"], "unknown"))
    policy = json.loads(command(cloud, "preflight", "--policy")[1])
    assert len(policy) == 5
    assert cloud["account"] in json.dumps(policy) and "ACCOUNT" not in json.dumps(policy)
    without_keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    code, found = preflight(cloud, "--as", CONTROLLER, **without_keys)
    assert code == SOMETHING and only(found["aws"], "missing")[0].startswith("no AWS credentials: ") and "permissions" in found
    for arguments in (("plan", "-A"), ("preflight", "--policy")):
        code, out, err = command(cloud, *arguments, **without_keys)
        assert (code, out) == (REFUSED, "") and err.startswith("error: no AWS credentials: "), err
    assert keiko_loader.differences(before, group.snapshot()) == {} and group.writes_since(mark) == []


@pytest.mark.private
def test_preflight_names_what_is_missing_and_its_remedy(own_cloud, unique):
    """A right that is missing would show only after the change of controllers, as a stalled group."""
    cloud = own_cloud(config=None)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/instance-manager"
    role = cloud.get(path)
    role["rules"] = [rule for rule in role["rules"] if "pods/eviction" not in rule["resources"]]
    assert cloud.api("PUT", path, role).ok
    cloud.wait_permission(CONTROLLER, False, resource="pods", subresource="eviction", verb="create")
    # A definition that knows nothing of this controller's own fields, as that of keikoproj/instance-manager.
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/instancegroups.instancemgr.keikoproj.io"
    crd = cloud.get(path)
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["template"]
    assert cloud.api("PUT", path, crd).ok
    group = harness.Tenant(cloud, None, unique).group("web", size=(1, 1), clusterName=cloud["cluster_name"], taints=harness.REPEATED_TAINTS)
    code, found = preflight(cloud, "--as", CONTROLLER)
    assert code == SOMETHING
    assert only(found["permissions"], "missing") == ["create pods/eviction; apply deploy/rbac.yaml"]
    assert "status.template" in only(found["crd"], "missing")[0] and "apply crds/" in only(found["crd"], "missing")[0]
    assert only(found["groups"], "missing")[0].startswith(f"{group.key}: needs manual intervention, InvalidSpec: ")
    assert "MISSING  permissions" in command(cloud, "preflight", "--as", CONTROLLER)[1]


@pytest.mark.private
def test_the_printed_policies_are_complete_and_a_missing_action_is_reported(own_cloud):
    """The printed policies go into AWS as they are; an action that the role lacks would show only when the controller needs it."""
    cloud = own_cloud(config=None)
    iam = cloud.boto("iam")
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
    arn = iam.create_role(RoleName="controller", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    arguments = ("--cluster-name", cloud["cluster_name"])
    policies = json.loads(command(cloud, "preflight", "--policy", *arguments)[1])
    for name, policy in policies.items():
        assert json.loads(command(cloud, "preflight", "--policy", name, *arguments)[1]) == policy
        iam.put_role_policy(RoleName="controller", PolicyName=name, PolicyDocument=json.dumps(policy))

    def check():
        code, found = preflight(cloud, "--role-arn", arn, "--as", CONTROLLER, *arguments)
        return code, found["iam"]

    code, found = check()
    assert code == DONE and [c["finding"] for c in found] == ["ok"] * 5, found
    lacking = without(policies["node-roles"], "PassRolesToInstances")
    iam.put_role_policy(RoleName="controller", PolicyName="node-roles", PolicyDocument=json.dumps(lacking))
    code, found = check()
    (message,) = only(found, "missing")
    assert code == SOMETHING and message.startswith(f"iam:PassRole on arn:aws:iam::{cloud['account']}:role/")
    assert message.endswith("instance-manager preflight --policy node-roles prints it")
    for name in ("fargate", "managed-node-groups"):
        iam.delete_role_policy(RoleName="controller", PolicyName=name)
    noted = only(check()[1], "note")
    assert len(noted) == 2 and all("nothing in this cluster needs it" in message for message in noted)
    assert "MISSING  iam" in command(cloud, "preflight", "--role-arn", arn, *arguments)[1]


@pytest.mark.private
def test_without_policy_simulation_preflight_uses_ec2_dry_runs(own_cloud, unique):
    """A person may not ask IAM about the controller's role; without dry runs nothing at all would be known."""
    cloud = own_cloud(config=None)
    keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(keiko_loader.Site.of(cloud, unique))[0]})
    (template,) = cloud.boto("ec2").describe_launch_templates()["LaunchTemplates"]
    iam = cloud.boto("iam")
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}
    arn = iam.create_role(RoleName="controller", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    policy = json.loads(command(cloud, "preflight", "--policy", "scaling-groups")[1])
    taken = cloud.boto("sts").assume_role(RoleArn=arn, RoleSessionName="preflight")["Credentials"]
    keys = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey", "AWS_SESSION_TOKEN": "SessionToken"}
    keys = {name: taken[key] for name, key in keys.items()}

    def check(policy):
        iam.put_role_policy(RoleName="controller", PolicyName="printed", PolicyDocument=json.dumps(policy))
        with cloud.fault(action="deny", service="iam", operation="SimulatePrincipalPolicy", count=-1, caller=""):
            code, found = preflight(cloud, "--role-arn", arn, "--as", CONTROLLER, **keys)
        return code, found["iam"]

    code, found = check(policy)
    assert code == DONE and "may do 10 of EC2's actions" in only(found, "ok")[0], found
    unknown = only(found, "unknown")
    assert [m.split(":")[1] for m in unknown if m.startswith("ec2:")] == [
        "CreateLaunchTemplateVersion",
        "DeleteLaunchTemplate",
        "DeleteLaunchTemplateVersions",
    ], "nothing has the cluster's tag before the takeover"
    assert "iam:SimulatePrincipalPolicy" in unknown[-1] and "cannot be simulated" in unknown[-1]
    tag = {"Key": "instancegroups.keikoproj.io/ClusterName", "Value": cloud["cluster_name"]}
    cloud.boto("ec2").create_tags(Resources=[template["LaunchTemplateId"]], Tags=[tag])
    code, found = check(without(policy, "ChangeOwnLaunchTemplates"))
    assert code == SOMETHING and "may do 10 of EC2's actions" in only(found, "ok")[0]
    missing = only(found, "missing")
    assert len(missing) == 3 and missing[0].startswith("ec2:CreateLaunchTemplateVersion, as a dry run shows of arn:aws:sts::")
    assert "may do 13 of EC2's actions" in only(check(policy)[1], "ok")[0]
    with cloud.fault(action="deny", service="iam", operation="SimulatePrincipalPolicy", count=-1, caller=""):
        _, others = preflight(cloud, "--role-arn", arn, "--as", CONTROLLER)
    assert [c["finding"] for c in others["iam"]] == ["unknown"], "what the administrator may do says nothing of the role"
    (still,) = cloud.boto("ec2").describe_launch_templates()["LaunchTemplates"]
    assert still == template | {"Tags": [tag]}


@pytest.mark.private
def test_groups_are_handed_back_only_when_they_are_settled(own_cloud, start_controller, make_tenant):
    """keikoproj/instance-manager creates template versions endlessly when a group is pinned, and would undo half a rotation."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=harness.Controller(cloud))
    old, new = rotation.images(cloud)[:2]
    tenant.set_defaults(image=old)
    tenant.controller = controller = start_controller(cloud)
    group = tenant.group("web", size=(2, 3)).wait_ready(nodes=2)
    code, _, err = command(cloud, "release")
    assert code == REFUSED and "holds the Lease" in err and "scale its Deployment to 0" in err
    group.annotate(lock_upgrades="true")
    tenant.set_defaults(image=new)
    group.wait_state("Locked")
    controller.stop()
    code, out, err = command(cloud, "release")
    assert code == REFUSED and "is being replaced or is outdated" in out and "nothing has been changed" in err
    assert group.pinned() == "2"

    group.annotate(lock_upgrades=None)
    tenant.controller = controller = start_controller(cloud)
    group.wait(lambda g: g.template_versions()[-1]["LaunchTemplateData"]["ImageId"] == new and g.state() == "Ready", 2 * harness.WAIT, "its rotation")
    controller.stop()
    assert command(cloud, "release", "--dry-run")[0] == SOMETHING and group.pinned() == "2"
    code, out, _ = command(cloud, "release")
    assert code == DONE and f"{group.key}  version 2 -> $Latest" in out
    assert group.pinned() == "$Latest" and group.asg()["DesiredCapacity"] == 2
    assert command(cloud, "release", "--dry-run")[0] == DONE
    broken = tenant.group("broken", size=(1, 1), taints=harness.REPEATED_TAINTS)
    code, out, err = command(cloud, "release")
    assert code == SOMETHING and f"{broken.key}  skipped, because it cannot be read: InvalidSpec: " in out
    assert "1 group cannot be read" in err
    broken.delete()

    # And forward again.
    mark = cloud.log_position()
    tenant.controller = start_controller(cloud)
    group.wait(lambda g: g.pinned() == "2", what="the pin")
    group.wait_ready(nodes=2)
    assert [call["operation"] for call in group.writes(after=mark)] == ["UpdateAutoScalingGroup"]
