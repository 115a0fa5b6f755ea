"""The history of the admin's ConfigMap: what is stored of each content, and what people read of it."""

import os
import subprocess
import time

import pytest
import yaml

from localcloud.tests import support
from e2e import harness
from e2e.test_rollout_crashes import Crashes

REVISIONS = f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boundariesrevisions.instancemgr.keikoproj.io"
CONFIG = """
boundaries: |
  restricted: [spec.eks.configuration.image]
  shared: {mergeOverride: [spec.eks.configuration.userData]}
defaults: |
  spec: {eks: {configuration: {image: ami-00000001, userData: [{name: a, stage: PreBootstrap, data: canary-1}]}}}
"""


def stored(cloud):
    """The revisions by name."""
    return {item["metadata"]["name"]: item["spec"] for item in cloud.get(REVISIONS)["items"]}


def set_image(cloud, image):
    """The admin changes one line."""
    cloud.edit_config_map(lambda data: data.update(defaults=f"spec: {{eks: {{configuration: {{image: {image}, userData: [{{name: a, stage: PreBootstrap, data: canary-{image}}}]}}}}}}\n"))


def history(cloud, *arguments):
    """Runs `rollout history`; returns its exit code and what it printed."""
    program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
    done = subprocess.run([str(program), "rollout", "history", "--kubeconfig", cloud["kubeconfig"], *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout or done.stderr


def wait_for(cloud, names):
    """Waits until exactly these revisions are stored."""
    deadline = time.monotonic() + harness.WAIT
    while set(found := stored(cloud)) != set(names):
        assert time.monotonic() < deadline, f"{sorted(found)} instead of {sorted(names)}"
        time.sleep(0.2)
    return found


@pytest.fixture
def cloud(own_cloud):
    """A cloud with two fields in its ConfigMap."""
    cloud = own_cloud(config=None)
    cloud.create(harness.CONFIG.rpartition("/")[0], {"metadata": {"name": "instance-manager"}, "data": yaml.safe_load(CONFIG)})
    return cloud


@pytest.mark.private
def test_each_content_of_the_config_map_is_stored_and_can_be_read(cloud, start_controller):
    """An admin must see what changed and when, and be able to restore an earlier content. A list must not show user data."""
    controller = start_controller(cloud)
    wait_for(cloud, {"r1"})
    set_image(cloud, "ami-00000002")
    wait_for(cloud, {"r1", "r2"})
    # A content that is not valid is never active; neither is a change of the annotations alone a new content.
    cloud.edit_config_map(lambda data: data.update(policy="{"))
    controller.stop()
    start_controller(cloud)
    set_image(cloud, "ami-00000001")
    cloud.edit_config_map(lambda data: data.pop("policy"))
    found = wait_for(cloud, {"r1", "r2", "r3"})
    assert found["r2"]["from"]["change"] == 'image: "ami-00000001" -> "ami-00000002", userData[a].data changed'
    assert found["r2"]["from"]["manager"] and found["r2"]["from"]["time"]
    assert found["r2"]["hash"] == harness.revision_of({**found["r2"]["data"]})

    code, text = history(cloud)
    assert code == 0 and "canary" not in text, text
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["r3*", "r2", "r1"], text
    code, text = history(cloud, "--revision", "r2")
    assert code == 0 and 'image: "ami-00000001" -> "ami-00000002"' in text and "canary" not in text, text
    code, text = history(cloud, "--revision", "2", "-o", "yaml")
    assert yaml.safe_load(text)["data"] == found["r2"]["data"]
    code, text = history(cloud, "--revision", "9")
    assert code == 1 and "r9" in text and "r1, r2, r3" in text, text

    # No user can change what is stored.
    changed = cloud.api("PATCH", f"{REVISIONS}/r1", {"spec": {"data": {"defaults": ""}}}, content_type="application/merge-patch+json")
    assert changed.status_code == 422 and "cannot be changed" in changed.text, changed.text


@pytest.mark.private
def test_change_made_while_no_controller_ran_has_a_predecessor(cloud, start_controller):
    """An older release stored only the last good content; the way back from the first change must not be lost. An admin may have edited twice since."""
    controller = start_controller(cloud)
    wait_for(cloud, {"r1"})
    controller.stop()
    cloud.api("DELETE", REVISIONS)
    set_image(cloud, "ami-00000002")
    set_image(cloud, "ami-00000003")
    start_controller(cloud)
    found = wait_for(cloud, {"r1", "r2"})
    assert "ami-00000001" in found["r1"]["data"]["defaults"] and "ami-00000003" in found["r2"]["data"]["defaults"]


def created(cloud):
    """The revisions that the API server let be created, in order: name and content."""
    made = [e for e in cloud.audit() if e["verb"] == "create" and e["objectRef"].get("resource") == "boundariesrevisions"]
    return [(e["requestObject"]["metadata"]["name"], e["requestObject"]["spec"]["hash"]) for e in made if e["responseStatus"]["code"] == 201]


@pytest.mark.private
def test_two_controllers_that_both_lead_store_each_content_once(cloud, start_controller):
    """A paused leader may wake up beside its successor. A content with two numbers would be a change that is none."""
    for _ in range(2):
        start_controller(cloud, "--enable-leader-election=false")
    wait_for(cloud, {"r1"})
    for number in range(2, 6):
        set_image(cloud, f"ami-0000000{number}")
        wait_for(cloud, {f"r{n}" for n in range(1, number + 1)})
    time.sleep(3)
    made = created(cloud)
    assert [name for name, _ in made] == ["r1", "r2", "r3", "r4", "r5"] and len({content for _, content in made}) == 5, made


@pytest.mark.private
def test_a_kill_at_each_write_of_the_history_loses_and_doubles_nothing(cloud, start_controller):
    """The controller stores a revision, rolls it out and later deletes it. Whichever of these writes is the last of a process, the next process continues there."""
    cloud.edit_config_map(lambda data: data.update(rollout="waves: [{name: all}]\nhistory: 2\n"))
    crashes = Crashes(cloud, start_controller)
    phase = lambda name: next((r.get("status", {}).get("phase") for r in cloud.get(REVISIONS)["items"] if r["metadata"]["name"] == name), None)  # noqa: E731
    for number in range(1, 6):
        kept = {f"r{n}" for n in range(max(1, number - 1), number + 1)}
        ended = lambda: phase(f"r{number}") == "Complete" and set(stored(cloud)) == kept  # noqa: B023, E731
        change = lambda: set_image(cloud, f"ami-0000000{number}")  # noqa: B023, E731
        begin = change if number > 1 else lambda: None
        crashes.until(ended, f"the end of the rollout of r{number}, and {sorted(kept)}", begin)
    made = created(cloud)
    assert [name for name, _ in made] == ["r1", "r2", "r3", "r4", "r5"] and len({content for _, content in made}) == 5, made
    assert crashes.count >= 8, "the writes were not held: five are stored, and three deleted"
    crashes.stop()


@pytest.mark.private
def test_without_the_definition_everything_else_works(cloud, start_controller, make_tenant):
    """An admin who upgrades the controller first and applies crds/ later must lose nothing. The history begins with the next edit."""
    cloud.api("DELETE", DEFINITION)
    support.eventually(lambda: cloud.api("GET", REVISIONS).status_code == 404, harness.WAIT, "no definition")
    controller = start_controller(cloud)
    make_tenant(cloud=cloud, controller=controller).set_defaults(tags=[])
    assert f'hash="{harness.revision_of(cloud.get(harness.CONFIG)["data"])}"' in controller.metrics()
    code, text = history(cloud)
    assert code == 1 and "instance-manager crd" in text, text
    assert "cannot store the boundaries" not in controller.log.read_text()
