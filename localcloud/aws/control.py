"""What tests and people can ask of the simulator, under `/_local` on its port. Bodies and answers are JSON.

`GET  /_local/calls`
    Calls by service and operation since the last reset: `{"reads": {"ec2:DescribeImages": 1}, "writes": {...}, "total": {...}}`.
`POST /_local/reset-log`
    Sets these counters to zero and writes a `reset` line into the event log; answers `{"seq": n}`.
`GET  /_local/snapshot`
    Groups, launch templates with all versions, managed node groups, roles, profiles, access entries, Fargate profiles and tags, to be
    compared before and after.
`POST /_local/faults`  `{"action": ..., ...}` answers `{"id": n}`; `GET` lists them with their `hits`; `DELETE` forgets all.
    action: throttle | error5xx | deny | error (with code, message, status) | delay (with seconds) | lose | stale | hold
    service: `autoscaling`, `ec2`, `iam`, `eks`, `ssm` or `*`; operation: `CreateRole` or `*`; kind: `read`, `write` or `any`
    match: text that the call's parameters must contain; after: so many matching calls pass first; count: so often (-1: always)
    who: text in the caller's access key or user agent, so that one client is hit and another is not
    before: for lose and hold: the call is not performed (lose), or only when it is released (hold)
    stale: groups and templates are shown as they were when the fault was set; other services repeat their last answer
`GET  /_local/held` lists held calls; `POST /_local/release` `{"id": n or absent for all, "lose": false}` lets them go.
`POST /_local/ami` `{"id", "behaviour": ok|never-joins|not-ready|dies, "after_s": 2, "family": optional, "architecture": x86_64}`
    Changes an AMI, or makes it; `after_s` says when a node that dies does so. Instances that run already keep their behaviour.
`POST /_local/instance` `{"id" or "ids": instance ids or node names, "action": kubelet-dies|kubelet-recovers|unhealthy|terminate}`
    The kubelet stops or comes back; EC2's status check fails; EC2 terminates the instance behind its group's back.
`POST /_local/ssm` `{"name", "value"}` sets a public parameter; a value of null removes it.
`POST /_local/launch-failure` `{"group": name or "*", "code": InsufficientInstanceCapacity|VcpuLimitExceeded|..., "message": optional,
    "instance_type": optional}`
    Launches of the group fail so, or those of one instance type; a code of null ends it.
`POST /_local/allow-launch-configurations` `{"allowed": true}`
    Whether CreateLaunchConfiguration works, as in old accounts; at the start it is refused, as in new ones.
`POST /_local/cluster` `{"version": "1.33", "authentication_mode": "API"}` changes the cluster at once, in any direction.
`POST /_local/fargate-failure` `{"profile": name or "*", "state": CREATE_FAILED|DELETE_FAILED, "code": AccessDenied|..., "message": opt.}`
    Fargate profiles end so, with that issue of their health; a code of null ends it. Codes are those of FargateProfileIssue.
`POST /_local/offering` `{"type": "m5.large", "zone": "us-west-2c", "offered": false}` says where a type is offered from now on.
`POST /_local/instance-type` `{"name": "m5z.large", "like": "m5.large", "zones": optional}`
    AWS launches an instance type with the facts of another, offered in these zones of the region, or in all.
`POST /_local/nodegroup` `{"name", "operation": create|update|delete|degraded, "code": issue or error code, "message": optional,
    "resources": optional ids}` or `{"name", "delays": {"patience": 5, "drain": 3}}`
    EKS ends the managed node group's creation, updates or deletion so, or finds it degraded; a code of null ends it. Or it is as
    patient with this group as that, in seconds (see localcloud/aws/settings.py: nodegroup, patience, drain, cordoned).
`GET  /_local/instances` what became of each kubelet: `{"i-...": {"state": ..., "reason": ...}}`.
"""

from __future__ import annotations

import json
from typing import Any

from moto.eks.models import eks_backends
from moto.ssm.models import ssm_backends

from localcloud.aws.ec2 import images
from localcloud.aws.eks import clusters as eks
from localcloud.aws.eks.fargate import profiles as fargate
from localcloud.aws.eks.access_entry_validation import MODES
from localcloud.aws.snapshot import snapshot

MESSAGES = {
    "InsufficientInstanceCapacity": "We currently do not have sufficient capacity in the Availability Zone you requested. "
    "Our system will be working on provisioning additional capacity. Launching EC2 instance failed.",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance "
    "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request "
    "an adjustment to this limit. Launching EC2 instance failed.",
    "InvalidIamInstanceProfile": "Invalid IAM Instance Profile. Launching EC2 instance failed.",
}


def answer(world: Any, environ: dict[str, Any], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Answer a control request."""
    method, name = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix("/_local/").strip("/")
    function = ROUTES.get((method, name))
    try:
        if function is None:
            raise LookupError(f"{method} /_local/{name}: see localcloud/aws/control.py for what there is")
        status, result = "200 OK", function(world, json.loads(body or b"{}"))
    except (LookupError, ValueError, TypeError) as problem:
        status, result = "400 Bad Request", {"error": str(problem)}
    return status, [("Content-Type", "application/json")], json.dumps(result, default=str).encode()


def add_fault(world: Any, fields: dict[str, Any]) -> dict[str, int]:
    frozen = None
    if fields.get("action") == "stale":
        fields, frozen = fields | {"kind": "read"}, world.freeze()
    return {"id": world.faults.add(fields, frozen).id}


def clear_faults(world: Any, _fields: dict[str, Any]) -> dict[str, Any]:
    world.faults.clear()
    return {}


def release(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    wanted = fields.get("id")
    chosen = {number: held for number, held in world.faults.held.items() if wanted in (None, number)}
    for held in chosen.values():
        held.release(bool(fields.get("lose")))
    return {"released": list(chosen)}


def set_ami(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("behaviour", "ok") not in images.BEHAVIOURS:
        raise ValueError(f"behaviour: {fields['behaviour']!r} is not one of {', '.join(images.BEHAVIOURS)}")
    with world.lock:
        image = world.images.get(fields["id"])
        if image is None:
            image = images.Image(fields["id"], None, fields.get("architecture", "x86_64"))
            images.add_image(world, image, fields["id"])
        image.behaviour = fields.get("behaviour", image.behaviour)
        image.after = float(fields.get("after_s", image.after))
        image.family = fields.get("family", image.family)
    return vars(image)


def touch_instances(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        for name in fields["ids"] if "ids" in fields else [fields["id"]]:
            touch_instance(world, world.kubelets.instance_of(name), fields["action"])
    return {}


def touch_instance(world: Any, identifier: str, action: str) -> None:
    found = world.engine.member(identifier)
    match action:
        case "kubelet-dies":
            world.kubelets.die(identifier)
        case "kubelet-recovers":
            world.kubelets.recover(identifier)
        case "unhealthy" if found:
            found[1].health = "Unhealthy"
            world.engine.poke(found[0])
        case "terminate" if found:
            world.engine.terminated_behind(identifier)
        case _:
            raise ValueError(f"{action!r} of {identifier}: no such action or no such instance")


def set_ssm(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        if fields["value"] is None:
            dict.pop(ssm_backends[world.settings.account][world.settings.region]._parameters, fields["name"], None)
        else:
            images.set_parameter(world, fields["name"], fields["value"])
    return {}


def set_launch_failure(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    failures, key = world.engine.launch_failures, (fields["group"], fields.get("instance_type"))
    with world.lock:
        if fields.get("code") is None:
            failures.pop(key, None)
        else:
            code = fields["code"]
            failures[key] = (code, fields.get("message") or MESSAGES.get(code, f"{code}. Launching EC2 instance failed."))
    return {}


def set_cluster(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    mode = fields.get("authentication_mode", world.authentication_mode)
    if mode not in MODES:
        raise ValueError(f"authentication_mode: {mode!r} is not one of {', '.join(MODES)}")
    with world.lock:
        cluster = eks_backends[world.settings.account][world.settings.region].clusters[world.settings.cluster_name]
        cluster.version = fields.get("version", cluster.version)
        if mode != world.authentication_mode:
            eks.set_mode(world, mode)
    return {"version": cluster.version, "authentication_mode": world.authentication_mode}


def set_fargate_failure(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    failures, code, state = world.fargate.failures, fields.get("code"), fields["state"]
    if state not in fargate.FAILED.values() or (code is not None and code not in fargate.ISSUES):
        raise ValueError(f"{state!r}, {code!r}: states are {', '.join(fargate.FAILED.values())}, codes {', '.join(fargate.ISSUES)}")
    with world.lock:
        if code is None:
            failures.pop((fields["profile"], state), None)
        else:
            failures[fields["profile"], state] = (code, fields.get("message") or fargate.ISSUES[code])
    return {}


def allow_configurations(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        world.configurations.open = bool(fields.get("allowed", True))
    return {"allowed": world.configurations.open}


def set_offering(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        world.catalogue.offer(fields["type"], fields["zone"], bool(fields["offered"]))
    return {}


def launch_type(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        world.catalogue.launch(fields["name"], fields["like"], fields.get("zones"))
    return {}


def plan_nodegroup(world: Any, fields: dict[str, Any]) -> dict[str, Any]:
    with world.lock:
        if "delays" in fields:
            world.nodegroups.be_patient(fields["name"], fields["delays"])
        else:
            more = fields.get("message"), fields.get("resources") or []
            world.nodegroups.plan(fields["name"], fields["operation"], fields.get("code"), *more)
    return {}


ROUTES = {
    ("GET", "calls"): lambda world, _: world.log.counts(),
    ("POST", "reset-log"): lambda world, _: {"seq": world.log.reset()},
    ("GET", "snapshot"): lambda world, _: snapshot(world),
    ("GET", "faults"): lambda world, _: world.faults.describe(),
    ("POST", "faults"): add_fault,
    ("DELETE", "faults"): clear_faults,
    ("GET", "held"): lambda world, _: {number: held.call for number, held in world.faults.held.items()},
    ("POST", "release"): release,
    ("POST", "ami"): set_ami,
    ("POST", "instance"): touch_instances,
    ("POST", "ssm"): set_ssm,
    ("POST", "launch-failure"): set_launch_failure,
    ("POST", "cluster"): set_cluster,
    ("POST", "allow-launch-configurations"): allow_configurations,
    ("POST", "fargate-failure"): set_fargate_failure,
    ("POST", "offering"): set_offering,
    ("POST", "instance-type"): launch_type,
    ("POST", "nodegroup"): plan_nodegroup,
    ("GET", "instances"): lambda world, _: world.kubelets.describe(),
}
