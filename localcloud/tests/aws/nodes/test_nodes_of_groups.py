"""Nodes of scaling groups with Standby, warm pools, launch configurations and mixed types, with a real control plane."""

import time

import pytest

from localcloud.tests.aws.support import events, wait_until

LIFECYCLE_CHECK = """#!/bin/bash
LIFECYCLE=$(curl http://169.254.169.254/latest/meta-data/autoscaling/target-lifecycle-state -H "X-aws-ec2-metadata-token: $TOKEN")
if [[ $LIFECYCLE == *"Warmed"* ]]; then exit 0; fi
"""


@pytest.fixture
def waiting_user_data(site):
    """User data that does not join while its instance is in a warm pool."""
    return site.user_data("amazonlinux2").replace("#!/bin/bash\n", LIFECYCLE_CHECK)


@pytest.fixture
def ami(site):
    """An AMI for that user data."""
    return site.cloud["amis"]["amazonlinux2"][0]


def states(site, instance):
    """The lifecycle states of an instance, in order."""
    return [line["state"] for line in events(site.cloud["aws_log"], object="instance", id=instance)]


def wait_for_warm_instance(site, group):
    """Wait for one initialized instance of the pool. Returns its id."""
    found = wait_until(
        lambda: [
            i
            for i in site.asg.describe_warm_pool(AutoScalingGroupName=group)["Instances"]
            if i["LifecycleState"] in ("Warmed:Stopped", "Warmed:Running")
        ],
        f"a warmed instance of {group}",
    )
    return found[0]["InstanceId"]


def test_a_node_stays_ready_while_its_instance_is_in_standby(site, joined, ami):
    """Amazon EC2 Auto Scaling User Guide, "Temporarily remove instances": the instance keeps running in Standby."""
    group = site.launch(site.user_data("amazonlinux2"), joined, ami, 0, DesiredCapacity=1)
    (node,) = site.ready(group)
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rsplit("/", 1)[1]
    site.asg.enter_standby(AutoScalingGroupName=group, InstanceIds=[instance], ShouldDecrementDesiredCapacity=False)
    wait_until(lambda: states(site, instance)[-1] == "Standby", "the instance to reach Standby")
    site.ready(group, 2)
    assert site.condition(name) == "True"
    site.asg.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
    wait_until(lambda: site.get(f"/api/v1/nodes/{name}") is None, "the node to be gone")
    launched = {line["id"] for line in events(site.cloud["aws_log"], kind="state", object="instance", group=group)}
    assert len(launched) == 2, "an instance in Standby is replaced when it leaves, and not again when it goes"


def test_a_warm_instance_joins_when_it_enters_service(site, joined, ami, waiting_user_data):
    """Amazon EC2 Auto Scaling User Guide, "Retrieve the target lifecycle state through instance metadata"."""
    group = site.launch(waiting_user_data, joined, ami, 0, MaxSize=1)
    hook = {"LifecycleHookName": "boot", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 7200}
    site.asg.put_lifecycle_hook(AutoScalingGroupName=group, **hook)
    site.asg.put_warm_pool(AutoScalingGroupName=group)
    assert "warm pool" in site.reason(group)
    instance = site.log(group, "not-joined")[0]["instance"]
    done = {"AutoScalingGroupName": group, "LifecycleHookName": "boot", "InstanceId": instance, "LifecycleActionResult": "CONTINUE"}
    site.asg.complete_lifecycle_action(**done)
    assert wait_for_warm_instance(site, group) == instance
    assert site.log(group, "joined") == []
    site.asg.delete_lifecycle_hook(AutoScalingGroupName=group, LifecycleHookName="boot")
    site.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (node,) = site.ready(group)
    assert node["spec"]["providerID"].endswith(instance)


def test_a_warm_instance_without_a_lifecycle_check_joins_from_the_pool(site, joined, ami):
    """Amazon EC2 Auto Scaling User Guide, "Decrease latency ... using warm pools", Limitations: jobs before it reaches the pool."""
    group = site.launch(site.user_data("amazonlinux2"), joined, ami, 0, MaxSize=1)
    site.asg.put_warm_pool(AutoScalingGroupName=group, PoolState="Running")
    (node,) = site.ready(group)
    instance = wait_for_warm_instance(site, group)
    assert node["spec"]["providerID"].endswith(instance)
    site.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    wait_until(lambda: states(site, instance)[-1] == "InService", "the instance to be in service")
    site.asg.put_warm_pool(AutoScalingGroupName=group, PoolState="Stopped", InstanceReusePolicy={"ReuseOnScaleIn": True})
    site.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "Unknown", "the node of the stopped instance to be Unknown")
    assert wait_for_warm_instance(site, group) == instance
    site.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "True", "the node to be Ready again")


def test_an_instance_of_a_launch_configuration_joins(site, joined, ami):
    """Amazon EC2 Auto Scaling API Reference, CreateLaunchConfiguration: UserData and IamInstanceProfile."""
    site.control.post("allow-launch-configurations", allowed=True)
    name = f"configuration-{time.time_ns()}"
    site.asg.create_launch_configuration(
        LaunchConfigurationName=name,
        ImageId=ami,
        InstanceType="m5.large",
        IamInstanceProfile=joined,
        SecurityGroups=[site.cloud["security_group"]],
        UserData=site.user_data("amazonlinux2"),
    )
    group = site.launch("", joined, ami, source=lambda _: {"LaunchConfigurationName": name})
    (node,) = site.ready(group)
    assert node["metadata"]["labels"]["team"] == "a"


def test_a_node_has_the_instance_type_that_the_policy_selected(site, joined, ami):
    """Kubernetes, "Well-Known Labels", node.kubernetes.io/instance-type; Auto Scaling API Reference, LaunchTemplateOverrides."""
    overrides = [{"InstanceType": kind} for kind in ("m5a.xlarge", "m5.xlarge")]

    def mixed(template):
        return {"MixedInstancesPolicy": {"LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides}}}

    group = site.launch(site.user_data("amazonlinux2"), joined, ami, source=mixed)
    (node,) = site.ready(group)
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5a.xlarge"
    assert node["status"]["capacity"]["cpu"] == "4"
