"""Changes that users make by hand to instances: terminated, stopped, detached, in Standby, protected, marked unhealthy, held by hooks."""

from campaign.perturbations import perturbation
from campaign.user import User

BOTH = ("eks", "eks-managed")
INDEX = [0, 1, 2]
LATER = [3, 10, None]


@perturbation("instance terminated in EC2", needs=BOTH, index=INDEX)
def instance_terminated_in_ec2(runner, group, index):
    """AWS launches another one; the controller takes no further node meanwhile."""
    on_one(runner, group, index, "ec2", "terminate_instances", "InstanceIds")


@perturbation("all instances terminated in EC2", needs=BOTH)
def all_instances_terminated_in_ec2(runner, group):
    """The group begins again."""
    user = User(runner, group)
    if members := user.members():
        user.do("ec2", "terminate_instances", InstanceIds=members)


@perturbation("instance stopped", needs="eks", index=INDEX)
def instance_stopped(runner, group, index):
    """AWS takes one that does not run for unhealthy, and replaces it."""
    on_one(runner, group, index, "ec2", "stop_instances", "InstanceIds")


@perturbation("instance terminated in its group", needs="eks", index=INDEX, decrement=[True, False])
def instance_terminated_in_its_group(runner, group, index, decrement):
    """As an autoscaler scales in, without a drain."""
    on_one(runner, group, index, "autoscaling", "terminate_instance_in_auto_scaling_group", "InstanceId", ShouldDecrementDesiredCapacity=decrement)


@perturbation("instance marked unhealthy", needs="eks", index=INDEX)
def instance_marked_unhealthy(runner, group, index):
    """AWS replaces it."""
    on_one(runner, group, index, "autoscaling", "set_instance_health", "InstanceId", HealthStatus="Unhealthy", ShouldRespectGracePeriod=False)


@perturbation("instance detached", needs="eks", index=INDEX, decrement=[True, False], later=LATER)
def instance_detached(runner, group, index, decrement, later):
    """It runs on as a node that no group counts, until a user terminates it."""
    found = on_one(runner, group, index, "autoscaling", "detach_instances", "InstanceIds", by_group=True, ShouldDecrementDesiredCapacity=decrement)
    if found:
        User(runner, group).undo("ec2", "terminate_instances", after=later, InstanceIds=[found])


@perturbation("instance in Standby by hand", needs="eks", index=INDEX, decrement=[True, False], later=LATER)
def instance_in_standby_by_hand(runner, group, index, decrement, later):
    """A user examines it; the controller does not touch it."""
    user = User(runner, group)
    found = on_one(runner, group, index, "autoscaling", "enter_standby", "InstanceIds", by_group=True, ShouldDecrementDesiredCapacity=decrement)
    if found:
        runner.undo(lambda: leave_standby(runner, group, user, found), after=later)


@perturbation("instance protected from scale in", needs="eks", index=INDEX, later=LATER)
def instance_protected_from_scale_in(runner, group, index, later):
    """AWS does not choose it; a rotation replaces it all the same."""
    found = on_one(runner, group, index, "autoscaling", "set_instance_protection", "InstanceIds", by_group=True, ProtectedFromScaleIn=True)
    if found:
        which = {"AutoScalingGroupName": User(runner, group).scaling_group()["AutoScalingGroupName"], "InstanceIds": [found]}
        User(runner, group).undo("autoscaling", "set_instance_protection", after=later, **which, ProtectedFromScaleIn=False)


@perturbation("lifecycle action completed by hand", needs="eks", result=["CONTINUE", "ABANDON"])
def lifecycle_action_completed_by_hand(runner, group, result):
    """Of the first instance that waits in a hook."""
    runner.wait_until(lambda: User(runner, group).members("Pending:Wait", "Terminating:Wait"), 5)
    user = User(runner, group)
    for identifier in user.members("Pending:Wait", "Terminating:Wait")[:1]:
        for hook in user.scaling_group()["LifecycleHooks"]:
            which = {"AutoScalingGroupName": hook["AutoScalingGroupName"], "LifecycleHookName": hook["LifecycleHookName"], "InstanceId": identifier}
            user.do("autoscaling", "complete_lifecycle_action", **which, LifecycleActionResult=result)


@perturbation("warm instance terminated", needs="eks")
def warm_instance_terminated(runner, group):
    """AWS prepares another one."""
    user = User(runner, group)
    for found in (user.scaling_group() or {"WarmPool": []})["WarmPool"][:1]:
        user.do("ec2", "terminate_instances", InstanceIds=[found["InstanceId"]])


def on_one(runner, group, index, service, operation, parameter, by_group=False, **more):
    """One call on one of the instances in service; its id if AWS did it."""
    user = User(runner, group)
    members = user.members()
    if not members:
        return None
    chosen = members[index % len(members)]
    named = {"AutoScalingGroupName": user.scaling_group()["AutoScalingGroupName"]} if by_group else {}
    answer = user.do(service, operation, **{parameter: [chosen] if parameter.endswith("Ids") else chosen}, **named, **more)
    return chosen if answer is not None else None


def leave_standby(runner, group, user, identifier):
    """Back into service, with room for it if it left room; a user terminates one that AWS has no room for."""
    name = user.scaling_group()["AutoScalingGroupName"]
    runner.wait_until(lambda: identifier not in User(runner, group).members("EnteringStandby"), 5)
    if identifier in User(runner, group).members("Standby") and user.do("autoscaling", "exit_standby", AutoScalingGroupName=name, InstanceIds=[identifier]) is None:
        user.do("autoscaling", "terminate_instance_in_auto_scaling_group", InstanceId=identifier, ShouldDecrementDesiredCapacity=False)
