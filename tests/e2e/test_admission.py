"""The generated admission policy: the warnings that a tenant gets when an InstanceGroup is applied, judged by the real API server."""

import os
import subprocess
import time

import pytest
import yaml

from localcloud.tests import support
from e2e import harness

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
NAME = "instance-manager-boundaries"
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: instance-manager, namespace: instance-manager}
data:
  boundaries: |
    restricted:
    - spec.eks.configuration.image
    - spec.eks-managed.configuration.amiType
    - spec.eks.configuration.labels.example.com/tier
    - metadata.annotations.instancemgr.keikoproj.io/os-family
  defaults: ""
  policy: "excludableNamespaces: ['adm-free-*']"
"""
FIELDS = {
    "spec.eks.configuration.image": {"spec": {"eks": {"configuration": {"image": "ami-1"}}}},
    "spec.eks-managed.configuration.amiType": {"spec": {"provisioner": "eks-managed", "eks-managed": {"configuration": {"amiType": "AL2023_x86_64_STANDARD"}}}},
    "spec.eks.configuration.labels.example.com/tier": {"spec": {"eks": {"configuration": {"labels": {"example.com/tier": "gold"}}}}},
    "metadata.annotations.instancemgr.keikoproj.io/os-family": {"metadata": {"annotations": {"instancemgr.keikoproj.io/os-family": "windows"}}, "spec": {}},
}


def generate(tmp_path, *flags, config=CONFIG, check=None):
    """Runs `admission`; returns its exit code, output and errors."""
    path = tmp_path / "boundaries.yaml"
    path.write_text(config)
    program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
    done = subprocess.run([str(program), "admission", "--config", str(path), *flags, *(["--check", str(check)] if check else [])], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def send(cloud, method, namespace, name, body):
    """Sends an InstanceGroup; returns the status code and the warnings, or the message of the refusal."""
    collection = f"{harness.GROUPS}/namespaces/{namespace}/instancegroups"
    manifest = {"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", **body}
    manifest["metadata"] = {**manifest.get("metadata", {}), "name": name}
    if method == "POST":
        answer = cloud.api("POST", collection, manifest)
    else:
        answer = cloud.api("PATCH", f"{collection}/{name}", manifest, content_type="application/merge-patch+json")
    return answer.status_code, answer.headers.get("Warning", "") or ("" if answer.ok else answer.json()["message"])


@pytest.fixture
def cloud(own_cloud):
    """A control plane without a controller: nothing becomes of the groups."""
    cloud = own_cloud(config=None)
    yield cloud
    cloud.api("DELETE", f"{BINDINGS}/{NAME}")
    cloud.api("DELETE", f"{POLICIES}/{NAME}")


def install(cloud, text):
    """Applies what `admission` printed."""
    policy, binding = (document for document in yaml.safe_load_all(text) if document)
    cloud.create(POLICIES, policy)
    cloud.create(BINDINGS, binding)


def namespace(cloud, prefix, **annotations):
    """A new namespace."""
    name = f"{prefix}-{time.time_ns()}"
    cloud.create("/api/v1/namespaces", {"metadata": {"name": name, "annotations": annotations}})
    return name


@pytest.mark.private
def test_tenants_are_warned_of_exactly_the_fields_that_are_not_used(cloud, tmp_path):
    """A tenant would otherwise learn only from the status, days later, that a value never counted."""
    code, text, err = generate(tmp_path)
    assert code == 0, err
    install(cloud, text)
    team = namespace(cloud, "adm")
    image = FIELDS["spec.eks.configuration.image"]
    support.eventually(lambda: "is decided by" in send(cloud, "POST", team, f"g{time.time_ns()}", image)[1], harness.WAIT, "the active policy")
    for path, body in FIELDS.items():
        code, warning = send(cloud, "POST", team, f"g{time.time_ns()}", body)
        assert code == 201 and f"{path} is decided by your cluster admin; your value is not used" in warning, (path, code, warning)
        others = [other for other in FIELDS if other != path and f"{other} is decided" in warning]
        assert others == [], (path, warning)
    # Fields that may be set, also beside a restricted one, are no cause for a warning.
    free = {"metadata": {"annotations": {"example.com/mine": "x"}}, "spec": {"eks": {"minSize": 1, "configuration": {"labels": {"mine": "x"}}}}}
    assert send(cloud, "POST", team, "free", free) == (201, "")
    # What was there before is not complained about with every edit; a new value is.
    assert send(cloud, "POST", team, "old", image)[0] == 201
    assert send(cloud, "PATCH", team, "old", {"spec": {"eks": {"minSize": 2}}}) == (200, "")
    assert "is decided by" in send(cloud, "PATCH", team, "old", {"spec": {"eks": {"configuration": {"image": "ami-2"}}}})[1]
    # An excluded namespace is not merged, where the policy of the boundaries honors it.
    excluded = {"instancemgr.keikoproj.io/config-excluded": "True"}
    assert send(cloud, "POST", namespace(cloud, "adm-free", **excluded), "web", image) == (201, "")
    assert "is decided by" in send(cloud, "POST", namespace(cloud, "adm-paid", **excluded), "web", image)[1]
    # A namespace that could be excluded, and is not.
    assert "is decided by" in send(cloud, "POST", namespace(cloud, "adm-free-not"), "web", image)[1]


@pytest.mark.private
def test_denied_fields_are_rejected_and_old_groups_can_be_edited(cloud, tmp_path):
    """With --deny, a pipeline fails early; a group from before must not be locked in."""
    team = namespace(cloud, "adm")
    assert send(cloud, "POST", team, "old", FIELDS["spec.eks.configuration.image"])[0] == 201
    whole = CONFIG.replace("metadata.annotations.instancemgr.keikoproj.io/os-family", "metadata.annotations")
    code, text, err = generate(tmp_path, "--deny", config=whole)
    assert code == 0, err
    install(cloud, text)
    image = FIELDS["spec.eks.configuration.image"]
    support.eventually(lambda: send(cloud, "POST", team, f"g{time.time_ns()}", image)[0] == 422, harness.WAIT, "the active policy")
    code, message = send(cloud, "POST", team, "new", image)
    assert code == 422 and "spec.eks.configuration.image is decided by your cluster admin; remove it" in message, message
    assert send(cloud, "POST", team, "windows", FIELDS["metadata.annotations.instancemgr.keikoproj.io/os-family"])[0] == 422
    assert send(cloud, "POST", team, "kubectl", {"metadata": {"annotations": {"example.com/tool": "x"}}, "spec": {}})[0] == 201
    assert send(cloud, "PATCH", team, "old", {"spec": {"eks": {"minSize": 2}}}) == (200, "")
    # The finalizer and the status are the controller's own writes.
    assert send(cloud, "PATCH", team, "old", {"metadata": {"finalizers": []}})[0] == 200


def test_committed_policy_is_compared_with_the_config_map(tmp_path):
    """CI must find a policy that warns of other fields than the ConfigMap restricts."""
    code, text, _ = generate(tmp_path)
    committed = tmp_path / "policy.yaml"
    committed.write_text(text.replace("failurePolicy: Ignore", "failurePolicy:   Ignore   # by hand"))
    code, out, err = generate(tmp_path, check=committed)
    assert (code, out) == (0, "") and "warning: policy: roles:" in err and "does not match" not in err, err
    changed = CONFIG.replace("amiType", "version")
    code, out, err = generate(tmp_path, config=changed, check=committed)
    assert (code, out) == (2, "") and "does not match" in err and "instance-manager admission --config" in err, err
    code, _, err = generate(tmp_path, config=CONFIG.replace("    restricted:", "    restricted: {"))
    assert code == 1 and "boundaries.yaml:" in err, err
