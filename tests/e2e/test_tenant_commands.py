"""The commands with the permissions of a tenant: a ServiceAccount that a RoleBinding gives Kubernetes' role `edit` in one namespace."""

import itertools
import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml

from e2e import harness
from localcloud.tests import support
from localcloud.tests.support import eventually

BINDINGS = "/apis/rbac.authorization.k8s.io/v1"


class Person:
    """A ServiceAccount with a kubeconfig of its own, whose context names the tenant's namespace."""

    def __init__(self, tenant, folder):
        self.cloud, self.namespace = tenant.cloud, tenant.namespace
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.cloud.create(accounts, {"metadata": {"name": "dev"}})
        self.subject = {"kind": "ServiceAccount", "name": "dev", "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        binding = {"metadata": {"name": "dev"}, "roleRef": role, "subjects": [self.subject]}
        self.cloud.create(f"{BINDINGS}/namespaces/{self.namespace}/rolebindings", binding)
        answer = self.cloud.api("POST", f"{accounts}/dev/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        assert answer.ok, answer.text
        self.token = answer.json()["status"]["token"]
        config = json.loads(pathlib.Path(self.cloud["kubeconfig"]).read_text())
        config["users"] = [{"name": "dev", "user": {"token": self.token}}]
        cluster = config["clusters"][0]["name"]
        config["contexts"] = [{"name": "dev", "context": {"cluster": cluster, "user": "dev", "namespace": self.namespace}}]
        config["current-context"] = "dev"
        self.kubeconfig = folder / "kubeconfig.json"
        self.kubeconfig.write_text(json.dumps(config))
        groups = f"{harness.GROUPS}/namespaces/{self.namespace}/instancegroups"
        eventually(lambda: self.cloud.api("GET", groups, token=self.token).ok, harness.WAIT, "the aggregated roles")

    def wait_until_allowed(self, document):
        """Waits for the rules of a Role or ClusterRole: the API server learns of roles and bindings one by one."""
        namespace = document["metadata"].get("namespace")
        for rule in document["rules"]:
            for resource, verb in itertools.product(rule["resources"], rule["verbs"]):
                asked = {"group": rule["apiGroups"][0], "resource": resource, "verb": verb, "name": rule.get("resourceNames", [""])[0]}
                eventually(lambda asked=asked: self.may({**asked, "namespace": namespace or ""}), harness.WAIT, f"permission to {asked}")

    def may(self, attributes):
        """Whether the API server allows it."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        answer = self.cloud.api("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, token=self.token)
        assert answer.ok, answer.text
        return answer.json()["status"]["allowed"]

    def run(self, *arguments, aws=False):
        """Runs a command; returns exit code, output and errors."""
        program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
        env = {**self.cloud.environment, "KUBECONFIG": str(self.kubeconfig), "AWS_ACCESS_KEY_ID": "tenant"}
        if not aws:
            env = {key: value for key, value in env.items() if not key.startswith("AWS_")}
        done = subprocess.run([str(program), *arguments], env=env, capture_output=True, text=True)
        print(f"$ {' '.join(arguments)}\n{done.stdout}{done.stderr}[{done.returncode}]")
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def person(tenant, tmp_path):
    """A tenant's person with a Ready group `web`."""
    tenant.group("web", size=(1, 2)).wait_ready(nodes=1)
    return Person(tenant, tmp_path)


def rights_in_the_docs():
    """The manifests that docs/cli.md shows to an admin who grants the permissions."""
    text = (support.REPOSITORY / "docs" / "cli.md").read_text()
    (found,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "instance-manager-plan" in block]
    return list(yaml.safe_load_all(found))


def test_a_tenant_sees_what_its_rights_cover_and_which_rights_it_lacks(person):
    """A tenant would read a Kubernetes error without learning whom to ask for which permission."""
    group = f"{person.namespace}/web"
    code, out, _ = person.run("status", "web")
    assert code == 0 and out.startswith(f"{group}: Ready") and "not shown: you do not have permission to list nodes; a cluster admin can grant it" in out
    code, out, _ = person.run("status")
    assert code == 0 and group in out, "the namespace of the kubeconfig"
    code, _, err = person.run("status", "-A")
    assert code == 1 and "permission to list instancegroups; a cluster admin can grant it" in err
    assert person.run("reconcile", "web")[0] == 0
    code, out, err = person.run("explain", group)
    assert code == 1 and re.search(r"spec\.eks\.minSize +tenant +1", out), out
    for part in ("do not have permission to get configmaps/instance-manager in the namespace instance-manager", "cluster admin can grant", "in use"):
        assert part in err
    code, out, _ = person.run("plan", "-n", person.namespace)
    assert code == 1
    for part in ("list nodes", "get configmaps/aws-auth in the namespace kube-system", "cluster admin can grant", f"{group}  unknown: the controller reported Ready"):
        assert part in out


def test_a_group_that_does_not_exist_is_named_once(person):
    """Without this, the same answer is read three times in one line."""
    for command in ("status", "reconcile", "explain", "plan"):
        code, out, err = person.run(command, "none", "-n", person.namespace)
        assert code == 1 and not out and err.count("not found") == 1 and f"{person.namespace}/none" in err


def test_a_tenant_plans_with_the_rights_that_the_docs_name(person):
    """Without this, an admin would grant what the page says, and `plan` would still refuse."""
    granted, documents = [], rights_in_the_docs()
    for document in documents:
        document["metadata"]["name"] += f"-{person.namespace}"
        if "roleRef" in document:
            document["roleRef"]["name"] += f"-{person.namespace}"
            document["subjects"] = [person.subject]
        namespace = document["metadata"].get("namespace")
        path = f"{BINDINGS}/{f'namespaces/{namespace}/' if namespace else ''}{document['kind'].lower()}s"
        person.cloud.create(path, document)
        granted.append(f"{path}/{document['metadata']['name']}")
    try:
        for document in documents:
            if "rules" in document:
                person.wait_until_allowed(document)
        # Other tests change the ConfigMap of this cloud meanwhile, which makes no difference to the group.
        code, out, err = person.run("explain", "web", "--context", "dev")
        assert code == 0 and not err and re.search(r"spec\.eks\.configuration\.clusterName +default", out), out
        code, out, err = person.run("plan", f"{person.namespace}/web", aws=True)
        assert code == 0 and f"{person.namespace}/web  unchanged" in out, out + err
        assert f"other namespaces than {person.namespace}" in out
    finally:
        for path in granted:
            person.cloud.api("DELETE", path)
