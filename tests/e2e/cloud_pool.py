"""Private clouds for tests, whose control planes are used again.

Starting a control plane costs more than most tests. A worker therefore keeps the control planes that its tests no longer
need: it deletes everything that a test created in Kubernetes. The simulated AWS always starts empty.
"""

import json
import os
import pathlib

from e2e import harness
from localcloud.aws.fork_server import ForkServer
from localcloud.tests import support

KEPT_NAMESPACES = ("default", "instance-manager", "kube-node-lease", "kube-public", "kube-system")
EVENT_NAMESPACES = ("default", "instance-manager", "kube-system")
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = harness.CONFIG.rpartition("/")[0]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/instance-manager/leases/instance-manager"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHIPPED = (f"{DEFINITIONS}/instancegroups.instancemgr.keikoproj.io", f"{DEFINITIONS}/boundariesrevisions.instancemgr.keikoproj.io", "/apis/rbac.authorization.k8s.io/v1/clusterroles/instance-manager")
"""What every control plane starts with and a test may change."""


class CloudPool:
    """The control planes of one worker; `start_cloud` starts further ones."""

    def __init__(self, start_cloud):
        self._start_cloud = start_cloud
        self._fork_server = None
        self._idle = []

    def take(self, *flags):
        """A cloud that no other test uses; `flags` are those of localcloud/aws/server.py."""
        if self._fork_server is None:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            self._fork_server = ForkServer(environment | {"PYTHONPATH": str(support.REPOSITORY)}, support.REPOSITORY)
        control_plane = self._idle.pop() if self._idle else ControlPlane(self._start_cloud("--no-aws"), self._fork_server)
        return control_plane.start_aws(flags)

    def give_back(self, cloud):
        """Makes the control plane of a cloud available to the next test. A changed or damaged one is stopped instead.

        Fails if the controller sent a request that breaks the model of an AWS service.
        """
        try:
            cloud.check_requests()
        finally:
            cloud.control_plane.stop_aws()
            if cloud.control_plane.reset():
                self._idle.append(cloud.control_plane)
            else:
                cloud.control_plane.stop()


class ControlPlane:
    """A Kubernetes control plane, and the simulated AWS of the test that uses it."""

    def __init__(self, cloud, fork_server):
        self._cloud = cloud
        self._fork_server = fork_server
        self._shipped = self._read_shipped()
        self._aws = None
        self._count = 0
        self._ended = set()
        """The namespaces of earlier tests, which stay."""

    def _read_shipped(self):
        found = [self._cloud.get(path) or {} for path in SHIPPED]
        return [{key: each.get(key) for key in ("spec", "rules")} for each in found]

    def start_aws(self, flags):
        """Starts an empty simulated AWS for this control plane; returns the cloud of both."""
        self._count += 1
        state = pathlib.Path(self._cloud["state"]) / f"aws-{self._count}"
        state.mkdir()
        kube = state / "kube.json"
        kube.touch(mode=0o600)
        kube.write_text(json.dumps({"url": self._cloud["apiserver"], "token": self._cloud["admin_token"], "ca": self._cloud.certificate_authority}))
        log = state / "aws.log"
        self._aws = self._fork_server.start(["--state", state, "--kubeconfig-json", kube, *flags], log)
        facts = state / "aws.json"
        support.eventually(lambda: facts.exists() or not self._fork_server.is_running(self._aws), harness.WAIT, f"the simulated AWS ({log})")
        assert facts.exists(), log.read_text()
        return harness.Cloud.on_control_plane(self, self._cloud, json.loads(facts.read_text()))

    def stop_aws(self):
        """Ends the simulated AWS. Nodes are no longer maintained."""
        self._fork_server.stop(self._aws)

    def stop(self):
        """Ends the control plane."""
        if self._cloud.process.poll() is None:
            support.stop(self._cloud.process)

    def reset(self):
        """Deletes what a test created in Kubernetes; returns whether the control plane is as it was at its start."""
        cloud = self._cloud
        if cloud.process.poll() is not None or self._read_shipped() != self._shipped:
            return False
        known = {path.rpartition("/")[2] for path in SHIPPED}
        if {each["metadata"]["name"] for each in cloud.get(DEFINITIONS)["items"]} - known:
            return False
        for group in cloud.get(f"{harness.GROUPS}/instancegroups")["items"]:
            path = f"{harness.GROUPS}/namespaces/{group['metadata']['namespace']}/instancegroups/{group['metadata']['name']}"
            cloud.api("PATCH", path, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
            cloud.api("DELETE", path)
        namespaces = {each["metadata"]["name"] for each in cloud.get(NAMESPACES)["items"]} - self._ended
        self._ended |= {each for each in namespaces - set(KEPT_NAMESPACES) if harness.end_namespace(cloud, each)}
        # Without their nodes, pods do not end by themselves.
        for namespace in namespaces:
            cloud.api("DELETE", f"{NAMESPACES}/{namespace}/pods", {"gracePeriodSeconds": 0})
        cloud.api("DELETE", "/api/v1/nodes")
        cloud.api("DELETE", LEASE)
        cloud.api("DELETE", f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions")
        # The simulated EKS makes pods Fargate pods with these.
        for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
            cloud.api("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}")
        cloud.api("DELETE", harness.AWS_AUTH)
        for config_map in cloud.get(CONFIG_MAPS)["items"]:
            if config_map["metadata"]["name"] != "kube-root-ca.crt":
                cloud.api("DELETE", f"{CONFIG_MAPS}/{config_map['metadata']['name']}")
        for namespace in EVENT_NAMESPACES:
            cloud.api("DELETE", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        support.eventually(self._empty, harness.WAIT, "a control plane without the objects of the last test")
        return True

    def _empty(self):
        """Whether neither groups nor nodes nor pods are left. Pods of a namespace that ends are created again at first."""
        paths = (f"{harness.GROUPS}/instancegroups", "/api/v1/nodes", "/api/v1/pods")
        left = [item for path in paths for item in self._cloud.get(path)["items"]]
        for pod in left:
            if "containers" in pod.get("spec", {}):
                self._cloud.api("DELETE", f"{NAMESPACES}/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        return not left
