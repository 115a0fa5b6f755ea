"""The settings of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Delays:
    """How long the simulated AWS and its nodes take, in seconds."""

    pending: float
    """Time from launch to the EC2 state `running`."""
    join: float
    """Time from `running` to the registration of the Node object."""
    ready: float
    """Time from registration to the Node condition Ready."""
    terminate: float
    """Time from `shutting-down` to `terminated`."""
    propagation: float
    """Time until other services accept a new role or instance profile."""
    relaunch: float
    """Time that a group waits after a failed launch before it retries."""
    notice: float
    """Time from a kubelet's last heartbeat to the Node condition Unknown."""
    move: float
    """Time to enter or leave Standby, and from running to stopped."""
    access: float
    """Time until a change of an access entry takes effect in the cluster."""
    update: float
    """Time that an update of the cluster takes."""
    nodegroup: float
    """Time from a call on a managed node group until EKS acts on it."""
    node_join_timeout: float
    """Time that EKS waits for the nodes of a managed node group to become ready."""
    drain: float
    """Time that EKS tries to evict the pods of a node."""
    cordoned: float
    """Time between the end of a drain and the termination of the instance."""
    profile: float
    """Time that a Fargate profile is CREATING."""
    profile_gone: float
    """Time that a Fargate profile is DELETING."""
    heartbeat_scale: float
    """Factor applied to the heartbeat timeouts of lifecycle hooks."""


SHORT = Delays(
    pending=0.5,
    join=1.0,
    ready=0.5,
    terminate=1.0,
    propagation=2.0,
    relaunch=1.0,
    notice=0.2,
    move=0.3,
    access=0.5,
    update=1.0,
    nodegroup=0.5,
    node_join_timeout=45.0,
    drain=30.0,
    cordoned=0.3,
    profile=1.0,
    profile_gone=1.0,
    heartbeat_scale=0.01,
)
REALISTIC = Delays(
    pending=20.0,
    join=30.0,
    ready=15.0,
    terminate=30.0,
    propagation=10.0,
    relaunch=30.0,
    notice=40.0,
    move=5.0,
    access=5.0,
    update=120.0,
    nodegroup=20.0,
    node_join_timeout=900.0,
    drain=900.0,
    cordoned=60.0,
    profile=60.0,
    profile_gone=120.0,
    heartbeat_scale=1.0,
)


def parse_delays(text: str) -> Delays:
    """Parse `short`, `realistic`, or either followed by changes: `short,join=3,ready=0`."""
    name, *changes = text.split(",")
    try:
        delays = {"short": SHORT, "realistic": REALISTIC}[name]
    except KeyError:
        raise ValueError(f"delays: {name!r} is neither short nor realistic") from None
    known = {field.name for field in fields(Delays)}
    for change in changes:
        key, _, value = change.partition("=")
        if key not in known:
            raise ValueError(f"delays: {key!r} is not one of {', '.join(sorted(known))}")
        delays = replace(delays, **{key: float(value)})
    return delays


@dataclass(frozen=True)
class Settings:
    """The settings of one simulator process."""

    state_dir: str
    delays: Delays = SHORT
    region: str = "us-west-2"
    iam: str = ""
    """The endpoint of the region that keeps IAM; empty for this one."""
    cluster_name: str = "demo"
    cluster_version: str = "1.32"
    service_cidr: str = "172.20.0.0/16"
    authentication_mode: str = "CONFIG_MAP"
    account: str = ACCOUNT
