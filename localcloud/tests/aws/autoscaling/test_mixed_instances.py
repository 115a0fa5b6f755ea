"""Mixed instances policies: validation, purchase options, instance types and weights."""

from collections import Counter

import pytest

from localcloud.tests.aws.support import client_error, wait_until

pytestmark = pytest.mark.patched
TYPES = ("m5.large", "m5a.large", "c5.large")


def policy(template, *types, weights=None, **distribution):
    """A mixed instances policy over these types."""
    overrides = [{"InstanceType": kind} | ({"WeightedCapacity": str(weights[kind])} if weights else {}) for kind in types]
    specification = {"LaunchTemplateName": template, "Version": "1"}
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides},
        "InstancesDistribution": distribution,
    }


def parameters(groups, name, *types, size=0, weights=None, more=None, **distribution):
    """Parameters of CreateAutoScalingGroup with a policy instead of a template."""
    given = groups.parameters(name, size, MixedInstancesPolicy=policy(groups.template, *types, weights=weights, **distribution))
    del given["LaunchTemplate"]
    return given | (more or {})


def make(aws, groups, name, *types, size=0, weights=None, more=None, **distribution):
    """Create a group with a policy."""
    given = parameters(groups, name, *types, size=size, weights=weights, more=more, **distribution)
    aws.autoscaling.create_auto_scaling_group(**given)
    groups.made.append(name)
    return name


def running(aws, groups, name):
    """The purchase option and type of each instance in EC2."""
    ids = [i["InstanceId"] for i in groups.show(name)["Instances"]]
    found = [i for r in aws.ec2.describe_instances(InstanceIds=ids)["Reservations"] for i in r["Instances"]] if ids else []
    return Counter((i.get("InstanceLifecycle", "on-demand"), i["InstanceType"]) for i in found)


def options(aws, groups, name):
    """The number of instances of each purchase option in EC2."""
    counts = Counter()
    for (option, _), count in running(aws, groups, name).items():
        counts[option] += count
    return dict(counts)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"SpotAllocationStrategy": "cheapest"}, "SpotAllocationStrategy"),
        ({"OnDemandAllocationStrategy": "capacity-optimized"}, "OnDemandAllocationStrategy"),
        ({"OnDemandPercentageAboveBaseCapacity": 101}, "OnDemandPercentageAboveBaseCapacity"),
        ({"OnDemandBaseCapacity": -1}, "OnDemandBaseCapacity"),
        ({"SpotAllocationStrategy": "lowest-price", "SpotInstancePools": 21}, "SpotInstancePools"),
        (
            {"SpotAllocationStrategy": "capacity-optimized", "SpotInstancePools": 2},
            "SpotInstancePools option is only available with the lowest-price allocation strategy",
        ),
        ({"SpotMaxPrice": "cheap"}, "SpotMaxPrice"),
    ],
)
def test_invalid_distributions_are_rejected(aws, groups, name, change, part):
    """Amazon EC2 Auto Scaling API Reference, InstancesDistribution."""
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **parameters(groups, name, *TYPES, **change))
    assert (code, part in message) == ("ValidationError", True), message


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ([{"InstanceType": "m5.large", "WeightedCapacity": "1"}, {"InstanceType": "m5a.large"}], "for all"),
        ([{"InstanceType": "m5.large", "WeightedCapacity": "1000"}], "between 1 and 999"),
        ([{"InstanceType": "x1.tiny"}], "x1.tiny"),
        ([{"InstanceType": "m5.large"}] * 41, "limit of 40"),
    ],
)
def test_invalid_overrides_are_rejected(aws, groups, name, overrides, part):
    """Amazon EC2 Auto Scaling API Reference, LaunchTemplateOverrides: InstanceType and WeightedCapacity."""
    given = parameters(groups, name)
    given["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"] = overrides
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **given)
    assert (code, part in message) == ("ValidationError", True), message


def test_a_group_has_exactly_one_launch_source(aws, groups, name):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup and UpdateAutoScalingGroup: LaunchTemplate, MixedInstancesPolicy."""
    mixed = policy(groups.template, *TYPES)
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, MixedInstancesPolicy=mixed))
    assert (code, message.startswith("Valid requests must contain either LaunchTemplate")) == ("ValidationError", True)
    given = parameters(groups, name)
    del given["MixedInstancesPolicy"]
    assert client_error(aws.autoscaling.create_auto_scaling_group, **given)[0] == "ValidationError"
    group = groups.make()
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MixedInstancesPolicy=mixed)
    shown = groups.show(group)
    assert "LaunchTemplate" not in shown
    assert [o["InstanceType"] for o in shown["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]] == list(TYPES)
    pin = {"LaunchTemplateName": groups.template, "Version": "1"}
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, LaunchTemplate=pin)
    shown = groups.show(group)
    assert (shown["LaunchTemplate"]["Version"], "MixedInstancesPolicy" in shown) == ("1", False)


def test_omitted_policy_fields_get_defaults_or_keep_their_values(aws, groups, name):
    """Amazon EC2 Auto Scaling API Reference, InstancesDistribution: defaults; User Guide, "Add or modify weights", example."""
    group = make(aws, groups, name, *TYPES)
    shown = groups.show(group)["MixedInstancesPolicy"]
    assert shown["InstancesDistribution"] == {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 100,
        "SpotAllocationStrategy": "lowest-price",
        "SpotInstancePools": 2,
    }
    assert shown["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateName"] == groups.template
    update = aws.autoscaling.update_auto_scaling_group
    change = {"InstancesDistribution": {"SpotAllocationStrategy": "capacity-optimized", "SpotMaxPrice": "0.5"}}
    update(AutoScalingGroupName=group, MixedInstancesPolicy=change)
    shown = groups.show(group)["MixedInstancesPolicy"]
    assert shown["InstancesDistribution"]["SpotMaxPrice"] == "0.5"
    assert "SpotInstancePools" not in shown["InstancesDistribution"]
    assert len(shown["LaunchTemplate"]["Overrides"]) == 3
    update(AutoScalingGroupName=group, MixedInstancesPolicy={"InstancesDistribution": {"SpotMaxPrice": ""}})
    assert "SpotMaxPrice" not in groups.show(group)["MixedInstancesPolicy"]["InstancesDistribution"]


def test_on_demand_base_and_percentage_are_applied(aws, groups, name):
    """Amazon EC2 Auto Scaling User Guide, "Auto Scaling groups with multiple instance types", proportion of On-Demand instances."""
    share = {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 40}
    group = make(aws, groups, name, *TYPES, size=5, SpotAllocationStrategy="capacity-optimized-prioritized", **share)
    groups.settle(group, 5)
    assert running(aws, groups, group) == {("on-demand", "m5.large"): 3, ("spot", "m5.large"): 2}
    assert {i["InstanceType"] for i in groups.show(group)["Instances"]} == {"m5.large"}
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, DesiredCapacity=3)
    groups.settle(group, 3)
    assert options(aws, groups, group) == {"on-demand": 2, "spot": 1}


def test_the_next_type_is_used_without_capacity(aws, groups, control, name):
    """Amazon EC2 Auto Scaling API Reference, InstancesDistribution, OnDemandAllocationStrategy: prioritized."""
    control.post("launch-failure", group=name, instance_type="m5.large", code="InsufficientInstanceCapacity")
    group = make(aws, groups, name, *TYPES, size=2)
    groups.settle(group, 2)
    assert running(aws, groups, group) == {("on-demand", "m5a.large"): 2}
    control.post("launch-failure", group=name, instance_type="m5.large", code=None)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=3, DesiredCapacity=3)
    groups.settle(group, 3)
    assert running(aws, groups, group) == {("on-demand", "m5a.large"): 2, ("on-demand", "m5.large"): 1}


def test_lowest_price_diversifies_over_the_given_pools(aws, groups, name):
    """Amazon EC2 Auto Scaling API Reference, InstancesDistribution, SpotAllocationStrategy and SpotInstancePools."""
    spot = {"OnDemandPercentageAboveBaseCapacity": 0}
    group = make(aws, groups, name, "m5.2xlarge", "m5.large", "c5.large", size=6, SpotInstancePools=2, **spot)
    groups.settle(group, 6)
    assert running(aws, groups, group) == {("spot", "c5.large"): 3, ("spot", "m5.large"): 3}
    other = make(aws, groups, f"{name}-one", "m5.2xlarge", "m5.large", "c5.large", size=3, SpotInstancePools=1, **spot)
    groups.settle(other, 3)
    assert running(aws, groups, other) == {("spot", "c5.large"): 3}


def test_weights_count_towards_the_desired_capacity(aws, groups, name):
    """Amazon EC2 Auto Scaling User Guide, "Configure an Auto Scaling group to use instance weights", Considerations."""
    group = make(aws, groups, name, "m5.xlarge", "m5.large", size=5, weights={"m5.xlarge": 2, "m5.large": 1}, more={"MaxSize": 9})
    groups.settle(group, 3)
    shown = groups.show(group)
    assert [(i["InstanceType"], i["WeightedCapacity"]) for i in shown["Instances"]] == [("m5.xlarge", "2")] * 3
    assert shown["DesiredCapacity"] == 5
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, DesiredCapacity=3)
    groups.settle(group, 2)
    assert groups.show(group)["DesiredCapacity"] == 3


@pytest.mark.parametrize(("by", "desired"), [("one", 7), ("weight", 4)])
def test_a_decrement_counts_one_or_the_weight(aws, groups, control, name, by, desired):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup: does not say which, so both can be simulated."""
    types = {"m5.xlarge": 4}
    group = make(aws, groups, name, *types, size=8, weights=types, more={"MaxSize": 8})
    before = groups.settle(group, 2)
    control.post("decrement", group=group, by=by)
    terminate = aws.autoscaling.terminate_instance_in_auto_scaling_group
    code, message = client_error(terminate, InstanceId=before[0], ShouldDecrementDesiredCapacity=True)
    assert (code, "violate group's min size" in message) == ("ValidationError", True)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=4)
    terminate(InstanceId=before[0], ShouldDecrementDesiredCapacity=True)
    assert groups.show(group)["DesiredCapacity"] == desired
    wait_until(lambda: before[0] not in [i["InstanceId"] for i in groups.show(group)["Instances"]], "the end of the instance")
    groups.settle(group, 2 if by == "one" else 1)


def test_changed_weights_terminate_instances_beyond_the_desired_capacity(aws, groups, name):
    """Amazon EC2 Auto Scaling User Guide, "Configure an Auto Scaling group to use instance weights", updating existing groups.

    "When you add or change weights, Amazon EC2 Auto Scaling will launch or terminate instances to reach the desired capacity
    based on the new weight values." Running instances of a removed type keep their last weight.
    """
    group = make(aws, groups, name, "m5.large", size=4, weights={"m5.large": 1}, more={"MaxSize": 8})
    groups.settle(group, 4)
    update = aws.autoscaling.update_auto_scaling_group
    update(AutoScalingGroupName=group, MixedInstancesPolicy=policy(groups.template, "m5.large", weights={"m5.large": 2}))
    groups.settle(group, 2)
    update(AutoScalingGroupName=group, MixedInstancesPolicy=policy(groups.template, "m5.xlarge", weights={"m5.xlarge": 4}))
    assert {i["WeightedCapacity"] for i in groups.show(group)["Instances"]} == {"2"}


def test_new_weights_must_cover_running_types(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Configure an Auto Scaling group to use instance weights": existing groups."""
    group = groups.make(2, MaxSize=8)
    update = aws.autoscaling.update_auto_scaling_group
    mixed = policy(groups.template, "m5.xlarge", weights={"m5.xlarge": 4})
    code, message = client_error(update, AutoScalingGroupName=group, MixedInstancesPolicy=mixed)
    assert (code, "m5.large" in message) == ("ValidationError", True)
    before = groups.settle(group, 2)
    mixed = policy(groups.template, "m5.xlarge", "m5.large", weights={"m5.xlarge": 4, "m5.large": 2})
    update(AutoScalingGroupName=group, MixedInstancesPolicy=mixed, MinSize=4, DesiredCapacity=4)
    assert groups.settle(group, 2) == before
    assert {i["WeightedCapacity"] for i in groups.show(group)["Instances"]} == {"2"}


def test_changed_purchase_options_replace_instances_gradually(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, UpdateAutoScalingGroup: "existing instances may be replaced", new ones come first."""
    group = groups.make(2, MaxSize=3)
    mixed = policy(groups.template, "m5.large", "m5a.large", OnDemandPercentageAboveBaseCapacity=50)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MixedInstancesPolicy=mixed)
    wait_until(lambda: options(aws, groups, group) == {"on-demand": 1, "spot": 1}, "one instance of each kind")
    states = [state for _, state in groups.history(group)]
    assert states.index("Terminating") > [i for i, state in enumerate(states) if state == "InService"][2], "the new one comes first"


def test_moving_an_on_demand_instance_to_another_zone_converges(aws, groups, name):
    """The group has one Spot Instance too many only while it moves one: that one must not be what it launched."""
    subnets = groups.simulator.subnets
    more = {"VPCZoneIdentifier": subnets[0]}
    make(aws, groups, name, *TYPES, size=2, more=more, OnDemandBaseCapacity=1, OnDemandPercentageAboveBaseCapacity=50)
    groups.settle(name, 2)
    assert options(aws, groups, name) == {"on-demand": 2}
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=",".join(subnets[:2]))
    wait_until(lambda: len({i["AvailabilityZone"] for i in groups.show(name)["Instances"]}) == 2, "the zones to be balanced")
    ids = groups.settle(name, 2)
    assert options(aws, groups, name) == {"on-demand": 2}
    assert groups.settle(name, 2) == ids


def test_replacement_of_spot_instances_with_weight_two_converges(aws, groups):
    """A Spot Instance that counts two leaves only when two On-Demand Instances took its place, and these stay."""
    weights = {"m5.xlarge": 2, "m5.large": 1}
    spot = {"OnDemandPercentageAboveBaseCapacity": 0}
    group = make(aws, groups, "heavy", "m5.xlarge", size=4, weights=weights, more={"MaxSize": 8}, **spot)
    groups.settle(group, 2)
    light = policy(groups.template, "m5.large", "m5.xlarge", weights=weights, OnDemandPercentageAboveBaseCapacity=100)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MixedInstancesPolicy=light)
    wait_until(lambda: options(aws, groups, group) == {"on-demand": 4}, "every Spot Instance to be replaced")
    assert sum("Launching" in activity["Description"] for activity in groups.activities(group)) == 6


def test_a_template_that_requests_spot_cannot_be_mixed(aws, groups, data, name):
    """Amazon EC2 Auto Scaling User Guide, "Create a launch template using advanced settings", Purchasing option."""
    market = {"InstanceMarketOptions": {"MarketType": "spot"}}
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data | market)
    given = parameters(groups, name, *TYPES)
    given["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]["Version"] = "2"
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **given)
    assert (code, message.startswith("Incompatible launch template: You cannot use")) == ("ValidationError", True)


def test_a_template_can_request_spot_instances_by_itself(aws, groups, data):
    """Amazon EC2 Auto Scaling User Guide, "Request Spot Instances for fault-tolerant and flexible applications"."""
    market = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.05"}}}
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data | market)
    group = groups.make(1, LaunchTemplate={"LaunchTemplateName": groups.template, "Version": "2"})
    assert options(aws, groups, group) == {"spot": 1}


@pytest.mark.parametrize(
    ("market", "part"),
    [
        ({"MarketType": "auction"}, "MarketType"),
        ({"MarketType": "spot", "SpotOptions": {"MaxPrice": "low"}}, "MaxPrice"),
        ({"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}, "one-time"),
    ],
)
def test_invalid_market_options_are_rejected(aws, groups, data, name, market, part):
    """Amazon EC2 API Reference, InstanceMarketOptionsRequest; Auto Scaling User Guide: "a one-time request with no end date"."""
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data | {"InstanceMarketOptions": market})
    given = groups.parameters(name, LaunchTemplate={"LaunchTemplateName": groups.template, "Version": "2"})
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **given)
    assert (code, part in message) == ("ValidationError", True), message
