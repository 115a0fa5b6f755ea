"""A release of the controller takes over what an earlier one left in the middle of its work."""

import json
import pathlib
import string

import pytest
import yaml

from e2e import harness, rotation
from e2e.test_crash_points import NO_ELECTION

pytestmark = pytest.mark.private

RECORDED = pathlib.Path(__file__).with_name("earlier_release.yaml")
WRITER = "instance-manager.keikoproj.io"
"""The field manager of every release."""


def recorded(group, record, pod):
    """What the earlier release wrote, with the names of this group; `record` is the disruption record of its node."""
    found = group.get()
    status = found["status"]
    template, managed = status["template"], status["managed"]
    lists = {name: json.dumps(managed.get(key, [])) for name, key in [
        ("tags", "tags"), ("metrics", "metrics"), ("policies", "policies"), ("auth_entries", "authEntries"), ("access_entries", "accessEntries"),
    ]}  # fmt: skip
    join = {key: value for key, value in status.get("join", {}).items() if key in ("awsAuth", "accessEntry", "roleId")}
    text = string.Template(RECORDED.read_text()).substitute(
        lists,
        uid=record["group"], since=record["since"], pod=pod, generation=found["metadata"]["generation"], join=json.dumps(join),
        template_name=status["activeLaunchTemplateName"], scaling_group=group.scaling_group, role_arn=status["nodesInstanceRoleArn"],
        config_md5=status["configMD5"], boundaries_revision=status["boundariesRevision"], template_id=template["id"],
        version=record["templateVersion"], hash=template["hash"], last_ready_version=template["lastReadyVersion"],
    )  # fmt: skip
    return yaml.safe_load(text)


def write_as_before(group, node, old):
    """Replaces the status of the group, and what the controller wrote on its node."""
    body = {**group.get(), "status": old["status"]}
    answer = group.cloud.api("PUT", f"{group.path}/status?fieldManager={WRITER}", body)
    assert answer.ok, answer.text
    assert group.has_condition("DrainBlocked", reason="BudgetRefused")
    later = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": None}
    group.cloud.patch(f"{harness.NODES}/{node}", {"metadata": {"annotations": {**later, **old["node"]}}})


def disruption(group):
    """The name and the disruption record of the node that is being drained."""
    (node,) = rotation.wait_draining(group)
    return node["metadata"]["name"], json.loads(node["metadata"]["annotations"][rotation.DISRUPTION])


def drain_blocked_events(group):
    """Names of the group's events about blocked drains."""
    return [e["metadata"]["name"] for e in group.events() if e["reason"] == "DrainBlocked"]


def test_a_rotation_that_an_earlier_release_began_is_continued(own_cloud, start_controller, make_tenant):
    """An upgrade of the controller would replace nodes for nothing, begin a second drain beside the first, or leave a node cordoned."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud, *NO_ELECTION))
    new_image = rotation.images(cloud)[1]
    group = rotation.start_group(tenant, 2)
    rotation.block_drains(tenant, 2)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    group.wait_condition("DrainBlocked", reason="EvictionBlocked")
    assert group.wait_event("DrainBlocked")
    node, record = disruption(group)
    tenant.controller.kill()
    pod = next(p["metadata"]["name"] for p in tenant.pods() if p["spec"].get("nodeName") == node)
    write_as_before(group, node, recorded(group, record, f"{tenant.namespace}/{pod}"))
    versions, events = len(group.template_versions()), drain_blocked_events(group)
    tenant.controller.start()
    group.wait_condition("DrainBlocked", reason="EvictionBlocked", text=pod)
    taken_over, now = disruption(group)
    assert taken_over == node and now["since"] == record["since"], "the drain that had begun continues"
    rotation.allow_disruptions(tenant, 2)
    rotation.wait_rotated(group, old, 2, new_image)
    assert sorted(rotation.terminated(group)) == sorted(old), "each old node is replaced once"
    assert len(rotation.cordons(group)) == 2 and rotation.cordons(group, on=False) == []
    assert len(group.template_versions()) == versions, "the earlier release's version has the same content"
    assert drain_blocked_events(group) == events, "the earlier release reported it"
    assert group.undrained() == {} and group.max_unavailable_seen() == 1
