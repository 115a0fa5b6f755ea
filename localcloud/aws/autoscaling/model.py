"""The data of scaling groups. The classes have no behavior beyond queries about their own data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)
METRICS = tuple(
    """
    GroupMinSize GroupMaxSize GroupDesiredCapacity
    GroupInServiceInstances GroupPendingInstances GroupStandbyInstances GroupTerminatingInstances GroupTotalInstances
    GroupInServiceCapacity GroupPendingCapacity GroupStandbyCapacity GroupTerminatingCapacity GroupTotalCapacity
    WarmPoolDesiredCapacity WarmPoolWarmedCapacity WarmPoolPendingCapacity WarmPoolTerminatingCapacity WarmPoolTotalCapacity
    GroupAndWarmPoolDesiredCapacity GroupAndWarmPoolTotalCapacity
    """.split()
)
LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
TERMINATING_STATES = ("Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminated")
STANDBY = ("EnteringStandby", "Standby")


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


@dataclass
class Hook:
    """A lifecycle hook."""

    name: str
    transition: str
    heartbeat: int = 3600
    default_result: str = "ABANDON"
    metadata: str | None = None
    target_arn: str | None = None
    role_arn: str | None = None


@dataclass
class LifecycleAction:
    """A lifecycle hook for which an instance waits."""

    hook: Hook
    token: str
    heartbeats: int = 0


@dataclass
class Member:
    """An instance of a group. `template` is empty if it was launched from a launch configuration."""

    id: str
    zone: str
    subnet: str
    instance_type: str
    template: dict[str, str]
    launched: datetime
    state: str = "Pending"
    health: str = "Healthy"
    is_marked_unhealthy: bool = False
    """By SetInstanceHealth, and not by a check of AWS."""
    protected: bool = False
    lifecycle_action: LifecycleAction | None = None
    pending_hooks: list[Hook] = field(default_factory=list)
    activity: dict[str, Any] | None = None
    configuration: str | None = None
    spot: bool = False
    weight: int | None = None
    warm: bool = False

    @property
    def phase(self) -> str:
        """Its lifecycle state without the prefix of warm pools."""
        return self.state.removeprefix("Warmed:")

    def enter(self, phase: str) -> None:
        """Set the lifecycle state, with the prefix of warm pools if it is in one."""
        self.state = f"Warmed:{phase}" if self.warm else phase

    @property
    def counts(self) -> bool:
        """Whether it counts toward the desired capacity."""
        return self.state not in TERMINATING_STATES + STANDBY


@dataclass
class Refresh:
    """An instance refresh. Only its status is simulated."""

    id: str
    status: str
    started: datetime
    ended: datetime | None = None
    preferences: dict[str, Any] = field(default_factory=dict)


@dataclass
class WarmPool:
    """The configuration of a group's warm pool."""

    min_size: int = 0
    max_prepared: int | None = None
    state: str = "Stopped"
    reuse: bool | None = None
    deleting: bool = False


@dataclass
class Group:
    """A scaling group. Fields correspond to those of the API.

    It launches from one of `template`, `policy` and `configuration`. The others are empty.
    """

    name: str
    arn: str
    min_size: int
    max_size: int
    desired: int
    subnets: list[str]
    zones: list[str]
    created: datetime
    template: dict[str, str] = field(default_factory=dict)
    policy: dict[str, Any] | None = None
    configuration: str | None = None
    health_check_type: str = "EC2"
    health_check_grace: int = 0
    cooldown: int = 300
    termination_policies: list[str] = field(default_factory=lambda: ["Default"])
    protect_new: bool = False
    deletion_protection: str = "none"
    capacity_rebalance: bool | None = None
    max_instance_lifetime: int | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pool: WarmPool | None = None
    warm: dict[str, Member] = field(default_factory=dict)
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    hooks: dict[str, Hook] = field(default_factory=dict)
    activities: list[dict[str, Any]] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    deleting: bool = False
    launch_backoff: bool = False
    rebalance_instance: str | None = None

    @property
    def template_specification(self) -> dict[str, str]:
        """The specification of its launch template, by id."""
        specification = self.policy["LaunchTemplate"]["LaunchTemplateSpecification"] if self.policy else self.template
        return {key: value for key, value in specification.items() if key != "LaunchTemplateName"}

    @property
    def overrides(self) -> list[dict[str, Any]]:
        """The overrides of its mixed instances policy."""
        return self.policy["LaunchTemplate"]["Overrides"] if self.policy else []

    @property
    def distribution(self) -> dict[str, Any]:
        """The instances distribution of its mixed instances policy."""
        return self.policy["InstancesDistribution"] if self.policy else {}

    def counted_members(self) -> list[Member]:
        """The members that count toward the desired capacity, oldest first."""
        return [member for member in self.members.values() if member.counts]

    def all_instances(self) -> list[Member]:
        """The members and the instances of the warm pool."""
        return [*self.members.values(), *self.warm.values()]

    def per_zone(self, warm: bool = False) -> Counter[str]:
        """The number of counted members in each zone, or of warm pool instances."""
        counts = Counter(m.zone for m in (self.warm.values() if warm else self.counted_members()) if m.phase not in TERMINATING_STATES)
        return Counter({zone: counts[zone] for zone in sorted({*self.zones, *counts})})

    def hooks_for(self, transition: str) -> list[Hook]:
        """The hooks of one transition."""
        return [hook for hook in self.hooks.values() if hook.transition == transition]
