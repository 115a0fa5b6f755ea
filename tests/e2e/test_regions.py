"""Two clusters of one name in two regions of one account. IAM belongs to no region, so their groups derive the same IAM names.

Clouds of their own: a region is a simulated AWS of its own.
"""

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
