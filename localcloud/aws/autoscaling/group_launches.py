"""Launches of single instances, and the handling of launch failures.

Follows the Amazon EC2 Auto Scaling User Guide: "Availability Zone distribution", "Allocation strategies" and
"Troubleshoot: EC2 instance launch failures".
"""

from __future__ import annotations

import itertools
from typing import Any

from moto.core.exceptions import ServiceException
from moto.ec2.models.instances import StateReason

from localcloud.aws.autoscaling import run_instance
from localcloud.aws.autoscaling.allocation import instance_type_order, next_is_spot, weights
from localcloud.aws.autoscaling.launch_source import Source, current_source, with_override
from localcloud.aws.autoscaling.lifecycle import Lifecycle
from localcloud.aws.autoscaling.model import Group, Member, now
from localcloud.aws.errors import AwsError


class GroupLaunches(Lifecycle):
    """The part of the engine that launches instances. See :class:`localcloud.aws.autoscaling.engine.Engine`."""

    launch_failures: dict[tuple[str, str | None, str | None], tuple[str, str]]
    """The error code and message by group name or "*", instance type and zone; None means any."""
    launch_ends: dict[str, tuple[str, str]]
    """The code and message of the StateReason with which EC2 ends each instance of a group, or of all ("*"), before it runs."""

    def launch(self, group: Group, why: str, warm: bool = False, rebalances: bool = False) -> Member | None:
        """Launch one instance in the zone with the fewest instances that offers its type. Schedules a retry on failure.

        Where that zone has no capacity, another one is tried, unless the launch `rebalances` the zones.
        """
        tries_next = ("Unsupported",) if rebalances else ("Unsupported", "InsufficientInstanceCapacity")
        counts = group.per_zone(warm)
        for zone in sorted(group.zones, key=lambda z: (counts[z], z)):
            made, code = self.launch_in_zone(group, zone, why, warm)
            if made:
                return made
            if code not in tries_next:
                break
        group.launch_backoff = True
        self.simulator.timers.after(self.simulator.settings.delays.relaunch, lambda: self.retry_launch(group))
        return None

    def launch_in_zone(self, group: Group, zone: str, why: str, warm: bool) -> tuple[Member | None, str]:
        """Launch one instance in a zone. On failure, record it and return the error's code."""
        cause = f"an instance was started in response to a difference between desired and actual capacity, {why}."
        activity = self.activity(group, "Launching a new EC2 instance" + " into warm pool" * warm, cause)
        try:
            subnet = next(s for s in group.subnets if self.simulator.ec2.get_subnet(s).availability_zone == zone)
            activity["Details"] = f'{{"Subnet ID":"{subnet}","Availability Zone":"{zone}"}}'
            source, instance = self.run(group, zone, subnet)
        except ServiceException as error:
            self.launch_failed(group, activity, error.message)
            return None, error.code
        kind = instance.instance_type
        member = Member(instance.id, zone, subnet, kind, source.template, now(), protected=group.protect_new, activity=activity)
        member.configuration, member.spot, member.weight = source.configuration, source.spot, weights(group).get(kind)
        member.warm = warm
        member.enter("Pending")
        (group.warm if warm else group.members)[instance.id] = member
        activity["Description"] += f": {instance.id}"
        self.log_state(group, member)
        end = self.launch_ends.get(group.name) or self.launch_ends.get("*")
        begin = (lambda: self.end_launch(group, member, instance, *end)) if end else (lambda: self.on_running(group, member, instance))
        self.simulator.timers.after(self.simulator.settings.delays.pending, begin)
        return member, ""

    def end_launch(self, group: Group, member: Member, instance: Any, code: str, message: str) -> None:
        """EC2 ends an instance that it has accepted before it runs, for example because its volumes cannot be decrypted.

        Amazon EC2 Auto Scaling User Guide, "Troubleshoot: EC2 instance launch failures", Client.InternalError. The activity is
        that of the pull request "Try to stabilize tests" of gruntwork-io/terratest.
        """
        if instance.state != "pending" or member.phase != "Pending":
            return
        instance.ended_by_ec2 = instance.state_reason = StateReason(message, code)
        reason = f"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: {message}"
        member.activity["Description"] += f".  Status Reason: {reason}"
        self.finish(member.activity, "Cancelled", reason)
        self.simulator.log.state("group", group.name, state="launch-failed", reason=reason)
        group.launch_backoff = True
        self.simulator.timers.after(self.simulator.settings.delays.relaunch, lambda: self.retry_launch(group))
        self.terminate(group, member, "in response to an EC2 health check indicating it has been terminated or stopped")

    def run(self, group: Group, zone: str, subnet: str) -> tuple[Source, Any]:
        """Run an instance of the group's launch source. Tries several types in order, until EC2 accepts one."""
        source, error = current_source(self.simulator, group), None
        variants = [source]
        if group.policy:
            spot = next_is_spot(group)
            variants = [with_override(source, group, kind, spot) for kind in instance_type_order(group, spot, zone) or [None]]
        for variant in variants:
            try:
                self.check(group, variant, zone)
                return variant, run_instance.run(self.simulator, group, variant, subnet)
            except ServiceException as refusal:
                error = refusal
        raise error

    def check(self, group: Group, source: Source, zone: str) -> None:
        """Raise the error with which EC2 refuses the launch, or an injected launch failure."""
        kinds = (run_instance.instance_type_of(source.data), None)
        for scope in itertools.product((group.name, "*"), kinds, (zone, None)):
            if scope in self.launch_failures:
                raise AwsError(*self.launch_failures[scope])
        reason = run_instance.launch_problem(self.simulator, source.data, group.subnets)
        if reason:
            raise AwsError("ValidationError", f"{reason.rstrip('.')}. Launching EC2 instance failed.")

    def launch_failed(self, group: Group, activity: dict[str, Any], reason: str) -> None:
        """Record a failed launch."""
        activity["Description"] += f".  Status Reason: {reason}"
        self.finish(activity, "Failed", reason)
        self.simulator.log.state("group", group.name, state="launch-failed", reason=reason)

    def retry_launch(self, group: Group) -> None:
        """Retry after a failed launch."""
        group.launch_backoff = False
        self.reconcile(group)
