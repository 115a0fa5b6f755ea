"""The controller's ServiceAccount has exactly the permissions of deploy/rbac.yaml."""

import pytest
import yaml

from localcloud.tests import support
from localcloud.tests.support import REPOSITORY

OWN = "instance-manager"
EVERY_VERB = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
# (group, resource, namespace, name) and the allowed verbs. Every other verb is denied.
PERMISSIONS = [
    (("instancemgr.keikoproj.io", "instancegroups", "tenant", ""), {"get", "list", "watch", "patch"}),
    (("instancemgr.keikoproj.io", "instancegroups/status", "tenant", ""), {"patch"}),
    (("", "namespaces", "", ""), {"get", "list", "watch"}),
    (("", "nodes", "", ""), {"get", "list", "watch", "patch"}),
    (("", "nodes/status", "", ""), set()),
    (("", "nodes/proxy", "", ""), set()),
    (("", "pods", "tenant", ""), {"get", "list", "delete"}),
    (("", "pods/eviction", "tenant", ""), {"create"}),
    (("", "pods/exec", "tenant", ""), set()),
    (("", "pods/log", "tenant", ""), set()),
    (("policy", "poddisruptionbudgets", "tenant", ""), {"list"}),
    (("storage.k8s.io", "volumeattachments", "", ""), {"list"}),
    (("", "events", "tenant", ""), {"list", "watch"}),
    (("events.k8s.io", "events", "tenant", ""), {"create"}),
    (("", "secrets", "tenant", ""), set()),
    (("", "secrets", OWN, ""), set()),
    (("", "secrets", "kube-system", ""), set()),
    (("", "serviceaccounts/token", OWN, OWN), set()),
    (("", "configmaps", "tenant", ""), set()),
    (("", "configmaps", "kube-system", "aws-auth"), {"get", "list", "watch", "create", "patch"}),
    (("", "configmaps", "kube-system", "coredns"), {"create"}),
    (("", "configmaps", OWN, "instance-manager"), {"get", "list", "watch", "create"}),
    (("", "configmaps", OWN, "instance-manager-last-good"), {"get", "create", "update", "patch"}),
    (("", "configmaps", OWN, "other"), {"create"}),
    (("coordination.k8s.io", "leases", OWN, "instance-manager"), {"get", "create", "update"}),
    (("coordination.k8s.io", "leases", OWN, "other"), {"create"}),
    (("coordination.k8s.io", "leases", "kube-node-lease", ""), set()),
    (("apiextensions.k8s.io", "customresourcedefinitions", "", ""), set()),
    (("apps", "deployments", "tenant", ""), set()),
    (("rbac.authorization.k8s.io", "clusterroles", "", ""), set()),
    (("rbac.authorization.k8s.io", "rolebindings", OWN, ""), set()),
    (("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""), set()),
    (("authorization.k8s.io", "selfsubjectaccessreviews", "", ""), {"create"}),
]


@pytest.mark.parametrize(("target", "allowed"), PERMISSIONS, ids=lambda value: "-".join(filter(None, value)) if isinstance(value, tuple) else "")
def test_the_controller_has_exactly_these_permissions(kubernetes, target, allowed):
    assert {verb for verb in EVERY_VERB if may(kubernetes, verb, *target)} == allowed


def may(kubernetes, verb, group, resource, namespace, name):
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
    answer = kubernetes.api("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, kubernetes.controller_token)
    assert answer.ok, answer.text
    return answer.json()["status"]["allowed"]


def test_no_rule_has_a_wildcard():
    for document in yaml.safe_load_all((REPOSITORY / "deploy" / "rbac.yaml").read_text()):
        for rule in document.get("rules", []):
            assert "*" not in str(rule)


def test_the_controller_cannot_read_a_secret(kubernetes):
    answer = kubernetes.api("GET", "/api/v1/namespaces/kube-system/secrets", token=kubernetes.controller_token)
    assert answer.status_code == 403


def test_the_deployment_meets_the_restricted_pod_security_standard(kubernetes, unique):
    deployment, _ = yaml.safe_load_all((REPOSITORY / "deploy" / "deployment.yaml").read_text())
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubernetes.create("/api/v1/namespaces", {"metadata": {"name": unique, "labels": labels}})
    kubernetes.create(f"/api/v1/namespaces/{unique}/serviceaccounts", {"metadata": {"name": OWN}})
    spec = deployment["spec"]["template"]["spec"]
    # A dry run checks admission only.
    answer = kubernetes.api("POST", f"/api/v1/namespaces/{unique}/pods?dryRun=All", {"metadata": {"name": "pod"}, "spec": spec})
    kubernetes.api("DELETE", f"/api/v1/namespaces/{unique}")
    assert answer.ok, answer.text
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_manifests_can_be_applied(kubernetes):
    for name in ("deployment.yaml", "rollout-operator.yaml"):
        kubernetes.kubectl("apply", "--dry-run=server", "-f", REPOSITORY / "deploy" / name)
    apply = ("apply", "-f", REPOSITORY / "deploy" / "rbac.yaml")
    kubernetes.kubectl(*apply)
    again = kubernetes.kubectl(*apply)
    assert "configured" not in again and "created" not in again


@pytest.mark.parametrize(("role", "allowed"), [
    ("view", {"get", "list", "watch"}),
    ("edit", set(EVERY_VERB)),
    ("admin", set(EVERY_VERB)),
])  # fmt: skip
def test_people_with_the_usual_roles_may_use_instance_groups(kubernetes, namespace, role, allowed):
    """A tenant with Kubernetes' own role needs no further binding; only the controller writes the status."""
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    kubernetes.create(bindings, {"metadata": {"name": "people"}, "roleRef": reference, "subjects": [{"kind": "User", "name": namespace, "apiGroup": "rbac.authorization.k8s.io"}]})

    def allowed_verbs(resource):
        return {verb for verb in EVERY_VERB if may_as(kubernetes, namespace, verb, namespace, resource)}

    support.eventually(lambda: allowed_verbs("instancegroups") == allowed, 30, f"the permissions of {role}")
    assert allowed_verbs("instancegroups/status") <= {"get", "list", "watch"}


def may_as(kubernetes, user, verb, namespace, resource):
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": "instancemgr.keikoproj.io", "resource": resource, "subresource": subresource, "namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": attributes}}
    return kubernetes.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"]
