"""Groups that the other controller made with a launch configuration: kept, converted by the first change, rotated once."""

import base64

import pytest

from e2e.harness import OWNERSHIP, tags_of
from e2e.rotation import ROTATION, images, wait_rotated

STAMP = "20250101000000"


@pytest.fixture
def old_account(shared):
    """The account may still make launch configurations."""
    shared.control("POST", "allow-launch-configurations", allowed=True)


def found(tenant, nodes):
    """What the other controller left of a group `web` that launches from a configuration, and the InstanceGroup over it."""
    donor = tenant.group("donor", size=(0, 1)).wait_ready()
    defaults = {"roleName": donor.scaling_group, "image": images(tenant.cloud)[0]}
    tenant.set_defaults(**defaults)
    data, like = donor.template_versions()[-1]["LaunchTemplateData"], donor.asg()
    name = f"{tenant.cloud['cluster_name']}-{tenant.namespace}-web"
    asg = tenant.cloud.boto("autoscaling")
    asg.create_launch_configuration(
        LaunchConfigurationName=f"{name}-{STAMP}", ImageId=data["ImageId"], InstanceType=data["InstanceType"],
        SecurityGroups=data["SecurityGroupIds"], IamInstanceProfile=data["IamInstanceProfile"]["Arn"],
        UserData=base64.b64decode(data["UserData"]).decode(),
    )
    tags = {**tags_of(like), "Name": name, OWNERSHIP + "InstanceGroup": "web"}
    asg.create_auto_scaling_group(
        AutoScalingGroupName=name, MinSize=nodes, MaxSize=nodes + 2, LaunchConfigurationName=f"{name}-{STAMP}", VPCZoneIdentifier=like["VPCZoneIdentifier"],
        Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True, "ResourceId": name, "ResourceType": "auto-scaling-group"} for key, value in tags.items()],
    )
    mark = tenant.cloud.log_position()
    return tenant.group(size=(nodes, nodes + 2)), defaults, mark


def configurations(group):
    """The names of the launch configurations that are there for it."""
    pages = group.cloud.boto("autoscaling").get_paginator("describe_launch_configurations").paginate()
    return [c["LaunchConfigurationName"] for page in pages for c in page["LaunchConfigurations"] if c["LaunchConfigurationName"].startswith(group.scaling_group + "-")]


def test_a_group_keeps_its_launch_configuration_until_its_nodes_change(tenant, old_account):
    """A change of controllers that replaced every such node would be an outage."""
    group, defaults, mark = found(tenant, 2)
    group.wait_ready(nodes=2)
    name, old = f"{group.scaling_group}-{STAMP}", group.instances()
    assert group.status()["activeLaunchConfigurationName"] == name
    assert group.has_condition("Adopted") and [w["operation"] for w in group.writes(after=mark)] == []
    group.patch_spec(eks={"maxSize": 5})
    group.wait(lambda g: g.asg()["MaxSize"] == 5, what="the larger size")
    group.wait_ready(nodes=2)
    assert group.instances() == old and group.asg()["LaunchConfigurationName"] == name
    assert [w["operation"] for w in group.writes(after=mark)] == ["UpdateAutoScalingGroup"]

    tenant.set_defaults(**{**defaults, "image": images(tenant.cloud)[1]})
    wait_rotated(group, old, 2, images(tenant.cloud)[1])
    group.wait(lambda g: not configurations(g), ROTATION, "the end of the old configuration")
    group.wait_ready(nodes=2)
    assert group.wait_event("LaunchConfigurationReplaced") and group.wait_event("LaunchConfigurationDeleted")
    assert "LaunchConfigurationName" not in group.asg() and "activeLaunchConfigurationName" not in group.status()
    done = [w["operation"] for w in group.writes(after=mark)]
    assert done.count("TerminateInstanceInAutoScalingGroup") == 2 and done.count("DeleteLaunchConfiguration") == 1
    assert "CreateAutoScalingGroup" not in done and not group.undrained() and group.max_unavailable_seen() <= 1


def test_the_launch_configuration_is_deleted_with_its_group(tenant, old_account):
    """Else every deleted group leaves a launch configuration behind."""
    group, *_ = found(tenant, 1)
    group.wait_ready(nodes=1)
    assert configurations(group)
    group.delete()
    group.wait_gone()
    assert not configurations(group)


def test_a_new_group_of_type_launch_configuration_gets_a_template(tenant):
    """AWS refuses launch configurations for new accounts. The group must launch its nodes anyway."""
    group = tenant.apply(tenant.manifest("web", eks={"type": "LaunchConfiguration", "minSize": 1, "maxSize": 2})).wait_ready(nodes=1)
    assert group.wait_event("LaunchConfigurationUnsupported", "spec.eks.type")
    assert "LaunchTemplate" in group.asg()
