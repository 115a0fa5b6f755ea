"""Simulated kubelets: an instance becomes a Node only if a real one would.

What they decide, they decide under the world's lock; what they tell Kubernetes goes through one worker thread.
"""

from __future__ import annotations

import base64
import gzip
import logging
import zlib
from dataclasses import dataclass, field
from typing import Any

from localcloud.aws.autoscaling import instance_launch as launch
from localcloud.aws.nodes import authenticator as auth, node_objects as nodes
from localcloud.aws.timers import Timers
from localcloud.aws.kubernetes import Kube
from localcloud.aws.nodes.user_data import NodeSpec, parse, waits_in_warm_pool
from localcloud.aws.nodes.user_data_error import Unusable

log = logging.getLogger(__name__)
RETRY = 2.0


@dataclass
class Kubelet:
    """The kubelet of one instance. state: booting, warmed, waiting, joined, ready, never-ready, dead, refused or stopped."""

    instance: Any
    group: str
    template: dict[str, str]
    behaviour: str = "ok"
    after: float = 0.0
    spec: NodeSpec | None = None
    role: Any = None
    node: str = ""
    state: str = "booting"
    reason: str = ""
    told: list[str] = field(default_factory=list)
    warm: bool = False

    @property
    def kind(self) -> str:
        """The type of the access entry that its node needs."""
        return "EC2_WINDOWS" if self.spec is not None and self.spec.family == "windows" else "EC2_LINUX"


class Kubelets:
    """All kubelets, by instance id."""

    def __init__(self, world: Any, kube: Kube | None) -> None:
        self.world = world
        self.kube = kube
        self.all: dict[str, Kubelet] = {}
        self.map_roles: str | None = None
        if kube:
            self.worker = Timers("kubelets")
            kube.watch_auth(self.auth_changed)

    def describe(self) -> dict[str, Any]:
        """What became of each, for the control endpoint."""
        with self.world.lock:
            return {i: {"node": k.node, "group": k.group, "state": k.state, "reason": k.reason} for i, k in self.all.items()}

    def boot(self, identifier: str, group: str, template: dict[str, str], warm: bool = False) -> None:
        """The instance runs now: its user data is read after a while; a kubelet that had joined once starts by itself."""
        if self.kube is None:
            return
        before = self.all.get(identifier)
        if before and before.node:
            before.state, before.reason = "joined", ""
            self.world.timers.after(self.world.settings.delays.join, lambda: self.worker.after(0, lambda: self.ready(before)))
            return
        kubelet = Kubelet(self.world.ec2.get_instance(identifier), group, template, warm=warm)
        image = self.world.images.get(kubelet.instance.image_id)
        if image:
            kubelet.behaviour, kubelet.after = image.behaviour, image.after
        self.all[identifier] = kubelet
        self.world.timers.after(self.world.settings.delays.join, lambda: self.start(kubelet))

    def start(self, kubelet: Kubelet) -> None:
        """Read the user data, then try to join."""
        if kubelet.state != "booting":
            return
        try:
            kubelet.spec = self.check(kubelet)
        except Unusable as unusable:
            self.refuse(kubelet, "refused", str(unusable))
            return
        if kubelet.warm and waits_in_warm_pool(text_of(kubelet.instance, kubelet.spec.family), kubelet.spec.family):
            self.refuse(kubelet, "warmed", "its user data waits until the instance leaves the warm pool")
            return
        if kubelet.behaviour == "ok" and self.world.nodegroups.unready(kubelet):
            kubelet.behaviour = "not-ready"
        kubelet.state = "waiting"
        self.join(kubelet)

    def check(self, kubelet: Kubelet) -> NodeSpec:
        """What the user data says, or why that cannot become a node of this cluster."""
        instance, settings = kubelet.instance, self.world.settings
        image = self.world.images.get(instance.image_id)
        if image is None or kubelet.behaviour == "never-joins":
            raise Unusable(f"the AMI {instance.image_id} starts no kubelet")
        spec = parse(text_of(instance, image.family), image.family)
        if spec.cluster != settings.cluster_name:
            raise Unusable(f"the user data names cluster {spec.cluster!r}, not {settings.cluster_name!r}")
        if spec.endpoint is not None and spec.endpoint.rstrip("/") != self.world.endpoint.rstrip("/"):
            raise Unusable(f"the API server {spec.endpoint!r} cannot be reached")
        if spec.ca is not None and spec.ca != self.world.ca_data:
            raise Unusable("x509: certificate signed by unknown authority")
        return spec

    def role_of(self, kubelet: Kubelet) -> Any:
        """The role that the instance has now."""
        profile = kubelet.instance.iam_instance_profile
        current = launch.find_profile(self.world, {"Arn": profile.arn}) if profile else None
        return current.roles[0] if current and current.roles else None

    def refusal(self, kubelet: Kubelet) -> str | None:
        """Why the instance's role cannot join now."""
        role = self.role_of(kubelet)
        return auth.role_problem(role) or auth.refusal(self.world, role, kubelet.kind)

    def join(self, kubelet: Kubelet) -> None:
        """Register the node, if its role is let in; else try again, as a kubelet does."""
        if kubelet.state != "waiting":
            return
        refusal = self.refusal(kubelet)
        if refusal:
            self.refuse(kubelet, "waiting", refusal)
            self.world.timers.after(RETRY, lambda: self.join(kubelet))
            return
        image, version = self.world.images[kubelet.instance.image_id], self.world.nodegroups.version_of(kubelet.template)
        node = nodes.build(kubelet.instance, kubelet.spec, image.architecture, self.world.settings.region, version)
        kubelet.role = self.role_of(kubelet)
        kubelet.node, kubelet.state, kubelet.reason = node["metadata"]["name"], "joined", ""
        self.worker.after(0, lambda: self.register(kubelet, node))

    def register(self, kubelet: Kubelet, node: dict[str, Any]) -> None:
        """Worker: create the Node, and make it ready later."""
        if kubelet.state != "joined":
            return
        answer = self.kube.create_node(node)
        if answer.status_code >= 300:
            with self.world.lock:
                self.refuse(kubelet, "refused", f"the API server refused the node: {answer.text[:300]}")
            return
        self.tell(kubelet, "joined")
        self.worker.after(self.world.settings.delays.ready, lambda: self.ready(kubelet))

    def ready(self, kubelet: Kubelet) -> None:
        """Worker: the node becomes Ready, unless its AMI is broken."""
        if kubelet.state not in ("joined", "dead"):
            return
        if kubelet.behaviour == "not-ready":
            kubelet.state = "never-ready"
            self.kube.patch_node(kubelet.node, {"metadata": {"labels": {nodes.KUBELET: "never-ready"}}})
            self.tell(kubelet, "not-ready")
            return
        kubelet.state = "ready"
        self.kube.set_ready(kubelet.node, "True", "KubeletReady", "kubelet is posting ready status")
        self.kube.patch_node(kubelet.node, {"metadata": {"labels": {nodes.KUBELET: "alive"}}})
        self.tell(kubelet, "ready")
        if kubelet.behaviour == "dies":
            self.worker.after(kubelet.after, lambda: self.dead(kubelet, "the AMI's kubelet died"))

    def dead(self, kubelet: Kubelet, reason: str) -> None:
        """Worker: the kubelet is silent from now on; its node becomes Unknown."""
        if kubelet.state not in ("ready", "never-ready", "joined"):
            return
        kubelet.state, kubelet.reason = "dead", reason
        self.kube.patch_node(kubelet.node, {"metadata": {"labels": {nodes.KUBELET: "dead"}}})
        self.tell(kubelet, "dead", reason=reason)
        self.worker.after(self.world.settings.delays.notice, lambda: self.noticed(kubelet))

    def noticed(self, kubelet: Kubelet) -> None:
        """Worker: do what the node lifecycle controller does when it misses a kubelet, only sooner."""
        if kubelet.state == "dead":
            self.kube.set_ready(kubelet.node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    def die(self, identifier: str) -> None:
        """Stop a kubelet on demand."""
        kubelet = self.known(identifier)
        self.worker.after(0, lambda: self.dead(kubelet, "stopped on demand"))

    def recover(self, identifier: str) -> None:
        """Bring a kubelet back on demand; its AMI does not break it again."""
        kubelet = self.known(identifier)
        kubelet.behaviour, kubelet.reason = "ok", ""
        if kubelet.state == "never-ready":
            kubelet.state = "joined"
        self.worker.after(0, lambda: self.ready(kubelet))

    def known(self, identifier: str) -> Kubelet:
        """The kubelet of an instance that has one."""
        if identifier not in self.all:
            raise ValueError(f"no kubelet runs on {identifier}")
        return self.all[identifier]

    def instance_of(self, identifier: str) -> str:
        """An instance id for an instance id or a node name."""
        return next((i for i, kubelet in self.all.items() if kubelet.node == identifier), identifier)

    def stop(self, identifier: str) -> None:
        """The instance shuts down: its kubelet falls silent; pods on it are handled no more."""
        kubelet = self.all.get(identifier)
        if kubelet is None:
            return
        had_node, kubelet.state = kubelet.state in ("joined", "ready", "never-ready"), "stopped"
        if had_node:
            self.worker.after(0, lambda: self.kube.patch_node(kubelet.node, {"metadata": {"labels": {nodes.KUBELET: "dead"}}}))

    def halt(self, identifier: str) -> None:
        """The instance is stopped, not terminated: its Node, if it has one, stays."""
        kubelet = self.all.get(identifier)
        if kubelet and kubelet.node:
            self.worker.after(0, lambda: self.dead(kubelet, "the instance was stopped"))
        elif kubelet:
            kubelet.state = "stopped"

    def gone(self, identifier: str) -> None:
        """The instance is terminated: its Node goes with it."""
        kubelet = self.all.pop(identifier, None)
        if kubelet is None:
            return
        kubelet.state = "stopped"
        if kubelet.node:
            self.worker.after(0, lambda: self.remove(kubelet))

    def remove(self, kubelet: Kubelet) -> None:
        """Worker: delete the Node and what was left on it."""
        self.kube.delete_node(kubelet.node)
        self.tell(kubelet, "gone")

    def auth_changed(self, map_roles: str | None) -> None:
        """aws-auth is this now."""
        with self.world.lock:
            self.map_roles = map_roles
            self.judge()

    def judge(self) -> None:
        """Who is let in changed: who waits tries again, and who is no longer let in goes silent."""
        for kubelet in list(self.all.values()):
            if kubelet.state == "waiting" and not self.refusal(kubelet):
                self.join(kubelet)
            elif kubelet.state in ("joined", "ready"):
                reason = auth.refusal(self.world, kubelet.role, kubelet.kind)
                if reason:
                    self.worker.after(0, lambda k=kubelet, r=reason: self.dead(k, r))
            elif kubelet.state == "dead" and not auth.refusal(self.world, kubelet.role, kubelet.kind):
                self.let_in_again(kubelet)

    def let_in_again(self, kubelet: Kubelet) -> None:
        """A node that only its entry had silenced comes back."""
        if kubelet.reason.startswith(auth.REASONS):
            self.worker.after(0, lambda: self.ready(kubelet))

    def refuse(self, kubelet: Kubelet, state: str, reason: str) -> None:
        """Say why there is no node, once per reason."""
        kubelet.state, kubelet.reason = state, reason
        if reason not in kubelet.told:
            kubelet.told.append(reason)
            self.tell(kubelet, "not-joined", reason=reason)

    def tell(self, kubelet: Kubelet, state: str, **more: Any) -> None:
        """Write into the event log and onto the instance's console."""
        name = kubelet.node or nodes.name_of(kubelet.instance, self.world.settings.region)
        self.world.console[kubelet.instance.id].append(f"kubelet: {state} {more.get('reason', '')}".rstrip())
        self.world.log.state(
            "node", name, instance=kubelet.instance.id, group=kubelet.group, state=state, version=kubelet.template.get("Version"), **more
        )


def text_of(instance: Any, family: str | None = None) -> str:
    """The instance's user data as text, unpacked as cloud-init, nodeadm and Bottlerocket unpack it, and EC2Launch does not."""
    if not instance.user_data:
        raise Unusable("there is no user data")
    try:
        data = base64.b64decode(str(instance.user_data))
        if data[:2] == b"\x1f\x8b" and family != "windows":
            data = gzip.decompress(data)
        return data.decode()
    except (OSError, EOFError, zlib.error):
        raise Unusable("the user data is no gzip, although it begins so") from None
    except ValueError:
        raise Unusable("the user data is not text") from None
