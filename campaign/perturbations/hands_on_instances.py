"""People's hands on instances: terminated, stopped, detached, in Standby, protected, marked unhealthy, held by hooks."""

from campaign.person import Person
from campaign.perturbations import perturbation

BOTH = ("eks", "eks-managed")
INDEX = [0, 1, 2]
LATER = [3, 10, None]


@perturbation("instance terminated in EC2", needs=BOTH, index=INDEX)
def instance_terminated_in_ec2(stage, group, index):
    """AWS launches another one; the controller takes no further node meanwhile."""
    on_one(stage, group, index, "ec2", "terminate_instances", "InstanceIds")


@perturbation("all instances terminated in EC2", needs=BOTH)
def all_instances_terminated_in_ec2(stage, group):
    """The group begins again."""
    person = Person(stage, group)
    if members := person.members():
        person.do("ec2", "terminate_instances", InstanceIds=members)


@perturbation("instance stopped", needs="eks", index=INDEX)
def instance_stopped(stage, group, index):
    """AWS takes one that does not run for unhealthy, and replaces it."""
    on_one(stage, group, index, "ec2", "stop_instances", "InstanceIds")


@perturbation("instance terminated in its group", needs="eks", index=INDEX, decrement=[True, False])
def instance_terminated_in_its_group(stage, group, index, decrement):
    """As an autoscaler scales in, without a drain."""
    on_one(stage, group, index, "autoscaling", "terminate_instance_in_auto_scaling_group", "InstanceId", ShouldDecrementDesiredCapacity=decrement)


@perturbation("instance marked unhealthy", needs="eks", index=INDEX)
def instance_marked_unhealthy(stage, group, index):
    """AWS replaces it."""
    on_one(stage, group, index, "autoscaling", "set_instance_health", "InstanceId", HealthStatus="Unhealthy", ShouldRespectGracePeriod=False)


@perturbation("instance detached", needs="eks", index=INDEX, decrement=[True, False], later=LATER)
def instance_detached(stage, group, index, decrement, later):
    """It runs on as a node that no group counts, until a person terminates it."""
    found = on_one(stage, group, index, "autoscaling", "detach_instances", "InstanceIds", by_group=True, ShouldDecrementDesiredCapacity=decrement)
    if found:
        Person(stage, group).undo("ec2", "terminate_instances", after=later, InstanceIds=[found])


@perturbation("instance in Standby by hand", needs="eks", index=INDEX, decrement=[True, False], later=LATER)
def instance_in_standby_by_hand(stage, group, index, decrement, later):
    """A person examines it; the controller does not touch it."""
    person = Person(stage, group)
    found = on_one(stage, group, index, "autoscaling", "enter_standby", "InstanceIds", by_group=True, ShouldDecrementDesiredCapacity=decrement)
    if found:
        stage.undo(lambda: leave_standby(stage, group, person, found), after=later)


@perturbation("instance protected from scale in", needs="eks", index=INDEX, later=LATER)
def instance_protected_from_scale_in(stage, group, index, later):
    """AWS does not choose it; a rotation replaces it all the same."""
    found = on_one(stage, group, index, "autoscaling", "set_instance_protection", "InstanceIds", by_group=True, ProtectedFromScaleIn=True)
    if found:
        which = {"AutoScalingGroupName": Person(stage, group).scaling_group()["AutoScalingGroupName"], "InstanceIds": [found]}
        Person(stage, group).undo("autoscaling", "set_instance_protection", after=later, **which, ProtectedFromScaleIn=False)


@perturbation("lifecycle action completed by hand", needs="eks", result=["CONTINUE", "ABANDON"])
def lifecycle_action_completed_by_hand(stage, group, result):
    """Of the first instance that waits in a hook."""
    stage.wait_until(lambda: Person(stage, group).members("Pending:Wait", "Terminating:Wait"), 5)
    person = Person(stage, group)
    for identifier in person.members("Pending:Wait", "Terminating:Wait")[:1]:
        for hook in person.scaling_group()["LifecycleHooks"]:
            which = {"AutoScalingGroupName": hook["AutoScalingGroupName"], "LifecycleHookName": hook["LifecycleHookName"], "InstanceId": identifier}
            person.do("autoscaling", "complete_lifecycle_action", **which, LifecycleActionResult=result)


@perturbation("warm instance terminated", needs="eks")
def warm_instance_terminated(stage, group):
    """AWS prepares another one."""
    person = Person(stage, group)
    for found in (person.scaling_group() or {"WarmPool": []})["WarmPool"][:1]:
        person.do("ec2", "terminate_instances", InstanceIds=[found["InstanceId"]])


def on_one(stage, group, index, service, operation, parameter, by_group=False, **more):
    """One call on one of the instances in service; its id if AWS did it."""
    person = Person(stage, group)
    members = person.members()
    if not members:
        return None
    chosen = members[index % len(members)]
    named = {"AutoScalingGroupName": person.scaling_group()["AutoScalingGroupName"]} if by_group else {}
    answer = person.do(service, operation, **{parameter: [chosen] if parameter.endswith("Ids") else chosen}, **named, **more)
    return chosen if answer is not None else None


def leave_standby(stage, group, person, identifier):
    """Back into service, with room for it if it left room; a person terminates one that AWS has no room for."""
    name = person.scaling_group()["AutoScalingGroupName"]
    stage.wait_until(lambda: identifier not in Person(stage, group).members("EnteringStandby"), 5)
    if identifier in Person(stage, group).members("Standby") and person.do("autoscaling", "exit_standby", AutoScalingGroupName=name, InstanceIds=[identifier]) is None:
        person.do("autoscaling", "terminate_instance_in_auto_scaling_group", InstanceId=identifier, ShouldDecrementDesiredCapacity=False)
