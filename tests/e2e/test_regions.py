"""Two clusters of one name in two regions of one account. IAM belongs to no region, so their groups derive the same IAM names.

Clouds of their own: a region is a simulated AWS of its own.
"""

import json

import pytest

from e2e import harness
from e2e.test_crash_points import NO_ELECTION

pytestmark = pytest.mark.private

NAMESPACE = "team-regions"


@pytest.fixture(scope="module")
def regions(pooled_cloud):
    """A cloud and a controller in each of two regions."""
    with pooled_cloud() as home, pooled_cloud("--region", "eu-west-1", "--iam", home["aws_endpoint"]) as other:
        started = []
        for cloud in (home, other):
            cloud.install()
            started.append((cloud, harness.Controller(cloud, [*NO_ELECTION, "--resync-period", "6s"]).start()))
        yield started
        for _, controller in started:
            controller.kill()


def role_name(group):
    """The name of its nodes' role."""
    return group.status()["nodesInstanceRoleArn"].rpartition("/")[2]


def test_a_group_in_another_region_leaves_the_role_of_the_same_name_alone(regions, make_tenant):
    """The second group would change the policies of the first one's role, and its deletion would take role and profile from running nodes."""
    first, second = (
        make_tenant(namespace=NAMESPACE, cloud=cloud, controller=controller)
        .group(name="web", size=(1, 1))
        # The scaling group of the second one has another name, too.
        .wait_ready()
        for cloud, controller in regions
    )
    assert role_name(first) == f"demo-{NAMESPACE}-web" != role_name(second)
    iam = first.cloud.boto("iam")
    for group, region in ((first, "us-west-2"), (second, "eu-west-1")):
        tags = {tag["Key"]: tag["Value"] for tag in iam.get_role(RoleName=role_name(group))["Role"]["Tags"]}
        assert tags[harness.OWNERSHIP + "Region"] == region
    kept, name = role_name(first), role_name(second)
    second.delete()
    second.wait_gone()
    profile = iam.get_instance_profile(InstanceProfileName=kept)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [kept]
    assert len(iam.list_attached_role_policies(RoleName=kept)["AttachedPolicies"]) == 3
    first.delete()
    first.wait_gone()
    left = {role["RoleName"] for role in iam.list_roles(MaxItems=1000)["Roles"]}
    assert not left & {kept, name}


def make_role_of_an_earlier_release(iam, name):
    """Takes the tag of the region from a role and its profile, and the use that AWS has recorded. AWS reports a use with a delay."""
    old, key = iam.get_role(RoleName=name)["Role"], harness.OWNERSHIP + "Region"
    policies = [policy["PolicyArn"] for policy in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]]
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
    for policy in policies:
        iam.detach_role_policy(RoleName=name, PolicyArn=policy)
    iam.delete_role(RoleName=name)
    tags = [tag for tag in old["Tags"] if tag["Key"] != key]
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(old["AssumeRolePolicyDocument"]), Tags=tags)
    for policy in policies:
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    iam.untag_instance_profile(InstanceProfileName=name, TagKeys=[key])


def test_a_role_that_two_regions_share_since_an_earlier_release_outlasts_either_group(regions, make_tenant):
    """An earlier release set no tag for the region, so the group of the same name in the other region used the role, too."""
    (home, other_region) = (make_tenant(namespace="team-shared-role", cloud=cloud, controller=controller) for cloud, controller in regions)
    iam = regions[0][0].boto("iam")
    other = other_region.group(name="fleet", size=(1, 1)).wait_ready()
    shared = role_name(other)
    other_region.controller.kill()
    make_role_of_an_earlier_release(iam, shared)
    other.cloud.patch(f"{other.path}/status", {"status": {"managed": {"roleRegion": None}}})
    # The status of an earlier release, which already uses the role.
    home.controller.kill()
    first = home.group(name="fleet", size=(1, 1))
    first.cloud.patch(f"{first.path}/status", {"status": {"managed": {"policies": other.status()["managed"]["policies"]}}})
    home.controller.start()
    first.wait_ready()
    assert role_name(first) == shared
    other_region.controller.start()
    key = harness.OWNERSHIP + "Region"
    tags = {tag["Key"]: tag["Value"] for tag in iam.get_role(RoleName=shared)["Role"]["Tags"]}
    assert tags[key] == "us-west-2", "the region whose group found the role first"
    other.delete()
    other.wait_gone()
    assert other.wait_event("RoleRetained", shared)
    profile = iam.get_instance_profile(InstanceProfileName=shared)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [shared]
    assert len(iam.list_attached_role_policies(RoleName=shared)["AttachedPolicies"]) == 3
    first.delete()
    first.wait_gone()
    assert shared not in {role["RoleName"] for role in iam.list_roles(MaxItems=1000)["Roles"]}


def test_a_controller_of_a_wrong_region_keeps_finalizers_and_creates_nothing(regions, make_tenant, start_controller):
    """AWS shows nothing of the groups there: their finalizers would go and their nodes stay, or they would get second ones in that region."""
    (home, right), (other, _) = regions
    tenant = make_tenant(namespace="team-wrong-region", cloud=home, controller=right)

    def start_wrong(cloud, region):
        right.kill()
        address = {"AWS_ENDPOINT_URL": cloud["aws_endpoint"], "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        return start_controller(home, *NO_ELECTION, "--resync-period", "6s", env=address)

    # The cluster has no nodes yet, which says nothing of its region. The other region has no cluster of its name.
    tenant.set_defaults(eks={"minSize": 0, "maxSize": 1})
    empty = tenant.group(name="empty").wait_ready(nodes=0)
    # Deleted first: the same reason with another text would mean that the active group finds no cluster.
    right.kill()
    empty.delete()
    wrong = start_wrong(home, "ap-south-1")
    empty.wait_condition("Stalled", reason="NotFound", text="AWS_REGION")
    assert harness.FINALIZER in empty.get()["metadata"]["finalizers"] and empty.asg()
    wrong.kill()
    right.start()
    empty.wait_gone()
    # There is a cluster of the same name in the other region.
    running = tenant.group(name="running", size=(1, 1)).wait_ready(nodes=1)
    wrong, before = start_wrong(other, "eu-west-1"), other.log_position()
    late = tenant.group(name="late", size=(1, 1))
    running.delete()
    for group in (running, late):
        group.wait_condition("Stalled", reason="PolicyViolation", text="AWS_REGION")
    assert harness.FINALIZER in running.get()["metadata"]["finalizers"] and running.instances()
    assert tenant.namespace not in json.dumps(other.aws_events(before)), "nothing of these groups is asked for or created there"
    wrong.kill()
    right.start()
    late.wait_ready(nodes=1)
    running.wait_gone()
