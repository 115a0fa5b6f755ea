"""Each OS family rotates, and its nodes have the labels and taints that the group asks for, before and after."""

import pytest

from e2e import rotation
from e2e.harness import PREFIX


@pytest.mark.parametrize("family", ["amazonlinux2", "amazonlinux2023", "bottlerocket", "windows"])
def test_a_group_of_each_family_rotates_and_keeps_its_labels_and_taints(tenant, family):
    """Without this, one family's nodes could come without what pods are placed by, or not be replaced at all."""
    old_image, new_image, *_ = rotation.images(tenant.cloud, family)
    annotations = {PREFIX + "os-family": family}
    tenant.set_defaults(annotations=annotations, image=old_image)
    taint = {"key": "dedicated", "value": "us", "effect": "NoSchedule"}
    labels = {**rotation.pool(tenant), "example.com/team": "a.b-c_d"}
    group = tenant.group("web", annotations=annotations, size=(2, 4), labels=labels, taints=[taint])
    group.wait_ready(nodes=2)
    old = group.instances()
    assert_as_asked(group, labels, taint, old_image, family)
    tenant.set_defaults(annotations=annotations, image=new_image)
    rotation.wait_rotated(group, old, 2, new_image)
    assert sorted(rotation.terminated(group)) == sorted(old)
    assert group.max_unavailable_seen() == 1 and group.undrained() == {}
    assert_as_asked(group, labels, taint, new_image, family)


def assert_as_asked(group, labels, taint, image, family):
    """Every node says what the group's spec says, and what the controller adds to it."""
    expected = {**labels, "node.kubernetes.io/role": group.name, PREFIX + "lifecycle": "normal", PREFIX + "image": image}
    expected["kubernetes.io/os"] = "windows" if family == "windows" else "linux"
    for node in group.nodes():
        found = node["metadata"]["labels"]
        assert {key: found.get(key) for key in expected} == expected
        assert taint in [{key: t.get(key) for key in taint} for t in node["spec"].get("taints", [])]
