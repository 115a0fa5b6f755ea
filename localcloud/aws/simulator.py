"""The simulated account: its backends, its network and its EKS cluster."""

from __future__ import annotations

import base64
import copy
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.ec2.models import ec2_backends
from moto.eks.models import eks_backends
from moto.iam.models import iam_backends

from localcloud.aws.autoscaling import group_operations
from localcloud.aws.autoscaling.engine import Engine
from localcloud.aws.autoscaling.launch_configurations import LaunchConfigurations
from localcloud.aws.ec2 import dry_run, images, instance_types
from localcloud.aws.ec2 import operations as ec2_operations
from localcloud.aws.ec2.launch_templates import LaunchTemplates
from localcloud.aws.eks import access_entry_operations, clusters, tags, updates
from localcloud.aws.eks import operations as eks_operations
from localcloud.aws.eks.access_entries import AccessEntries
from localcloud.aws.eks.fargate import profiles
from localcloud.aws.eks.nodegroups import operations as nodegroup_operations
from localcloud.aws.eks.nodegroups.lifecycle import NodeGroups
from localcloud.aws.eks.updates import Updates
from localcloud.aws.event_log import EventLog
from localcloud.aws.faults import Faults
from localcloud.aws.iam import operations as iam_operations
from localcloud.aws.iam.shared import SharedIam
from localcloud.aws.kubernetes import KubernetesClient
from localcloud.aws.nodes.kubelets import Kubelets
from localcloud.aws.settings import Settings
from localcloud.aws.ssm import public_parameters
from localcloud.aws.timers import Timers

OPERATIONS = (
    access_entry_operations,
    group_operations,
    instance_types,
    ec2_operations,
    clusters,
    tags,
    updates,
    profiles,
    iam_operations,
    nodegroup_operations,
    dry_run,
)
"""The modules that add operations to moto, or replace some. A later one may wrap the operations of an earlier one."""
ZONES = ("a", "b", "c")
NO_CA = base64.b64encode(b"no certificate authority").decode()


class Simulator:
    """The simulated account.

    One lock serializes requests and timers. Kubelets call the Kubernetes API without holding it.
    """

    def __init__(self, settings: Settings, kube: dict[str, str] | None, patched: bool = True) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.log = EventLog(Path(settings.state_dir) / "aws-events.jsonl")
        self.faults = Faults()
        self.ec2 = ec2_backends[settings.account][settings.region]
        self.iam = iam_backends[settings.account]["aws"]
        self.images: dict[str, images.Image] = {}
        self.instances: dict[str, Any] = {}
        """The instances that were looked up. moto copies every reservation to find one."""
        self.console: dict[str, list[str]] = defaultdict(list)
        self.changed_profiles: dict[str, float] = {}
        self.metadata_defaults: dict[str, Any] = {}
        self.shared_iam = SharedIam(self, settings.iam) if settings.iam else None
        self.endpoint = kube["url"] if kube else "https://eks.invalid"
        self.ca_data = base64.b64encode(Path(kube["ca"]).read_bytes()).decode() if kube else NO_CA
        self.eks = eks_backends[settings.account][settings.region]
        self.authentication_mode = settings.authentication_mode
        self.instance_type_catalog = instance_types.InstanceTypeCatalog(settings.region)
        self.templates = LaunchTemplates(self.ec2.launch_templates)
        self.launch_configurations = LaunchConfigurations()
        if patched:
            self.timers = Timers("aws-timers", self.lock)
            self.engine = Engine(self)
            self.updates, self.access_entries = Updates(self), AccessEntries(self, settings.cluster_name)
            self.other_clusters: dict[str, tuple[str, AccessEntries]] = {}
            self.taggable_resources = [self.eks.clusters.values, self.access_entries.entries.values]
            self.fargate = profiles.Fargate(self)
            self.kubelets = Kubelets(self, KubernetesClient(kube) if kube else None)
            self.nodegroups = NodeGroups(self, kube)
            self._patch_moto()
        self.connection_info = self._create_resources(patched)

    def _patch_moto(self) -> None:
        self.ec2.local_templates = self.templates
        self._index_instances()
        eks_operations.install()
        for module in OPERATIONS:
            module.install(self)
        iam_operations.load_policies(self.iam)

    def _index_instances(self) -> None:
        find = self.ec2.get_instance

        def get_instance(identifier: str) -> Any:
            if identifier not in self.instances:
                # Mostly a new one is looked for.
                newest_first = reversed(list(self.ec2.reservations.values()))
                found = (instance for reservation in newest_first for instance in reservation.instances)
                found = next((instance for instance in found if instance.id == identifier), None)
                self.instances[identifier] = found or find(identifier)
            return self.instances[identifier]

        self.ec2.get_instance = get_instance

    def _create_resources(self, patched: bool) -> dict[str, Any]:
        vpc = self.ec2.create_vpc("10.0.0.0/16", tags=[{"Key": "Name", "Value": "demo"}])
        other_vpc = self.ec2.create_vpc("10.1.0.0/16", tags=[{"Key": "Name", "Value": "other"}])
        subnets, subnet_names = [], []
        for number, zone in enumerate(ZONES):
            subnet_names.append(f"demo-private-{zone}")
            for network, where in ((vpc, 0), (other_vpc, 1)):
                subnet = self.ec2.create_subnet(
                    network.id,
                    f"10.{where}.{number * 32}.0/19",
                    availability_zone=self.settings.region + zone,
                    tags={"subnet": {"Name": subnet_names[-1]}},
                )
                subnets += [subnet.id] if network is vpc else []
        public = self._public_subnet(vpc)
        group = self.ec2.create_security_group("demo-nodes", "nodes", vpc.id, tags={"Name": "demo-nodes"})
        self.ec2.create_security_group("demo-nodes", "nodes of another VPC", other_vpc.id, tags={"Name": "demo-nodes"})
        clusters.create_cluster(self, subnets, group.id)
        amis = self.amis = images.create_images(self)
        if patched:
            public_parameters.create_parameters(self, amis)
        return {
            "region": self.settings.region,
            "account": self.settings.account,
            "cluster_name": self.settings.cluster_name,
            "cluster_version": self.settings.cluster_version,
            "vpc": vpc.id,
            "other_vpc": other_vpc.id,
            "subnets": subnets,
            "subnet_names": subnet_names,
            "public_subnet": public,
            "security_group": group.id,
            "security_group_name": "demo-nodes",
            "amis": amis,
            "aws_log": str(self.log.path),
            "delays": vars(self.settings.delays),
        }

    def _public_subnet(self, vpc: Any) -> str:
        """Create a subnet whose route table has an internet gateway. The cluster does not use it."""
        zone, name = self.settings.region + ZONES[0], {"Name": "demo-public-a"}
        subnet = self.ec2.create_subnet(vpc.id, "10.0.128.0/19", availability_zone=zone, tags={"subnet": name})
        gateway, table = self.ec2.create_internet_gateway(), self.ec2.create_route_table(vpc.id)
        self.ec2.attach_internet_gateway(gateway.id, vpc.id)
        self.ec2.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)
        self.ec2.associate_route_table(table.id, subnet_id=subnet.id)
        return subnet.id

    def access_of(self, cluster: str) -> tuple[str, AccessEntries]:
        """The authentication mode and the access entries of a cluster."""
        if cluster == self.settings.cluster_name:
            return self.authentication_mode, self.access_entries
        return self.other_clusters[cluster]

    def role_propagated(self, role: Any) -> bool:
        """Whether a new IAM role is visible to other services yet."""
        age = datetime.now(UTC) - role.create_date.replace(tzinfo=UTC)
        return age.total_seconds() >= self.settings.delays.propagation

    def profile_propagated(self, profile: Any) -> bool:
        """Whether the last change of an instance profile is visible to EC2 yet."""
        changed = self.changed_profiles.get(profile.id)
        return changed is None or time.monotonic() - changed >= self.settings.delays.propagation

    def copy_state(self) -> Any:
        """Copy groups and templates, for stale reads."""
        with self.lock:
            return copy.deepcopy((self.engine.groups, dict(self.templates.by_id)))

    @contextmanager
    def restored_state(self, state: Any) -> Iterator[None]:
        """Serve calls from a copy of an earlier state."""
        groups, by_id = state
        current = self.engine.groups, self.templates.by_id
        self.engine.groups, self.templates.by_id = groups, by_id
        try:
            yield
        finally:
            self.engine.groups, self.templates.by_id = current
