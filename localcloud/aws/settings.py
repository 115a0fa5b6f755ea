"""Everything that can be set when the simulator starts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Delays:
    """How long the simulated AWS and its nodes take, in seconds."""

    pending: float
    """From launch to the EC2 state `running`."""
    join: float
    """From `running` to the Node object."""
    ready: float
    """From the Node object to its condition Ready."""
    terminate: float
    """From `shutting-down` to `terminated`."""
    propagation: float
    """How long a new instance profile is invalid to the other services."""
    relaunch: float
    """How long a group waits after a failed launch before it tries again."""
    notice: float
    """From a kubelet's silence to the node's condition Unknown."""
    move: float
    """Into Standby, out of it, and from running to stopped."""
    access: float
    """From the change of an access entry to its effect in the cluster."""
    update: float
    """How long an update of the cluster takes."""
    nodegroup: float
    """From a call on a managed node group to what EKS does about it."""
    node_join_timeout: float
    """How long EKS waits for the nodes of a managed node group."""
    drain: float
    """How long EKS tries to evict the pods of a node."""
    cordoned: float
    """How long EKS leaves a drained node before it terminates it."""
    profile: float
    """How long a Fargate profile is CREATING."""
    profile_gone: float
    """How long a Fargate profile is DELETING."""
    heartbeat_scale: float
    """A lifecycle hook's heartbeat timeout is multiplied by this."""


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
    """Read `short`, `realistic`, or either followed by changes: `short,join=3,ready=0`."""
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
    """What one simulator serves."""

    state_dir: str
    delays: Delays = SHORT
    region: str = "us-west-2"
    cluster_name: str = "demo"
    cluster_version: str = "1.32"
    service_cidr: str = "10.96.0.0/16"
    authentication_mode: str = "CONFIG_MAP"
    account: str = ACCOUNT
