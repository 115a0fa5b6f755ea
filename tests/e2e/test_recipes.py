"""The recipes of docs/recipes.md, each with its own YAML and through its rotations. Who follows a recipe must get what it says."""

import re

import pytest
import yaml

from localcloud.tests import support
from e2e import harness, rotation
from e2e.harness import CONFIG, PREFIX

RECIPES = (support.REPOSITORY / "docs" / "recipes.md").read_text()
CANARY, TEAM = "ami-0aaaaaaaaaaaaaaaa", "ami-0bbbbbbbbbbbbbbbb"
"""The images that the recipes name."""

pytestmark = pytest.mark.private


def blocks(heading):
    """The YAML of the recipe whose heading begins with `heading`: the conditionals of the ConfigMap, and the InstanceGroup."""
    chapter = re.split(r"^## ", RECIPES.partition(f"## {heading}")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL)]
    conditionals = [each["conditionals"] for each in found if "conditionals" in each]
    return yaml.safe_load(conditionals[0]) if conditionals else None, next(each for each in found if "kind" in each)


class World:
    """A cloud with the boundaries that install.md applies, and the groups of recipes in the namespaces that they name."""

    def __init__(self, cloud, controller):
        self.cloud, self.controller, self.tenants = cloud, controller, {}
        for identifier in (CANARY, TEAM):
            cloud.control("POST", "ami", id=identifier, family="amazonlinux2023")

    def apply(self, manifest, nodes, **metadata):
        """A group of so many nodes, or so many as it asks for itself; `metadata` replaces its own."""
        manifest = yaml.safe_load(yaml.safe_dump(manifest))
        manifest["metadata"].update(metadata)
        manifest["spec"]["eks"].setdefault("minSize", nodes)
        namespace = manifest["metadata"]["namespace"]
        if namespace not in self.tenants:
            self.tenants[namespace] = harness.Tenant(self.cloud, self.controller, namespace)
        return self.tenants[namespace].apply(manifest)

    def edit_config_map(self, change):
        """An edit of the admin."""
        self.cloud.edit_config_map(change)
        self.controller.wait_config_loaded()

    def set_conditionals(self, *conditionals):
        """The conditionals of the ConfigMap from now on."""
        self.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump(list(conditionals), sort_keys=False)))

    def lock(self, value):
        """Sets or removes the lock of the ConfigMap."""
        self.cloud.patch(CONFIG, {"metadata": {"annotations": {PREFIX + "lock-upgrades": value}}})


@pytest.fixture
def world(own_cloud, start_controller):
    """A world of the test's own, because recipes change the ConfigMap for all groups."""
    cloud = own_cloud()
    return World(cloud, start_controller(cloud, *harness.SHARED_FLAGS))


def runs(group, image):
    """Whether the group is Ready and all its instances were launched from the image."""
    status = group.status()
    return group.state() == "Ready" and status["effective"]["image"] == image and status["nodes"]["outdated"] == 0


def test_a_canary_gets_the_image_first_and_keeps_it_when_all_groups_get_it(world):
    """A platform team tries an image on some groups. The canary must not rotate twice, and a team's own image stays."""
    (canary,), manifest = blocks("Canary")
    (team,), search_manifest = blocks("An image for one team")
    group, search = world.apply(manifest, 2), world.apply(search_manifest, 1)
    other = world.apply({**manifest, "spec": {"eks": {"maxSize": 2}}}, 1, name="other", annotations={})
    for each, nodes in ((group, 2), (search, 1), (other, 1)):
        each.wait_ready(nodes=nodes)
    old, bystander = group.instances(), other.instances()
    world.set_conditionals(canary, team)
    rotation.wait_rotated(group, old, 2, CANARY)
    search.wait(lambda g: runs(g, TEAM), rotation.ROTATION, "the team's image")
    assert other.instances() == bystander
    kept, teams = group.instances(), search.instances()

    def promote(data):
        data["defaults"] = data["defaults"].replace("image: ami-02100000000000001", f"image: {CANARY}")
        data["conditionals"] = yaml.safe_dump([team], sort_keys=False)

    world.edit_config_map(promote)
    rotation.wait_rotated(other, bystander, 1, CANARY)
    for each, instances in ((group, kept), (search, teams)):
        each.wait_ready()
        assert each.instances() == instances, f"{each.key} was rotated again"
    assert all(each.undrained() == {} for each in (group, search, other))


def test_an_undone_change_replaces_only_nodes_of_the_new_version(world):
    """An admin stops a bad change in the middle of a rotation. Nodes that were not replaced yet must stay."""
    (canary,), manifest = blocks("Canary")
    group = world.apply(manifest, 3)
    group.wait_ready(nodes=3)
    old = group.instances()
    world.set_conditionals(canary)
    group.wait(lambda g: g.status().get("nodes", {}).get("updated", 0) >= 1 and set(g.instances(None)) - set(old), rotation.ROTATION, "a new node")
    world.lock("true")
    group.wait_state("Locked")
    group.wait(lambda g: not rotation.draining_nodes(g), what="no node that is being drained")
    kept = set(group.instances(None)) & set(old)
    assert kept
    versions = len(group.template_versions())
    world.set_conditionals()
    world.lock(None)
    group.wait(lambda g: runs(g, "ami-02100000000000001"), rotation.ROTATION, "the earlier image on all nodes")
    assert kept <= set(group.instances()) and len(group.template_versions()) == versions
    assert {i["LaunchTemplate"]["Version"] for i in group.asg()["Instances"]} == {"1"} and group.undrained() == {}


def test_a_deleted_group_is_drained_and_a_moved_one_leaves_its_pods_running(world):
    """Two teams leave a group: pods move to other nodes, and nothing is terminated under them."""
    _, old_manifest = blocks("Drain and delete")
    _, new_manifest = blocks("Move a group")
    old = world.apply(old_manifest, 2)
    first_manifest = {**new_manifest, "spec": {"eks": {**new_manifest["spec"]["eks"], "minSize": 1}}}
    first = world.apply(first_manifest, 1, namespace="search")
    old.wait_ready(nodes=2), first.wait_ready(nodes=1)
    first.tenant.deployment("shop", 2, new_manifest["spec"]["eks"]["configuration"]["labels"], {"maxUnavailable": 1})
    first.tenant.wait_pods_running(2)
    second = world.apply(new_manifest, 3).wait_ready(nodes=3)
    scaling_groups = {first.scaling_group, second.scaling_group}
    assert len(scaling_groups) == 2
    old.delete(), first.delete()
    for group in (old, first):
        group.wait_gone(rotation.ROTATION)
        assert group.undrained() == {} and group.asg() is None
    first.tenant.wait_pods_running(2)
    names = {node["metadata"]["name"] for node in second.nodes()}
    assert {pod["spec"]["nodeName"] for pod in first.tenant.pods()} <= names
    assert len(second.ready_nodes()) == 3
