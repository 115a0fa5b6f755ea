"""Everything that there is in the simulated account, and the network and cluster that it starts with."""

from __future__ import annotations

import base64
import copy
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.ec2.models import ec2_backends
from moto.eks.models import eks_backends
from moto.iam.models import iam_backends

from localcloud.aws.autoscaling import group_operations as autoscaling
from localcloud.aws.ec2 import instance_types as catalogue, dry_run, operations as ec2, images
from localcloud.aws.eks import access_entry_operations as access_calls, clusters as eks, operations as eks_calls, tags as eks_tags, updates as eks_updates
from localcloud.aws.eks.fargate import profiles as fargate
from localcloud.aws.eks.nodegroups import operations as nodegroup_actions
from localcloud.aws.iam import operations as iam
from localcloud.aws.eks.access_entries import Access
from localcloud.aws.timers import Timers
from localcloud.aws.autoscaling.launch_configurations import Configurations
from localcloud.aws.eks.updates import Updates
from localcloud.aws.autoscaling.engine import Engine
from localcloud.aws.faults import Faults
from localcloud.aws.kubernetes import Kube
from localcloud.aws.nodes.kubelets import Kubelets
from localcloud.aws.event_log import EventLog
from localcloud.aws.eks.nodegroups.lifecycle import NodeGroups
from localcloud.aws.settings import Settings
from localcloud.aws.ec2.launch_templates import Templates

ZONES = ("a", "b", "c")
NO_CA = base64.b64encode(b"no certificate authority").decode()


class World:
    """The simulated account. One lock keeps requests and timers apart; kubelets talk to Kubernetes outside it."""

    def __init__(self, settings: Settings, kube: dict[str, str] | None, mended: bool = True) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.log = EventLog(Path(settings.state_dir) / "aws-events.jsonl")
        self.faults = Faults()
        self.ec2 = ec2_backends[settings.account][settings.region]
        self.iam = iam_backends[settings.account]["aws"]
        self.images: dict[str, images.Image] = {}
        self.console: dict[str, list[str]] = defaultdict(list)
        self.visible_profiles: dict[str, float] = {}
        self.endpoint = kube["url"] if kube else "https://eks.invalid"
        self.ca_data = base64.b64encode(Path(kube["ca"]).read_bytes()).decode() if kube else NO_CA
        self.eks = eks_backends[settings.account][settings.region]
        self.authentication_mode = settings.authentication_mode
        self.catalogue = catalogue.Catalogue(settings.region)
        self.templates = Templates(self.ec2.launch_templates)
        self.configurations = Configurations()
        if mended:
            self.timers = Timers("aws-timers", self.lock)
            self.engine = Engine(self)
            self.updates, self.access = Updates(self), Access(self)
            self.tagged = [self.eks.clusters.values, self.access.entries.values]
            self.fargate = fargate.Fargate(self)
            self.kubelets = Kubelets(self, Kube(kube) if kube else None)
            self.nodegroups = NodeGroups(self, kube)
            self._mend()
        self.facts = self._furnish(mended)

    def _mend(self) -> None:
        self.ec2.local_templates = self.templates
        eks_calls.mend()
        for module in (access_calls, autoscaling, catalogue, ec2, eks, eks_tags, eks_updates, fargate, iam, nodegroup_actions, dry_run):
            module.mend(self)
        iam.load_policies(self.iam)

    def _furnish(self, mended: bool) -> dict[str, Any]:
        vpc = self.ec2.create_vpc("10.0.0.0/16", tags=[{"Key": "Name", "Value": "demo"}])
        other = self.ec2.create_vpc("10.1.0.0/16", tags=[{"Key": "Name", "Value": "other"}])
        subnets, names = [], []
        for number, zone in enumerate(ZONES):
            names.append(f"demo-private-{zone}")
            for network, where in ((vpc, 0), (other, 1)):
                subnet = self.ec2.create_subnet(
                    network.id,
                    f"10.{where}.{number * 32}.0/19",
                    availability_zone=self.settings.region + zone,
                    tags={"subnet": {"Name": names[-1]}},
                )
                subnets += [subnet.id] if network is vpc else []
        public = self._public_subnet(vpc)
        group = self.ec2.create_security_group("demo-nodes", "nodes", vpc.id, tags={"Name": "demo-nodes"})
        self.ec2.create_security_group("demo-nodes", "nodes of another VPC", other.id, tags={"Name": "demo-nodes"})
        eks.create_cluster(self, subnets, group.id)
        amis = self.amis = images.create_images(self)
        if mended:
            images.create_parameters(self, amis)
        return {
            "region": self.settings.region,
            "account": self.settings.account,
            "cluster_name": self.settings.cluster_name,
            "cluster_version": self.settings.cluster_version,
            "vpc": vpc.id,
            "other_vpc": other.id,
            "subnets": subnets,
            "subnet_names": names,
            "public_subnet": public,
            "security_group": group.id,
            "security_group_name": "demo-nodes",
            "amis": amis,
            "aws_log": str(self.log.path),
            "delays": vars(self.settings.delays),
        }

    def _public_subnet(self, vpc: Any) -> str:
        """A subnet whose route table leads to an internet gateway; the cluster does not use it."""
        zone, name = self.settings.region + ZONES[0], {"Name": "demo-public-a"}
        subnet = self.ec2.create_subnet(vpc.id, "10.0.128.0/19", availability_zone=zone, tags={"subnet": name})
        gateway, table = self.ec2.create_internet_gateway(), self.ec2.create_route_table(vpc.id)
        self.ec2.attach_internet_gateway(gateway.id, vpc.id)
        self.ec2.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)
        self.ec2.associate_route_table(table.id, subnet_id=subnet.id)
        return subnet.id

    def known(self, role: Any) -> bool:
        """Whether other services know of an IAM role by now."""
        age = datetime.now(UTC) - role.create_date.replace(tzinfo=UTC)
        return age.total_seconds() >= self.settings.delays.propagation

    def freeze(self) -> Any:
        """A copy of groups and templates, for stale reads."""
        with self.lock:
            return copy.deepcopy((self.engine.groups, dict(self.templates.by_id)))

    @contextmanager
    def as_it_was(self, frozen: Any) -> Iterator[None]:
        """Let calls see the copy."""
        groups, by_id = frozen
        before = self.engine.groups, self.templates.by_id
        self.engine.groups, self.templates.by_id = groups, by_id
        try:
            yield
        finally:
            self.engine.groups, self.templates.by_id = before
