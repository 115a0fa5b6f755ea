"""How instances are bought: several types, on demand and spot, pools of like types, and recommendations about spot."""

import datetime
import json

import pytest
import requests

from localcloud.tests import support
from e2e import rotation
from e2e.harness import PREFIX, SHARED_FLAGS, Tenant

EXAMPLES = support.REPOSITORY / "examples"
EXCLUDED = {PREFIX + "config-excluded": "true"}


def bought(group):
    """How many units of capacity in service are on demand and how many are spot."""
    members = {i["InstanceId"]: int(i.get("WeightedCapacity", 1)) for i in group.asg()["Instances"] if i["LifecycleState"] == "InService"}
    if not members:
        return (0, 0)
    found = group.cloud.boto("ec2").describe_instances(InstanceIds=list(members))["Reservations"]
    spot = {i["InstanceId"] for r in found for i in r["Instances"] if i.get("InstanceLifecycle") == "spot"}
    units = {kind: sum(w for i, w in members.items() if (i in spot) == kind) for kind in (False, True)}
    return (units[False], units[True])


def types(group):
    """The types of its policy, in order."""
    return [o["InstanceType"] for o in group.asg()["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]]


def distribution(group):
    """How its policy distributes what is bought."""
    return group.asg()["MixedInstancesPolicy"]["InstancesDistribution"]


def recommend(group, message, age=0, namespace=None):
    """An event about the group's scaling group, as a recommender writes it."""
    namespace = namespace or group.tenant.namespace
    at = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": "AutoScalingGroup", "apiVersion": "v1", "name": group.scaling_group, "namespace": namespace}
    event = {
        "metadata": {"generateName": "recommendation-", "namespace": namespace},
        "involvedObject": about,
        "reason": "SpotRecommendationGiven",
        "type": "Normal",
        "message": message if isinstance(message, str) else json.dumps(message),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    group.cloud.create(f"/api/v1/namespaces/{namespace}/events", event)


def made_versions(group, after):
    """The template versions that the controller made since."""
    return [w for w in group.writes(after) if w["operation"] == "CreateLaunchTemplateVersion"]


def test_a_mixed_group_launches_instances_by_its_policy(make_tenant):
    """All instances of the group would be On-Demand, or of one type."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "mixed.yaml").read_text()).wait_ready()
    assert types(group) == ["m5.large", "m5a.large", "m5.xlarge"]
    asked = distribution(group)
    assert (asked["OnDemandBaseCapacity"], asked["OnDemandPercentageAboveBaseCapacity"]) == (2, 20)
    assert asked["SpotAllocationStrategy"] == "price-capacity-optimized"
    on_demand, spot = bought(group)
    assert on_demand >= 2 and spot >= 1 and on_demand + spot >= 4
    assert group.status()["lifecycle"] == "mixed"
    assert {n["metadata"]["labels"][PREFIX + "lifecycle"] for n in group.nodes()} == {"mixed"}
    counted = group.status()["nodes"]
    assert counted["ready"] == on_demand + spot and counted["desired"] == 4, "the status counts what desired counts: units"


def test_the_spot_ratio_changes_in_place(tenant):
    """A rotation for a change of purchase options would replace nodes for nothing: AWS levels them itself."""
    policy = {"spotRatio": 0, "instanceTypes": [{"type": "m5a.large"}]}
    group = tenant.group(size=(2, 6), mixedInstancesPolicy=policy).wait_ready(nodes=2)
    assert bought(group) == (2, 0) and group.status()["lifecycle"] == "normal"
    mark = tenant.cloud.log_position()
    more = [{"type": "m5a.large"}, {"type": "m5n.large"}]
    group.patch_spec(mixedInstancesPolicy={"baseCapacity": 1, "strategy": "LowestPrice", "instanceTypes": more})
    group.wait(lambda g: distribution(g)["OnDemandBaseCapacity"] == 1, what="the new base")
    group.wait_ready()
    assert types(group) == ["m5.large", "m5a.large", "m5n.large"]
    assert {w["operation"] for w in group.writes(mark)} == {"UpdateAutoScalingGroup"}, "no new version, no terminate"
    event = group.wait_event("ScalingGroupUpdated", "mixedInstancesPolicy.baseCapacity: 0 -> 1")
    assert "mixedInstancesPolicy.strategy: capacity-optimized -> lowest-price" in rotation.event_message(event)


def test_a_changed_policy_is_restored(tenant):
    """After another client's change, the group would keep launching instances of the wrong type or purchase option."""
    group = tenant.group(size=(1, 3), mixedInstancesPolicy={"instanceTypes": [{"type": "m5a.large"}]}).wait_ready(nodes=1)
    changed = group.asg()["MixedInstancesPolicy"]
    changed["InstancesDistribution"]["OnDemandBaseCapacity"] = 3
    changed["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    changed["LaunchTemplate"]["Overrides"] = changed["LaunchTemplate"]["Overrides"][:1]
    tenant.cloud.boto("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.scaling_group, MixedInstancesPolicy=changed)
    group.wait(lambda g: distribution(g)["OnDemandBaseCapacity"] == 0, what="the policy of the spec")
    assert types(group) == ["m5.large", "m5a.large"]


def test_a_mixed_group_rotates_to_a_new_image(tenant):
    """The policy and its template change together: one without the other would undo it."""
    policy = {"baseCapacity": 1, "spotRatio": 50, "instanceTypes": [{"type": "m5a.large"}]}
    old, new = rotation.images(tenant.cloud)[:2]
    tenant.set_defaults(image=old)
    group = tenant.group(size=(3, 6), mixedInstancesPolicy=policy).wait_ready(nodes=3)
    before = group.instances()
    assert bought(group) == (2, 1)
    tenant.set_defaults(image=new)
    rotation.wait_rotated(group, before, 3, new)
    assert bought(group) == (2, 1) and types(group) == ["m5.large", "m5a.large"]
    assert group.max_unavailable_seen() <= 1 and group.undrained() == {}


def test_a_weighted_group_rotates_within_its_budget(tenant):
    """Counting nodes where AWS counts units would stop the rotation, or take too much at once."""
    policy = {"spotRatio": 0, "instanceTypes": [{"type": "m5.large", "weight": 2}, {"type": "m5.xlarge", "weight": 4}]}
    old, new = rotation.images(tenant.cloud)[:2]
    tenant.set_defaults(image=old)
    group = tenant.group(size=(6, 12), mixedInstancesPolicy=policy).wait_ready(nodes=3)
    before = group.instances()
    assert group.status()["nodes"]["ready"] == group.status()["nodes"]["desired"] == 6
    tenant.set_defaults(image=new)
    rotation.wait_rotated(group, before, 3, new)
    assert group.min_serving_nodes(3) == 2 and group.undrained() == {}


def test_larger_weights_cost_no_node(tenant):
    """Sent alone, AWS would take every second node for the desired capacity, undrained and under the lock: the sizes have to come along."""
    weighted = lambda factor: {"spotRatio": 0, "instanceTypes": [{"type": "m5.large", "weight": factor}, {"type": "m5.xlarge", "weight": 2 * factor}]}
    group = tenant.group(size=(4, 8), mixedInstancesPolicy=weighted(1)).wait_ready(nodes=4)
    before = group.instances()
    group.annotate(lock_upgrades="true")
    group.patch_spec(mixedInstancesPolicy=weighted(2))
    message = group.wait_condition("Stalled", reason="InvalidSpec")["message"]
    assert "the 4 nodes count for 8 units, but the desired capacity is 4" in message and "minSize 8" in message
    assert group.instances() == before
    group.patch_spec(eks={"minSize": 8, "maxSize": 16})
    group.wait(lambda g: {i["WeightedCapacity"] for i in g.asg()["Instances"]} == {"2"}, what="the weights")
    group.wait_ready(nodes=4)
    assert group.instances() == before and group.asg()["DesiredCapacity"] == 8


def take_out(group, name):
    """Removes a type from the group's policy, as a user does."""
    policy = group.asg()["MixedInstancesPolicy"]
    template = policy["LaunchTemplate"]
    template["Overrides"] = [o for o in template["Overrides"] if o["InstanceType"] != name]
    template["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    group.cloud.boto("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.scaling_group, MixedInstancesPolicy=policy)


def catalog_reads(cloud, after=0):
    """How often the controller has begun to read the catalog of instance types."""
    reads = [e for e in cloud.aws_events(after) if e["kind"] == "read" and e["caller"]["key"] == "controller"]
    return sum(e["operation"] == "DescribeInstanceTypeOfferings" for e in reads)


def test_an_instance_type_pool_contains_similar_types(make_tenant, shared):
    """The group would have one type, and a read of 1,400 types in each reconcile would take seconds."""
    tenant = make_tenant(annotations=EXCLUDED)
    group = tenant.apply((EXAMPLES / "pool.yaml").read_text()).wait_ready(nodes=1)
    pool = types(group)
    assert pool[0] == "m5.large" and {"m5a.large", "m5d.large"} <= set(pool)
    assert all(name.startswith("m5") and name.endswith(".large") for name in pool)
    assert group.status()["lifecycle"] == "mixed" and bought(group) == (0, 1)
    mark = tenant.cloud.log_position()
    group.annotate(touched="1")
    group.patch_spec(eks={"maxSize": 5})
    group.wait(lambda g: g.asg()["MaxSize"] == 5, what="the new size")
    group.wait_ready(nodes=1)
    assert types(group) == pool
    assert catalog_reads(shared) > 0 and catalog_reads(shared, mark) == 0
    before = set(group.instances())
    take_out(group, "m5d.large")
    group.wait(lambda g: types(g) == pool, what="the removed type")
    group.wait_ready(nodes=1)
    assert set(group.instances()) == before


@pytest.mark.private
def test_a_new_instance_type_joins_the_pool_only_with_another_change(own_cloud, start_controller):
    """A pool that AWS extends must not change any group, even after a restart of the controller."""
    cloud = own_cloud()
    controller = start_controller(cloud, *SHARED_FLAGS)
    tenant = Tenant(cloud, controller, annotations=EXCLUDED)
    group = tenant.apply((EXAMPLES / "pool.yaml").read_text()).wait_ready(nodes=1)
    pool = types(group)
    controller.stop()
    launched = {"name": "m5q.large", "like": "m5.large"}
    assert requests.post(f"{cloud['control']}/instance-type", json=launched, timeout=60).ok
    mark = cloud.log_position()
    controller = start_controller(cloud, *SHARED_FLAGS)
    group.patch_spec(eks={"maxSize": 5})
    group.wait(lambda g: g.asg()["MaxSize"] == 5, what="the new size")
    group.wait_ready(nodes=1)
    assert catalog_reads(cloud, mark) > 0 and types(group) == pool
    group.patch_spec(image=cloud["amis"]["amazonlinux2023"][1])
    group.wait(lambda g: g.pinned() == "2", what="the new version")
    assert sorted(types(group)) == sorted([*pool, "m5q.large"])


def test_spot_instances_have_a_maximum_price(make_tenant):
    """Without it spotPrice would be a label and no more."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "spot.yaml").read_text()).wait_ready(nodes=1)
    assert bought(group) == (0, 1) and group.status()["lifecycle"] == "spot"
    market = group.template_versions()[-1]["LaunchTemplateData"]["InstanceMarketOptions"]
    assert market["MarketType"] == "spot" and float(market["SpotOptions"]["MaxPrice"]) == 0.08
    (node,) = group.nodes()
    assert node["metadata"]["labels"][PREFIX + "lifecycle"] == "spot"


def test_a_spot_recommendation_is_applied_and_cleared(tenant):
    """Recommenders of prices know nothing but events; what they say must come, stay, and go."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    assert bought(group) == (1, 0) and "usingSpotRecommendation" not in group.status()
    recommend(group, {"apiVersion": "v1alpha1", "spotPrice": "0.0067", "useSpot": True}, namespace="default")
    group.wait(lambda g: bought(g) == (0, 1), rotation.ROTATION, "a spot instance")
    group.wait_ready(nodes=1)
    assert group.status()["usingSpotRecommendation"] is True and group.status()["lifecycle"] == "spot"
    # The event is gone after an hour; what it said stays.
    events = group.cloud.get("/api/v1/namespaces/default/events?fieldSelector=reason=SpotRecommendationGiven")["items"]
    for event in (e for e in events if e["involvedObject"]["name"] == group.scaling_group):
        group.cloud.api("DELETE", f"/api/v1/namespaces/default/events/{event['metadata']['name']}")
    mark = tenant.cloud.log_position()
    recommend(group, "no recommendation at all")
    event = group.wait_event("SpotRecommendationIgnored")
    assert "is not a JSON object" in rotation.event_message(event)
    recommend(group, {"apiVersion": "v1alpha1", "spotPrice": "0.1", "useSpot": True}, age=7200)
    group.patch_spec(eks={"maxSize": 3})
    group.wait(lambda g: g.asg()["MaxSize"] == 3, what="the new size")
    group.wait_ready(nodes=1)
    assert made_versions(group, mark) == [] and bought(group) == (0, 1)
    recommend(group, {"apiVersion": "v1alpha1", "spotPrice": "", "useSpot": False})
    group.wait(lambda g: bought(g) == (1, 0), rotation.ROTATION, "an instance on demand")
    group.wait_ready(nodes=1)
    assert group.status()["lifecycle"] == "normal"


def test_an_invalid_policy_creates_nothing(tenant):
    """A type that is unknown, or of another architecture, must not leave half of a group behind."""
    for policy, field in [
        ({"instanceTypes": [{"type": "m5.nonsense"}]}, "instanceTypes[0].type"),
        ({"instanceTypes": [{"type": "m6g.large"}]}, "instanceTypes[0].type"),
    ]:
        group = tenant.group("bad", size=(1, 2), mixedInstancesPolicy=policy)
        stalled = group.wait_condition("Stalled")
        assert f"mixedInstancesPolicy.{field}" in stalled["message"], stalled
        assert group.asg() is None and not group.status().get("activeLaunchTemplateName")
        group.delete()
        group.wait_gone()
