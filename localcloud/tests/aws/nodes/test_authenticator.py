"""Authorization of nodes by access entries, with a real control plane."""

import time

import pytest

from localcloud.tests.aws.nodes.site import POLICY, Site
from localcloud.tests.aws.support import TRUST, wait_until


@pytest.fixture(scope="module")
def site(start_cloud):
    """Launches nodes in a cloud for this module, in the mode API_AND_CONFIG_MAP."""
    return Site(start_cloud("--authentication-mode", "API_AND_CONFIG_MAP"))


@pytest.fixture
def api_mode(site):
    """Sets the mode API during the test."""
    site.control.post("cluster", authentication_mode="API")
    yield
    site.control.post("cluster", authentication_mode="API_AND_CONFIG_MAP")


@pytest.fixture
def nodes(site):
    """Launches one instance with a role. Returns its group. Groups are deleted after the test."""
    made = []

    def launch(profile, family="amazonlinux2023"):
        made.append(site.launch(site.user_data(family), profile, site.cloud["amis"][family][0]))
        return made[-1]

    yield launch
    for name in made:
        site.asg.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


def create_entry(site, role, kind):
    """Create an access entry for a role."""
    site.eks.create_access_entry(clusterName=site.cloud["cluster_name"], principalArn=role, type=kind)


def delete_entry(site, role):
    """Delete the access entry of a role."""
    site.eks.delete_access_entry(clusterName=site.cloud["cluster_name"], principalArn=role)


def test_a_node_requires_an_access_entry_to_join_and_to_stay_ready(site, nodes, api_mode):
    """Amazon EKS User Guide, "Create access entries": ARNs with their path; aws-auth counts no more in the mode API."""
    role, profile = site.role(path="/team/blue/")
    site.add_aws_auth_entry(role.replace("team/blue/", ""))
    group = nodes(profile)
    assert site.reason(group) == f"there is no access entry for {role}"
    create_entry(site, role, "EC2_LINUX")
    (node,) = site.ready(group)
    delete_entry(site, role)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "Unknown", "the node to be Unknown")
    create_entry(site, role, "EC2_LINUX")
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "True", "the node to be Ready again")


def test_the_access_entry_type_must_match_the_node(site, nodes, api_mode):
    """Amazon EKS User Guide, "Create access entries": EC2_LINUX, EC2_WINDOWS and the types that are for other things."""
    role, profile = site.role()
    windows, linux = nodes(profile, "windows"), nodes(profile)
    create_entry(site, role, "STANDARD")
    wrong = f"the access entry for {role} is of type STANDARD, not "
    wait_until(lambda: (site.reason(linux), site.reason(windows)) == (f"{wrong}EC2_LINUX", f"{wrong}EC2_WINDOWS"), "the reasons")
    delete_entry(site, role)
    create_entry(site, role, "EC2_LINUX")
    site.ready(linux)
    wait_until(lambda: site.reason(windows).endswith("is of type EC2_LINUX, not EC2_WINDOWS"), "the reason of the Windows node")
    delete_entry(site, role)
    create_entry(site, role, "EC2_WINDOWS")
    site.ready(windows)


def test_an_access_entry_overrides_aws_auth_and_either_is_sufficient(site, nodes):
    """Amazon EKS User Guide, "Migrate to access entries": "the settings for the access entry ... override the ConfigMap entry"."""
    role, profile = site.role()
    group = nodes(profile)
    wait_until(lambda: "no access entry for" in site.reason(group) and "kube-system/aws-auth" in site.reason(group), "both reasons")
    site.add_aws_auth_entry(role)
    (node,) = site.ready(group)
    create_entry(site, role, "STANDARD")
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "Unknown", "the entry to count")
    delete_entry(site, role)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "True", "aws-auth to count again")
    create_entry(site, role, "EC2_LINUX")
    site.remove_aws_auth_entry(role)
    site.control.post("cluster", authentication_mode="API")
    other = nodes(profile)
    site.ready(other)
    assert site.condition(node["metadata"]["name"]) == "True"
    site.control.post("cluster", authentication_mode="API_AND_CONFIG_MAP")


def test_an_access_entry_does_not_authorize_a_recreated_role(site, nodes, api_mode):
    """Amazon EKS User Guide, "Create access entries": "If you ... recreate the IAM principal, ... the access entry won't work"."""
    role, profile = site.role()
    name = role.rsplit("/", 1)[1]
    create_entry(site, role, "EC2_LINUX")
    (running,) = site.ready(nodes(profile))
    site.iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
    site.iam.detach_role_policy(RoleName=name, PolicyArn=POLICY)
    site.iam.delete_role(RoleName=name)
    site.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    site.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
    site.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    time.sleep(site.cloud["delays"]["propagation"] + 0.1)
    group = nodes(profile)
    assert "no access entry" in site.reason(group)
    delete_entry(site, role)
    create_entry(site, role, "EC2_LINUX")
    site.ready(group)
    # AWS IAM API Reference, AddRoleToInstanceProfile: the change reaches running instances too, eventually.
    wait_until(lambda: site.condition(running["metadata"]["name"]) == "True", "the node that ran before to join with the new role")
