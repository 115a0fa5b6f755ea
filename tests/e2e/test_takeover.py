"""What keikoproj/instance-manager left behind comes up in the local cloud, before any controller of ours looks at it.

The recordings are tested where their folder exists (see original.py), worlds of our own everywhere.
"""

import pytest

from e2e import harness, original, worlds

pytestmark = pytest.mark.private


@pytest.fixture(scope="module")
def bare(start_cloud):
    """A cloud without boundaries, in which nobody works on InstanceGroups."""
    return harness.Cloud.of(start_cloud())


def load(cloud, world):
    """The loaded world; one that the simulator cannot hold yet skips the test."""
    try:
        return original.load(cloud, world)
    except original.NotHeld as missing:
        pytest.skip(f"not simulated: {missing}")


def stands(group):
    """Judges that a loaded group is as it was left: resource, scaling group, template and nodes."""
    recorded, found, asg = group.recorded, group.get(), group.asg()
    assert (found["spec"], found["status"]) == (recorded["instanceGroup"]["spec"], recorded["instanceGroup"]["status"])
    assert found["metadata"]["finalizers"] == [harness.FINALIZER]
    assert harness.tags_of(asg) == harness.tags_of(recorded["autoScalingGroup"])
    sizes = ("MinSize", "MaxSize", "DesiredCapacity", "VPCZoneIdentifier")
    assert [asg[key] for key in sizes] == [recorded["autoScalingGroup"][key] for key in sizes]
    if group.template:
        wanted = sorted(int(i["LaunchTemplate"]["Version"]) for i in recorded["autoScalingGroup"]["Instances"])
        assert group.running_versions() == (wanted or [len(recorded["launchTemplateVersions"])])
        versions = [version["LaunchTemplateData"] for version in group.template_versions()]
        told = [version["LaunchTemplateData"] for version in recorded["launchTemplateVersions"]]
        assert [without_user_data(v) for v in versions] == [without_user_data(v) for v in told]
        assert group.user_data() == told[-1]["UserDataDecoded"]
    assert len(group.ready_nodes()) == group.desired
    for node in group.nodes():
        assert node["metadata"]["labels"][harness.PREFIX + "image"].startswith("ami-")
    mark = group.mark()
    assert original.differences(group.snapshot(), group.snapshot()) == {}
    assert (group.writes_since(mark), group.kube_writes_since(mark)) == ([], [])


def without_user_data(data):
    """Launch template data without its two spellings of user data."""
    return {key: value for key, value in data.items() if not key.startswith("UserData")}


@pytest.mark.parametrize("name", original.recordings())
def test_what_the_original_was_recorded_to_leave_stands_and_has_ready_nodes(bare, name):
    """A takeover is only tested where there is something to take over, down to nodes that joined by themselves."""
    stands(load(bare, original.recording(bare, name)))


@pytest.mark.parametrize("name", worlds.WORLDS)
def test_what_the_original_is_known_to_leave_stands_and_has_ready_nodes(bare, name, unique):
    """The same where there are no recordings."""
    for world in worlds.WORLDS[name](original.Site.of(bare, unique)):
        stands(load(bare, world))
