"""Simulated kubelets: an instance becomes a Node only if a real one would.

Decisions are made while holding the simulator's lock. Calls to Kubernetes run on one worker thread.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import logging
import zlib
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.eks import clusters
from localcloud.aws.iam.instance_profiles import find_profile
from localcloud.aws.iam.shared import on_instance_running
from localcloud.aws.kubernetes import KubernetesClient
from localcloud.aws.nodes import authenticator, networks, node_objects
from localcloud.aws.nodes.user_data import NodeSpec, parse, waits_in_warm_pool
from localcloud.aws.nodes.user_data_error import InvalidUserData
from localcloud.aws.timers import Timers

log = logging.getLogger(__name__)
RETRY_SECONDS = 2.0


@dataclass
class Kubelet:
    """The kubelet of one instance.

    `state` is booting, warmed, waiting, joined, ready, never-ready, dead, refused or stopped.
    """

    instance: Any
    group: str
    template: dict[str, str]
    behavior: str = "ok"
    after: float = 0.0
    spec: NodeSpec | None = None
    role: Any = None
    address: str = ""
    node: str = ""
    state: str = "booting"
    reason: str = ""
    logged_reasons: list[str] = field(default_factory=list)
    warm: bool = False

    @property
    def entry_type(self) -> str:
        """The type of access entry that its node needs."""
        return "EC2_WINDOWS" if self.spec is not None and self.spec.family == "windows" else "EC2_LINUX"

    @property
    def cluster(self) -> str:
        """The cluster that its user data names."""
        return self.spec.cluster if self.spec is not None else ""


class Kubelets:
    """All kubelets, by instance id."""

    def __init__(self, simulator: Any, kube: KubernetesClient | None) -> None:
        self.simulator = simulator
        self.kube = kube
        self.all: dict[str, Kubelet] = {}
        self.map_roles: str | None = None
        if kube:
            self.worker = Timers("kubelets")
            kube.watch_aws_auth(self.on_aws_auth_change)

    def describe(self) -> dict[str, Any]:
        """The state of each kubelet, for the control endpoint."""
        with self.simulator.lock:
            fields = ("node", "group", "state", "reason", "behavior")
            return {identifier: {name: getattr(kubelet, name) for name in fields} for identifier, kubelet in self.all.items()}

    def on_running(self, identifier: str, group: str, template: dict[str, str], warm: bool = False) -> None:
        """The instance is running. Read its user data after a delay. A kubelet that has joined before starts without
        it.
        """
        profile = self.simulator.ec2.get_instance(identifier).iam_instance_profile
        current = find_profile(self.simulator, {"Arn": profile.arn}) if profile else None
        on_instance_running(self.simulator, current.roles[0] if current and current.roles else None)
        if self.kube is None:
            return
        existing = self.all.get(identifier)
        if existing and existing.node:
            existing.state, existing.reason = "joined", ""
            self.simulator.timers.after(self.simulator.settings.delays.join, lambda: self.worker.after(0, lambda: self.ready(existing)))
            return
        kubelet = Kubelet(self.simulator.ec2.get_instance(identifier), group, template, warm=warm)
        image = self.simulator.images.get(kubelet.instance.image_id)
        if image:
            kubelet.behavior, kubelet.after = image.behavior, image.after
        self.all[identifier] = kubelet
        self.simulator.timers.after(self.simulator.settings.delays.join, lambda: self.start(kubelet))

    def start(self, kubelet: Kubelet) -> None:
        """Read the user data, then try to join."""
        if kubelet.state != "booting":
            return
        try:
            kubelet.spec = self.check_user_data(kubelet)
        except InvalidUserData as error:
            self.set_not_joined(kubelet, "refused", str(error))
            return
        if kubelet.warm and waits_in_warm_pool(decode_user_data(kubelet.instance, kubelet.spec.family), kubelet.spec.family):
            self.set_not_joined(kubelet, "warmed", "its user data waits until the instance leaves the warm pool")
            return
        if kubelet.behavior == "ok" and self.simulator.nodegroups.never_becomes_ready(kubelet):
            kubelet.behavior = "not-ready"
        kubelet.state = "waiting"
        self.join(kubelet)

    def check_user_data(self, kubelet: Kubelet) -> NodeSpec:
        """Parse the user data. Raises InvalidUserData if it cannot start a node of this cluster."""
        instance = kubelet.instance
        image = self.simulator.images.get(instance.image_id)
        if image is None or kubelet.behavior == "never-joins":
            raise InvalidUserData(f"the AMI {instance.image_id} starts no kubelet")
        spec = parse(decode_user_data(instance, image.family), image.family)
        cluster = self.simulator.eks.clusters.get(spec.cluster)
        if cluster is None:
            raise InvalidUserData(f"the user data names cluster {spec.cluster!r}, which does not exist")
        if spec.endpoint is not None and spec.endpoint.rstrip("/") != self.simulator.endpoint.rstrip("/"):
            raise InvalidUserData(f"the API server {spec.endpoint!r} cannot be reached")
        if spec.ca is not None and spec.ca != self.simulator.ca_data:
            raise InvalidUserData("x509: certificate signed by unknown authority")
        service_range, kind = clusters.service_range(cluster), INSTANCE_TYPES[instance.instance_type]
        subnet = self.simulator.ec2.get_subnet(instance.subnet_id)
        ipv6_address = networks.ipv6_address(instance, subnet)
        vpc_ranges = networks.vpc_ranges(self.simulator.ec2.get_vpc(subnet.vpc_id))
        problem = networks.network_problem(spec, service_range, kind, ipv6_address, vpc_ranges)
        if problem:
            raise InvalidUserData(problem)
        kubelet.address = ipv6_address if ":" in service_range else instance.private_ip
        return spec

    def role_of(self, kubelet: Kubelet) -> Any:
        """The current role of the instance."""
        profile = kubelet.instance.iam_instance_profile
        current = find_profile(self.simulator, {"Arn": profile.arn}) if profile else None
        return current.roles[0] if current and current.roles else None

    def authorization_problem(self, kubelet: Kubelet) -> str | None:
        """Why the instance's role cannot join now, or None."""
        role = self.role_of(kubelet)
        return authenticator.node_role_problem(role) or authenticator.authorization_problem(self.simulator, role, kubelet.entry_type, kubelet.cluster)

    def join(self, kubelet: Kubelet) -> None:
        """Register the node if its role is authorized. Otherwise retry, as a kubelet does."""
        if kubelet.state != "waiting":
            return
        problem = self.authorization_problem(kubelet)
        if problem:
            self.set_not_joined(kubelet, "waiting", problem)
            self.simulator.timers.after(RETRY_SECONDS, lambda: self.join(kubelet))
            return
        image = self.simulator.images[kubelet.instance.image_id]
        version = image.version or self.simulator.nodegroups.version_of(kubelet.template)
        node = node_objects.build_node(kubelet.instance, kubelet.spec, image, self.simulator.settings.region, version, kubelet.address)
        kubelet.role = self.role_of(kubelet)
        kubelet.node, kubelet.state, kubelet.reason = node["metadata"]["name"], "joined", ""
        self.worker.after(0, lambda: self.register(kubelet, node))

    def register(self, kubelet: Kubelet, node: dict[str, Any]) -> None:
        """Worker: create the Node, and make it ready after a delay."""
        if kubelet.state != "joined":
            return
        answer = self.kube.create_node(node)
        if answer.status_code >= 300:
            with self.simulator.lock:
                self.set_not_joined(kubelet, "refused", f"the API server refused the node: {answer.text[:300]}")
            return
        self.log_state(kubelet, "joined")
        self.worker.after(self.simulator.settings.delays.ready, lambda: self.ready(kubelet))

    def ready(self, kubelet: Kubelet) -> None:
        """Worker: set the node Ready, unless its AMI is broken."""
        if kubelet.state not in ("joined", "dead"):
            return
        if kubelet.behavior == "not-ready":
            kubelet.state = "never-ready"
            self.kube.patch_node(kubelet.node, {"metadata": {"labels": {node_objects.KUBELET_LABEL: "never-ready"}}})
            self.log_state(kubelet, "not-ready")
            return
        kubelet.state = "ready"
        alive = {node_objects.KUBELET_LABEL: "alive"}
        self.kube.set_ready(kubelet.node, "True", "KubeletReady", "kubelet is posting ready status", **alive)
        self.log_state(kubelet, "ready")
        if kubelet.behavior == "dies":
            self.worker.after(kubelet.after, lambda: self.mark_dead(kubelet, "the AMI's kubelet died"))

    def mark_dead(self, kubelet: Kubelet, reason: str) -> None:
        """Worker: stop the heartbeats. The node's Ready condition becomes Unknown."""
        if kubelet.state not in ("ready", "never-ready", "joined"):
            return
        kubelet.state, kubelet.reason = "dead", reason
        self.kube.patch_node(kubelet.node, {"metadata": {"labels": {node_objects.KUBELET_LABEL: "dead"}}})
        self.log_state(kubelet, "dead", reason=reason)
        self.worker.after(self.simulator.settings.delays.notice, lambda: self.mark_node_unknown(kubelet))

    def mark_node_unknown(self, kubelet: Kubelet) -> None:
        """Worker: set Ready to Unknown, as the node lifecycle controller does, but sooner."""
        if kubelet.state == "dead":
            self.kube.set_ready(kubelet.node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    def stop_kubelet(self, identifier: str) -> None:
        """Stop a kubelet, for tests."""
        kubelet = self.get_kubelet(identifier)
        self.worker.after(0, lambda: self.mark_dead(kubelet, "stopped on demand"))

    def recover(self, identifier: str) -> None:
        """Restart a kubelet, for tests. It stays healthy even if its AMI is broken."""
        kubelet = self.get_kubelet(identifier)
        kubelet.behavior, kubelet.reason = "ok", ""
        if kubelet.state == "never-ready":
            kubelet.state = "joined"
        self.worker.after(0, lambda: self.ready(kubelet))

    def get_kubelet(self, identifier: str) -> Kubelet:
        """The kubelet of an instance. Raises ValueError if there is none."""
        if identifier not in self.all:
            raise ValueError(f"no kubelet runs on {identifier}")
        return self.all[identifier]

    def instance_of(self, identifier: str) -> str:
        """The instance id of an instance id or a node name."""
        return next((i for i, kubelet in self.all.items() if kubelet.node == identifier), identifier)

    def on_shutting_down(self, identifier: str) -> None:
        """The instance is shutting down. Its kubelet stops, and its pods are no longer handled."""
        kubelet = self.all.get(identifier)
        if kubelet is None:
            return
        was_registered, kubelet.state = kubelet.state in ("joined", "ready", "never-ready"), "stopped"
        if was_registered:
            self.worker.after(0, lambda: self.kube.patch_node(kubelet.node, {"metadata": {"labels": {node_objects.KUBELET_LABEL: "dead"}}}))

    def on_stopped(self, identifier: str) -> None:
        """The instance is stopped, not terminated. Its Node remains."""
        kubelet = self.all.get(identifier)
        if kubelet and kubelet.node:
            self.worker.after(0, lambda: self.mark_dead(kubelet, "the instance was stopped"))
        elif kubelet:
            kubelet.state = "stopped"

    def on_terminated(self, identifier: str) -> None:
        """The instance is terminated. Its Node is deleted."""
        kubelet = self.all.pop(identifier, None)
        if kubelet is None:
            return
        kubelet.state = "stopped"
        if kubelet.node:
            self.worker.after(0, lambda: self.delete_node(kubelet))

    def delete_node(self, kubelet: Kubelet) -> None:
        """Worker: delete the Node and its remaining pods."""
        self.kube.delete_node(kubelet.node)
        self.log_state(kubelet, "gone")

    def on_aws_auth_change(self, map_roles: str | None) -> None:
        """Handle a change of aws-auth."""
        # Long lists take long to parse, and requests wait for the lock.
        with contextlib.suppress(ValueError):
            authenticator.entries_by_role(map_roles or "")
        with self.simulator.lock:
            self.map_roles = map_roles
            self.reevaluate_authorization()

    def reevaluate_authorization(self) -> None:
        """Handle a change of authorization: waiting kubelets retry, and unauthorized ones stop their heartbeats."""
        for kubelet in list(self.all.values()):
            # A running instance gets the role that its profile holds now; credentials of one that was taken out last for hours.
            kubelet.role = self.role_of(kubelet) or kubelet.role
            if kubelet.state == "waiting" and not self.authorization_problem(kubelet):
                self.join(kubelet)
            elif kubelet.state in ("joined", "ready"):
                if self.unauthorized(kubelet):
                    self.worker.after(0, lambda k=kubelet: self.stop_unauthorized(k))
            elif kubelet.state == "dead" and not self.unauthorized(kubelet):
                self.rejoin(kubelet)

    def stop_unauthorized(self, kubelet: Kubelet) -> None:
        """Worker: stop the heartbeats of a kubelet, unless it has been authorized again meanwhile."""
        with self.simulator.lock:
            reason = self.unauthorized(kubelet)
        if reason:
            self.mark_dead(kubelet, reason)
            with self.simulator.lock:
                if not self.unauthorized(kubelet):
                    self.rejoin(kubelet)

    def unauthorized(self, kubelet: Kubelet) -> str | None:
        """Why a kubelet that has joined cannot authenticate, or None."""
        return authenticator.authorization_problem(self.simulator, kubelet.role, kubelet.entry_type, kubelet.cluster)

    def rejoin(self, kubelet: Kubelet) -> None:
        """Restart a kubelet that had stopped only because it was unauthorized."""
        if kubelet.reason.startswith(authenticator.AUTHORIZATION_PROBLEMS):
            self.worker.after(0, lambda: self.ready(kubelet))

    def set_not_joined(self, kubelet: Kubelet, state: str, reason: str) -> None:
        """Record why there is no node. Each reason is logged once."""
        kubelet.state, kubelet.reason = state, reason
        if reason not in kubelet.logged_reasons:
            kubelet.logged_reasons.append(reason)
            self.log_state(kubelet, "not-joined", reason=reason)

    def log_state(self, kubelet: Kubelet, state: str, **more: Any) -> None:
        """Write to the event log and to the instance's console output."""
        name = kubelet.node or node_objects.node_name(kubelet.instance, self.simulator.settings.region)
        self.simulator.console[kubelet.instance.id].append(f"kubelet: {state} {more.get('reason', '')}".rstrip())
        self.simulator.log.state(
            "node", name, instance=kubelet.instance.id, group=kubelet.group, state=state, version=kubelet.template.get("Version"), **more
        )


def decode_user_data(instance: Any, family: str | None = None) -> str:
    """The instance's user data as text. cloud-init, nodeadm and Bottlerocket decompress gzip, EC2Launch does not."""
    if not instance.user_data:
        raise InvalidUserData("there is no user data")
    try:
        data = base64.b64decode(str(instance.user_data))
        if data[:2] == b"\x1f\x8b" and family != "windows":
            data = gzip.decompress(data)
        return data.decode()
    except (OSError, EOFError, zlib.error):
        raise InvalidUserData("the user data starts like gzip but is not valid gzip") from None
    except ValueError:
        raise InvalidUserData("the user data is not text") from None
