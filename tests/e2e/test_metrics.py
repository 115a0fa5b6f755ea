"""Metrics, probes, and secrets that must appear nowhere."""

import base64
import re
import subprocess

import pytest
import requests
import yaml

from e2e import harness
from e2e.test_rollout import newest, phase, revisions, wait_revision
from localcloud.tests.support import eventually

TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}


def series(text):
    """Every series with its value."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def of(text, group):
    """The series of one group, without its name."""
    label = f'instancegroup="{group.key}"'
    return {name.replace(label, "").replace("{,", "{").replace(",}", "}"): value for name, value in series(text).items() if label in name}


def test_a_group_has_its_series_until_it_is_deleted(tenant, controller):
    """Without this, alerts would be blind, or fire for groups that no longer exist."""
    group = tenant.group("web", size=(2, 3)).wait_ready(nodes=2)
    eventually(lambda: of(controller.metrics(), group).get('instance_manager_instance_group_status{status="Ready"}') == 1, harness.WAIT, "state Ready")
    eventually(lambda: of(controller.metrics(), group).get("instance_manager_reconcile_success_total{}"), harness.WAIT, "the pass that counts")
    seen = of(controller.metrics(), group)
    assert [name for name in seen if "instance_group_status" in name] == ['instance_manager_instance_group_status{status="Ready"}']
    counts = {state: seen[f'instance_manager_nodes{{state="{state}"}}'] for state in ("desired", "ready", "updated", "outdated", "draining")}
    assert counts == {"desired": 2, "ready": 2, "updated": 2, "outdated": 0, "draining": 0}
    bad = tenant.group("bad", size=(1, 1), taints=harness.REPEATED_TAINTS)
    bad.wait_condition("Stalled", reason="InvalidSpec")
    eventually(lambda: of(controller.metrics(), bad).get('instance_manager_reconcile_fail_total{reason="ResourceValidation"}'), harness.WAIT, "a failure")
    for gone in (group, bad):
        gone.delete()
        gone.wait_gone()
        eventually(lambda gone=gone: not of(controller.metrics(), gone), harness.WAIT, "the end of its series")


def test_every_metric_of_the_keiko_dashboards_is_served(tenant, controller):
    """Without this, working dashboards go dark when the controller is exchanged."""
    tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    found = series(controller.metrics())
    mine = '{controller="instancegroup"'
    queue = '{name="instancegroup"}'
    for name in (
        f'controller_runtime_reconcile_total{mine},result="success"}}',
        f'controller_runtime_reconcile_total{mine},result="requeue_after"}}',
        f"controller_runtime_reconcile_time_seconds_count{mine}}}",
        f"workqueue_adds_total{queue}",
        f"workqueue_work_duration_seconds_count{queue}",
        'instance_manager_aws_calls_total{operation="CreateAutoScalingGroup",outcome="ok",service="autoscaling"}',
        "instance_manager_leader",
        "instance_manager_boundaries_valid",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
    ):
        assert found.get(name, 0) > 0, name
    for name in (f"controller_runtime_reconcile_errors_total{mine}}}", f"workqueue_depth{queue}", f"workqueue_retries_total{queue}"):
        assert name in found
    assert any(name.startswith("instance_manager_boundaries_revision_info{hash=") for name in found)


def test_every_family_has_help_and_type(tenant, controller):
    """What `promtool check metrics` looks at."""
    tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    text = controller.metrics()
    helps = dict(re.findall(r"(?m)^# HELP (\S+) (.+)$", text))
    types = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
    assert helps.keys() == types.keys() and set(types.values()) <= TYPES
    for name in series(text):
        family = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name)[0]
        family = re.sub(r"_(bucket|sum|count)$", "", family) if family not in types else family
        assert family in types, name
        assert (types[family] == "counter") == family.endswith("_total"), family
        assert not re.search(r"_(counter|gauge|histogram|milliseconds|minutes|kilobytes)(_|$)", family), family
    for family, text in helps.items():
        assert not text[0].islower() and text.endswith("."), family


@pytest.mark.private
def test_readiness_needs_a_leader(own_cloud, start_controller):
    """A rollout must not count as complete while no controller works, nor wait forever for the second replica."""
    cloud = own_cloud()
    first = start_controller(cloud)
    second = start_controller(cloud, wait=False)

    def said(path):
        try:
            answer = requests.get(f"http://127.0.0.1:{second.port}{path}", timeout=5)
            return answer.status_code, answer.text
        except (requests.ConnectionError, requests.Timeout):
            return 0, ""

    eventually(lambda: said("/readyz")[1].startswith("standby"), harness.WAIT, "a controller that waits")
    for path in ("/readyz", "/healthz"):
        eventually(lambda path=path: said(path)[0] == 200, harness.WAIT, f"the answer of {path}")
    assert "instance_manager_leader 0" in second.metrics() and "instance_manager_leader 1" in first.metrics()
    first.stop()
    eventually(second.ready, harness.WAIT, "a new leader")


def test_user_data_appears_nowhere_but_in_the_template(tenant, controller):
    """Without this, a token in a script would be read by everyone who may read logs, events or metrics."""
    canary = f"canary{tenant.unique}"
    script = f"#!/bin/bash\necho {canary}\n"
    stages = [{"name": "secret", "stage": "PreBootstrap", "data": script}]
    group = tenant.group("web", size=(1, 2), userData=stages).wait_ready(nodes=1)
    assert canary in group.user_data()
    # A change of it is explained, too, and one that is refused.
    group.patch_spec(userData=[{**stages[0], "data": script + f"echo {canary} again\n"}])
    group.wait(lambda g: g.pinned() == "2", what="a new version")
    planned = planned_by(controller, group)
    group.wait_ready(nodes=1)
    group.patch_spec(userData=[{**stages[0], "stage": "PostBootstrap", "data": "not base64 nor script " + canary * 3000}])
    group.wait(lambda g: g.status().get("observedGeneration") == g.get()["metadata"]["generation"], what="an answer")
    shown = {
        "log": controller.log.read_text(errors="replace"),
        "events": str(group.events()),
        "status": str(group.status()),
        "metrics": controller.metrics(),
        "plan": planned,
        "AWS's log": str(group.events_in_aws()),
    }
    check_hidden(canary, script, shown)


def check_hidden(canary, script, shown):
    """Asserts that no place shows the text, or the script that holds it in base64."""
    forms = [canary, base64.b64encode(script.encode()).decode()[:40]]
    for place, text in shown.items():
        assert not any(form in text for form in forms), place


def set_default_user_data(cloud, **stage):
    """The script that the admin's ConfigMap gives every group."""

    def change(data):
        defaults = yaml.safe_load(data["defaults"])
        defaults["spec"]["eks"]["configuration"]["userData"] = [{"name": "secret", "stage": "PreBootstrap", **stage}]
        data["defaults"] = yaml.safe_dump(defaults)

    cloud.edit_config_map(change)


@pytest.mark.private
def test_default_user_data_appears_nowhere_but_in_revisions_and_templates(own_cloud, start_controller, make_tenant):
    """Without this, a tenant could read a token of the admin's script in the events and the status of its group, and everyone in logs and metrics."""
    cloud = own_cloud()
    cloud.edit_config_map(lambda data: data.update(rollout="waves: [{name: all}]\n"))
    canary = "canary7c1fb2"
    script = f"#!/bin/bash\necho {canary}\n"
    set_default_user_data(cloud, data=script)
    controller = start_controller(cloud, *harness.SHARED_FLAGS)
    group = make_tenant(cloud=cloud, controller=controller).group(size=(1, 2)).wait_ready(nodes=1)
    assert canary in group.user_data()
    # A rollout that ends, one that halts because the group cannot use the script, and a content that is not valid.
    set_default_user_data(cloud, data=script + f"echo {canary} again\n")
    complete = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Complete", "the rollout")
    assert complete["spec"]["from"]["change"] == "userData[secret].data changed" and f"{canary} again" in group.user_data()
    set_default_user_data(cloud, data=f"spec: [{canary}", stage="NodeConfigYaml")
    halted = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r3" and phase(r) == "Halted", "the halt")
    assert [behind["group"] for behind in halted["status"]["behind"]] == [group.key] and canary in halted["spec"]["data"]["defaults"]
    set_default_user_data(cloud, data=[canary])
    cloud.eventually(lambda: cloud.config_events("userData[0].data"), harness.WAIT, "the event about the content that is not valid")
    assert newest(cloud)["metadata"]["name"] == "r3"
    shown = {
        "log": controller.log.read_text(errors="replace"),
        "events": str(cloud.get("/apis/events.k8s.io/v1/events")),
        "status of the group": str(group.status()),
        "metrics": controller.metrics(),
        "plan": planned_by(controller, group),
        "AWS's log": str(group.events_in_aws()),
    }
    for name, revision in revisions(cloud).items():
        # What is stored is the content of the ConfigMap.
        revision["spec"].pop("data")
        shown[name] = str(revision)
    check_hidden(canary, script, shown)


def planned_by(controller, group):
    """What `plan` prints about a group, where this binary has it."""
    cloud = group.cloud
    command = [controller.command[0], "plan", "--kubeconfig", cloud["kubeconfig"], "-n", group.tenant.namespace, group.name]
    done = subprocess.run(command, capture_output=True, text=True, env={**cloud.environment, "AWS_ACCESS_KEY_ID": "person"})
    return done.stdout + done.stderr
