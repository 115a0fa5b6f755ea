"""What keikoproj/instance-manager left behind comes up in the local cloud, before any controller of ours looks at it.

The recordings are tested where their folder exists (see keiko_loader.py), constructed states everywhere.
"""

import pytest

from localcloud.tests import support
from e2e import harness, keiko_groups, keiko_loader

pytestmark = pytest.mark.private


@pytest.fixture(scope="module")
def bare(pooled_cloud):
    """A cloud without boundaries, in which no controller runs."""
    with pooled_cloud() as cloud:
        yield cloud


def assert_as_recorded(group):
    """Asserts that a loaded group is as it was recorded: resource, scaling group, template and nodes."""
    recorded, found, asg = group.recorded, group.get(), group.asg()
    assert (found["spec"], found["status"]) == (recorded["instanceGroup"]["spec"], recorded["instanceGroup"]["status"])
    assert found["metadata"]["finalizers"] == [harness.FINALIZER]
    assert harness.tags_of(asg) == harness.tags_of(recorded["autoScalingGroup"])
    sizes = ("MinSize", "MaxSize", "DesiredCapacity", "VPCZoneIdentifier")
    assert [asg[key] for key in sizes] == [recorded["autoScalingGroup"][key] for key in sizes]
    if group.launch_configuration:
        expected = [asg, *asg["Instances"]]
        assert {each.get("LaunchConfigurationName") for each in expected} == {group.launch_configuration}
        assert not any("LaunchTemplate" in each for each in expected)
    else:
        assert group.pinned() == "$Latest"
        wanted = sorted(int(i["LaunchTemplate"]["Version"]) for i in recorded["autoScalingGroup"]["Instances"])
        assert group.running_versions() == (wanted or [len(recorded["launchTemplateVersions"])])
        versions = [version["LaunchTemplateData"] for version in group.template_versions()]
        expected = [version["LaunchTemplateData"] for version in recorded["launchTemplateVersions"]]
        assert [without_user_data(v) for v in versions] == [without_user_data(v) for v in expected]
        assert group.user_data() == expected[-1]["UserDataDecoded"]
    assert len(group.ready_nodes()) == group.desired > 0
    for node in group.nodes():
        labels = node["metadata"]["labels"]
        assert labels[harness.PREFIX + "image"].startswith("ami-")
        assert labels.get("kubernetes.io/role") == labels.get("node.kubernetes.io/role")
    mark = group.mark()
    assert keiko_loader.differences(group.snapshot(), group.snapshot()) == {}
    assert (group.writes_since(mark), group.kube_writes_since(mark)) == ([], [])


def without_user_data(data):
    """Launch template data without its two spellings of user data."""
    return {key: value for key, value in data.items() if not key.startswith("UserData")}


@pytest.mark.long
@pytest.mark.skipif(not keiko_loader.recordings(), reason="there are no recordings")
def test_recorded_groups_are_loaded_with_ready_nodes(bare):
    """A takeover is only tested where there is something to take over, down to nodes that joined by themselves."""
    named = {name: keiko_loader.recording(bare, name) for name in keiko_loader.recordings()}
    for group in keiko_loader.load_all(bare, named).values():
        assert_as_recorded(group)


@pytest.mark.long
def test_constructed_groups_are_loaded_with_ready_nodes(bare, unique):
    """The same where there are no recordings."""
    for group in keiko_loader.load_all(bare, keiko_groups.all_states(keiko_loader.Site.of(bare, unique))).values():
        assert_as_recorded(group)


def test_a_write_of_the_controller_is_found(bare, unique):
    """Every takeover test depends on this check: one that finds nothing would pass with any controller."""
    (state,) = keiko_groups.plain(keiko_loader.Site.of(bare, unique))
    group, other = keiko_loader.load(bare, state), keiko_loader.load(bare, *keiko_groups.long_name(keiko_loader.Site.of(bare, unique)))
    before, mark = group.snapshot(), group.mark()
    tag = {"ResourceId": group.scaling_group, "ResourceType": "auto-scaling-group", "Key": "added", "Value": "x", "PropagateAtLaunch": True}
    bare.boto("autoscaling").create_or_update_tags(Tags=[tag])
    assert group.writes_since(mark) == [], "the write of a user"
    bare.boto("autoscaling", key="controller").create_or_update_tags(Tags=[tag | {"Value": "y"}])
    bare.boto("ec2", key="controller").create_tags(Resources=[group.template_id], Tags=[{"Key": "ours", "Value": "1"}])
    bare.boto("iam", key="controller").tag_role(RoleName=group.role, Tags=[{"Key": "ours", "Value": "1"}])
    assert group.operations_since(mark) == ["CreateOrUpdateTags", "CreateTags", "TagRole"]
    assert other.writes_since(mark) == []
    changed = keiko_loader.differences(before, group.snapshot())
    assert {path.split(".")[0] for path in changed} == {"scalingGroup", "template", "role"}
    assert (changed["template.tags.ours"], changed["role.tags.ours"]) == ((None, "1"), (None, "1"))
    bare.api("PATCH", group.path, {"metadata": {"labels": {"seen": "1"}}}, token=bare.controller_token, content_type="application/merge-patch+json")
    support.eventually(lambda: group.kube_writes_since(mark) == [("patch", "instancegroups", group.name)], message="the patch in the audit log")
