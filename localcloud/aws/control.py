"""The control endpoint of the simulator, under `/_local` on its port. Bodies and responses are JSON.

`GET  /_local/calls`
    Number of calls by service and operation since the last reset:
    `{"reads": {"ec2:DescribeImages": 1}, "writes": {...}, "total": {...}}`.
`POST /_local/reset-log`
    Sets these counters to zero and writes a `reset` line to the event log. Returns `{"seq": n}`.
`GET  /_local/snapshot`
    Groups, launch templates with all versions, managed node groups, roles, profiles, access entries, Fargate
    profiles and tags, to compare two states.
`POST /_local/faults`  `{"action": ..., ...}` returns `{"id": n}`. `GET` lists the faults with their `hits`.
    `DELETE` removes all faults, or the one whose `id` the body gives.
    action: throttle / error5xx / deny / error (with code, message, status) / delay (with seconds) / lose / stale /
        hold. `lose` drops the connection without a response. `deny` also shows in SimulatePrincipalPolicy, see
        localcloud/aws/iam/policy_simulation.py.
    service: `autoscaling`, `ec2`, `iam`, `eks`, `ssm` or `*`. operation: `CreateRole` or `*`. kind: `read`,
        `write` or `any`.
    match: text that the call's parameters must contain. after: number of matching calls to skip first. count:
        number of calls to hit (-1: all).
    caller: text in the client's access key or user agent, so that the fault hits one client only.
    before: for lose and hold: the call is never performed (lose), or is performed after its release (hold).
    stale: groups and templates are shown as they were when the fault was set, or, with `writes`, as they were so many
        writes ago. Other services repeat their last response.
`GET  /_local/held` lists held calls, each with the id of its `fault`. `POST /_local/release` `{"id": n or absent for all, "lose": false}` releases
    them.
`POST /_local/ami` `{"id", "behavior": ok / never-joins / not-ready / dies, "after_s": 2, "family": optional,
    "architecture": x86_64}`
    Changes or creates an AMI. `after_s` is the time until the kubelet of a `dies` AMI stops. Running instances
    keep their behavior.
`POST /_local/instance` `{"id" or "ids": instance ids or node names,
    "action": kubelet-dies / kubelet-recovers / unhealthy / terminate / reclaim}`
    Stops or restarts the kubelet, fails EC2's status check, terminates the instance through EC2, or takes a Spot Instance
    back as EC2 does.
`POST /_local/delays` `{"join": 5.0, ...}`
    Changes how long AWS and nodes take from now on, in seconds (see localcloud/aws/settings.py). Returns all delays.
`POST /_local/ssm` `{"name", "value"}` sets a public parameter. A value of null removes it.
`POST /_local/launch-failure` `{"group": name or "*", "code": InsufficientInstanceCapacity / VcpuLimitExceeded /
    ..., "message": optional, "instance_type": optional, "zone": optional}`
    Fails launches of the group, or of one instance type or in one zone, with this error. A code of null removes the
    failure.
`POST /_local/launch-end` `{"group": name or "*", "code": Client.InternalError / ..., "message": optional}`
    Lets EC2 accept each launch of the group, and end the instance with this StateReason before it runs. A code of null ends
    that.
`POST /_local/metadata-defaults` `{"InstanceMetadataTags": "enabled", ...}`
    The account's defaults for instance metadata, as EC2's ModifyInstanceMetadataDefaults sets them: InstanceMetadataTags,
    HttpTokens, HttpEndpoint, HttpPutResponseHopLimit. Options that are left out have no default any more.
`POST /_local/decrement` `{"group": name or "*", "by": one / weight}`
    By how much a call that terminates an instance and decrements lowers the desired capacity of a group with weights:
    by one (as at first), or by the instance's weight. AWS documents neither.
`POST /_local/suspend` `{"group": name, "processes": ["Launch"], "reason": text}`
    Suspends processes of a scaling group with this reason, as AWS does by itself after about a day of failed launches.
    ResumeProcesses ends it.
`POST /_local/allow-launch-configurations` `{"allowed": true}`
    Whether CreateLaunchConfiguration works, as in old accounts. By default it fails, as in new accounts.
`POST /_local/cluster` `{"version": "1.33", "authentication_mode": "API"}` changes the cluster immediately, in any
    direction.
`POST /_local/fargate-failure` `{"profile": name or "*", "state": CREATE_FAILED / DELETE_FAILED,
    "code": AccessDenied / ..., "message": optional}`
    Fails the creation or deletion of Fargate profiles with this health issue. A code of null removes the failure.
    Codes are those of FargateProfileIssue.
`POST /_local/offering` `{"type": "m5.large", "zone": "us-west-2c", "offered": false}` sets whether a zone offers a
    type.
`POST /_local/group` `{"name": scaling group}` its instances, as DescribeAutoScalingGroups shows them. Tests ask often,
    and a call to AWS takes several times as long.
`POST /_local/pause`, `POST /_local/resume`
    Holds back all that AWS does by itself after a while, so that a test can look at a state that lasts for a moment.
    What became due meanwhile happens at once.
`POST /_local/instance-type` `{"name": "m5z.large", "like": "m5.large", "zones": optional}`
    Adds an instance type with the attributes of an existing one, offered in these zones or in all.
`POST /_local/nodegroup` `{"name", "operation": create / update / delete / degraded, "code": issue or error code,
    "message": optional, "resources": optional ids}` or `{"name", "delays": {"node_join_timeout": 5, "drain": 3}}`
    Fails the creation, updates or deletion of a managed node group, or degrades it. A code of null removes the
    failure. Or sets EKS's delays for this group, in seconds (see localcloud/aws/settings.py: nodegroup,
    node_join_timeout, drain, cordoned).
`POST /_local/role-used` `{"role": name, "region": "eu-west-1"}` sets the last use of a role, as instances of that region
    do. `GET /_local/iam` is for the simulated AWS of another region.
`GET  /_local/instances` the state of each kubelet: `{"i-...": {"state": ..., "reason": ...}}`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from moto.eks.models import eks_backends
from moto.ssm.models import ssm_backends

from localcloud.aws.autoscaling.descriptions import describe_group
from localcloud.aws.autoscaling.model import PROCESSES
from localcloud.aws.ec2 import images
from localcloud.aws.ec2.launch_validation import METADATA_OPTIONS, option_problem
from localcloud.aws.eks import clusters
from localcloud.aws.eks.access_entry_validation import MODES
from localcloud.aws.eks.fargate import profiles as fargate
from localcloud.aws.iam import shared
from localcloud.aws.snapshot import snapshot
from localcloud.aws.ssm import public_parameters

# Code and message of the StateReason (Amazon EC2 API Reference, StateReason; Amazon EC2 User Guide, "Spot Instance interruptions").
SPOT_INTERRUPTION = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
MESSAGES = {
    "InsufficientInstanceCapacity": "We currently do not have sufficient capacity in the Availability Zone you requested. "
    "Our system will be working on provisioning additional capacity. Launching EC2 instance failed.",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance "
    "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request "
    "an adjustment to this limit. Launching EC2 instance failed.",
    # Amazon EC2 User Guide, "Troubleshoot Amazon EC2 instance launch issues", Instance terminates immediately.
    "Client.InternalError": "Client.InternalError: Client error on launch",
    "InvalidIamInstanceProfile": "Invalid IAM Instance Profile. Launching EC2 instance failed.",
}


def respond(simulator: Any, environ: dict[str, Any], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Respond to a control request."""
    method, name = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix("/_local/").strip("/")
    function = ROUTES.get((method, name))
    try:
        if function is None:
            raise LookupError(f"{method} /_local/{name}: see localcloud/aws/control.py for what there is")
        status, result = "200 OK", function(simulator, json.loads(body or b"{}"))
    except (LookupError, ValueError, TypeError) as error:
        status, result = "400 Bad Request", {"error": str(error)}
    return status, [("Content-Type", "application/json")], json.dumps(result, default=str).encode()


def add_fault(simulator: Any, fields: dict[str, Any]) -> dict[str, int]:
    states: list[Any] = []
    if fields.get("action") == "stale":
        fields, states = fields | {"kind": "read"}, [simulator.copy_state()]
    return {"id": simulator.faults.add(fields, states).id}


def clear_faults(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    simulator.faults.remove(fields.get("id"))
    return {}


def release(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    wanted = fields.get("id")
    chosen = {number: held for number, held in simulator.faults.held.items() if wanted in (None, number)}
    for held in chosen.values():
        held.release(bool(fields.get("lose")))
    return {"released": list(chosen)}


def set_ami(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("behavior", "ok") not in images.BEHAVIORS:
        raise ValueError(f"behavior: {fields['behavior']!r} is not one of {', '.join(images.BEHAVIORS)}")
    with simulator.lock:
        image = simulator.images.get(fields["id"])
        if image is None:
            image = images.Image(fields["id"], None, fields.get("architecture", "x86_64"))
            images.add_image(simulator, image, fields["id"])
        image.behavior = fields.get("behavior", image.behavior)
        image.after = float(fields.get("after_s", image.after))
        image.family = fields.get("family", image.family)
    return vars(image)


def change_instances(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        for name in fields["ids"] if "ids" in fields else [fields["id"]]:
            change_instance(simulator, simulator.kubelets.instance_of(name), fields["action"])
    return {}


def change_instance(simulator: Any, identifier: str, action: str) -> None:
    found = simulator.engine.member(identifier)
    match action:
        case "kubelet-dies":
            simulator.kubelets.stop_kubelet(identifier)
        case "kubelet-recovers":
            simulator.kubelets.recover(identifier)
        case "unhealthy" if found:
            found[1].health = "Unhealthy"
            simulator.engine.reconcile_soon(found[0])
        case "terminate" if found:
            simulator.engine.terminate_externally(identifier)
        case "reclaim" if found:
            simulator.engine.terminate_externally(identifier, SPOT_INTERRUPTION)
        case _:
            raise ValueError(f"{action!r} of {identifier}: no such action or no such instance")


def show_instances(simulator: Any, fields: dict[str, Any]) -> list[dict[str, Any]]:
    with simulator.lock:
        group = simulator.engine.groups.get(fields["name"])
        return describe_group(group, simulator.settings.account)["Instances"] if group else []


def pause(simulator: Any, paused: bool) -> dict[str, Any]:
    # What AWS does at this moment has ended before a test looks.
    with simulator.lock:
        simulator.timers.pause(paused)
    return {}


def set_delays(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        delays = replace(simulator.settings.delays, **{name: float(seconds) for name, seconds in fields.items()})
        simulator.settings = replace(simulator.settings, delays=delays)
    return vars(delays)


def set_ssm(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        if fields["value"] is None:
            dict.pop(ssm_backends[simulator.settings.account][simulator.settings.region]._parameters, fields["name"], None)
        else:
            public_parameters.set_parameter(simulator, fields["name"], fields["value"])
    return {}


def set_launch_failure(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    failures, key = simulator.engine.launch_failures, (fields["group"], fields.get("instance_type"), fields.get("zone"))
    with simulator.lock:
        if fields.get("code") is None:
            failures.pop(key, None)
        else:
            code = fields["code"]
            failures[key] = (code, fields.get("message") or MESSAGES.get(code, f"{code}. Launching EC2 instance failed."))
    return {}


def set_launch_end(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    ends, group, code = simulator.engine.launch_ends, fields["group"], fields.get("code")
    with simulator.lock:
        if code is None:
            ends.pop(group, None)
        else:
            ends[group] = (code, fields.get("message") or MESSAGES.get(code, code))
    return {}


def set_metadata_defaults(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    reason = option_problem({"MetadataOptions": fields})
    if reason or not set(fields) <= {*METADATA_OPTIONS, "HttpPutResponseHopLimit"}:
        raise ValueError(reason or f"{', '.join(fields)}: see localcloud/aws/control.py for what there is")
    with simulator.lock:
        simulator.metadata_defaults = fields
    return fields


def set_decrement(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    if fields["by"] not in ("one", "weight"):
        raise ValueError(f"by: {fields['by']!r} is neither one nor weight")
    with simulator.lock:
        groups = simulator.engine.decrements_by_weight
        groups.add(fields["group"]) if fields["by"] == "weight" else groups.discard(fields["group"])
    return {}


def suspend_processes(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    unknown = set(fields["processes"]) - set(PROCESSES)
    if unknown:
        raise ValueError(f"processes: {', '.join(sorted(unknown))} are not processes of a scaling group")
    with simulator.lock:
        simulator.engine.groups[fields["group"]].suspended |= dict.fromkeys(fields["processes"], fields["reason"])
    return {}


def set_cluster(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    mode = fields.get("authentication_mode", simulator.authentication_mode)
    if mode not in MODES:
        raise ValueError(f"authentication_mode: {mode!r} is not one of {', '.join(MODES)}")
    with simulator.lock:
        cluster = eks_backends[simulator.settings.account][simulator.settings.region].clusters[simulator.settings.cluster_name]
        cluster.version = fields.get("version", cluster.version)
        if mode != simulator.authentication_mode:
            clusters.set_mode(simulator, mode)
    return {"version": cluster.version, "authentication_mode": simulator.authentication_mode}


def set_fargate_failure(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    failures, code, state = simulator.fargate.failures, fields.get("code"), fields["state"]
    if state not in fargate.FAILED.values() or (code is not None and code not in fargate.ISSUES):
        raise ValueError(f"{state!r}, {code!r}: states are {', '.join(fargate.FAILED.values())}, codes {', '.join(fargate.ISSUES)}")
    with simulator.lock:
        if code is None:
            failures.pop((fields["profile"], state), None)
        else:
            failures[fields["profile"], state] = (code, fields.get("message") or fargate.ISSUES[code])
    return {}


def allow_launch_configurations(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        simulator.launch_configurations.creation_allowed = bool(fields.get("allowed", True))
    return {"allowed": simulator.launch_configurations.creation_allowed}


def set_offering(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        simulator.instance_type_catalog.set_offered(fields["type"], fields["zone"], bool(fields["offered"]))
    return {}


def add_instance_type(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        simulator.instance_type_catalog.add_instance_type(fields["name"], fields["like"], fields.get("zones"))
    return {}


def set_nodegroup(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with simulator.lock:
        if "delays" in fields:
            simulator.nodegroups.set_delays(fields["name"], fields["delays"])
        else:
            more = fields.get("message"), fields.get("resources") or []
            simulator.nodegroups.inject_issue(fields["name"], fields["operation"], fields.get("code"), *more)
    return {}


def use_role(simulator: Any, fields: dict[str, Any]) -> dict[str, Any]:
    shared.record_use(simulator, fields["role"], fields["region"])
    return {}


ROUTES = {
    ("GET", "calls"): lambda simulator, _: simulator.log.counts(),
    ("POST", "reset-log"): lambda simulator, _: {"seq": simulator.log.reset()},
    ("GET", "snapshot"): lambda simulator, _: snapshot(simulator),
    ("GET", "faults"): lambda simulator, _: simulator.faults.describe(),
    ("POST", "faults"): add_fault,
    ("DELETE", "faults"): clear_faults,
    ("GET", "held"): lambda simulator, _: {number: held.call for number, held in list(simulator.faults.held.items())},
    ("POST", "release"): release,
    ("POST", "ami"): set_ami,
    ("POST", "instance"): change_instances,
    ("POST", "delays"): set_delays,
    ("POST", "group"): show_instances,
    ("POST", "pause"): lambda simulator, _: pause(simulator, True),
    ("POST", "resume"): lambda simulator, _: pause(simulator, False),
    ("POST", "ssm"): set_ssm,
    ("POST", "launch-failure"): set_launch_failure,
    ("POST", "launch-end"): set_launch_end,
    ("POST", "metadata-defaults"): set_metadata_defaults,
    ("POST", "decrement"): set_decrement,
    ("POST", "suspend"): suspend_processes,
    ("POST", "cluster"): set_cluster,
    ("POST", "allow-launch-configurations"): allow_launch_configurations,
    ("POST", "fargate-failure"): set_fargate_failure,
    ("POST", "offering"): set_offering,
    ("POST", "instance-type"): add_instance_type,
    ("POST", "nodegroup"): set_nodegroup,
    ("GET", "iam"): lambda simulator, _: shared.export_state(simulator),
    ("POST", "role-used"): use_role,
    ("GET", "instances"): lambda simulator, _: simulator.kubelets.describe(),
}
