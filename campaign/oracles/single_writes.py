"""Oracles about single writes: none changes foreign resources, is invalid, or removes a finalizer too early."""

import json
import re

from campaign import foreign_resources, state
from campaign.oracles.run import text
from campaign.spec_generator import PEOPLE, POD_ROLES
from e2e import logs


def foreign_resources_kept(run):
    """Resources of others are unchanged, and no controller tried to change them."""
    before = run.note("begin")["foreign_resources"]
    for picture in ("end", "left"):
        now = foreign_resources.snapshot(run.raw[picture]["aws"])
        for path, wanted, found in state.differences(before, now):
            yield None, f"{picture}: of others, {path} is {text(found)} and was {text(wanted)}", []
        if foreign_resources.AUTH not in run.raw[picture]["kubernetes"]["map_roles"]:
            yield None, f"{picture}: an entry of others in aws-auth is not what it was", []
    names = run.raw["world"]["foreign_resources"]["names"]
    # A name is a parameter or, in an ARN, a part of one.
    named = re.compile(rf'["/]({"|".join(map(re.escape, names))})["/]')
    touched = [e for e in run.calls(done=False) if named.search(e.params_text) or _is_on_role_of_users(e) or _is_on_foreign_access_entry(run, e)]
    touched += [e for e in run.writes() if e["objectRef"].get("name") in names]
    if touched:
        yield None, "writes on what belongs to others", touched


def _is_on_role_of_users(line):
    """Whether a call writes a role or an instance profile of users. Specs name them, and groups only use them."""
    # A call with both changes the profile.
    name = line["params"].get("InstanceProfileName") or line["params"].get("RoleName") or ""
    return name.startswith(PEOPLE) or name in {arn.rpartition("/")[2] for arn in POD_ROLES}


def _is_on_foreign_access_entry(run, line):
    """Whether a call writes the access entry of a role that is no group's and that no spec has ever named."""
    if not line["operation"].endswith("AccessEntry"):
        return False
    # A new entry is named by a parameter, any other by the path.
    role = (line["params"].get("principalArn") or line["params"]["path"]).rpartition("/")[2]
    if run.group_in(role) or role.startswith("fargate-demo-"):
        return False
    return not any(f'{role}"' in json.dumps(entry["to"]) for entry in run.journal if entry["what"] == "apply")


def invalid_requests(run):
    """Every request fits the model of its AWS service."""
    broken = [e for e in run.aws if e["kind"] == "invalid" and e["caller"]["key"].startswith("controller")]
    if broken:
        yield None, f"{len(broken)} requests that break the model of AWS", broken


def finalizer(run):
    """The finalizer goes last: from then on the group's resources are not written."""
    removed = {}
    for line in run.writes():
        ref, body = line["objectRef"], line.get("requestObject")
        if ref["resource"] == "instancegroups" and ref.get("namespace") == state.NAMESPACE and not ref.get("subresource") and _removes_finalizer(body, run):
            removed[ref["name"]] = line
    for group, line in removed.items():
        again = [when for when, spec in run.specs(group) if spec and when > logs.timestamp(line)]
        late = [e for e in run.calls() if logs.timestamp(line) < logs.timestamp(e) < (again or ["9"])[0] and run.group_of(e) == group]
        if late:
            yield group, "its resources were written after its finalizer was gone", [line, *late]


def _removes_finalizer(body, run):
    name = run.raw["settings"]["finalizer"]
    if isinstance(body, list):
        return any(op["op"] in ("remove", "replace") and op["path"].startswith("/metadata/finalizers") and name not in json.dumps(op.get("value")) for op in body)
    metadata = (body or {}).get("metadata") or {}
    return "finalizers" in metadata and name not in (metadata["finalizers"] or [])
