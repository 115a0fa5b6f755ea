"""SimulatePrincipalPolicy: what a role's policies allow.

Follows the AWS Identity and Access Management API Reference, SimulatePrincipalPolicy and EvaluationResult, and the User
Guide, "IAM JSON policy elements: Condition operators". NotAction, NotResource, NotPrincipal, policy variables,
permissions boundaries and resource policies are not simulated.

A `deny` fault of the calls of a role's session (see callers.py) stands for an action that no policy of the role allows, as
the message of the denied call says. A fault with `match` is one for some resources alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.responses import IamResponse

from localcloud.aws.errors import AwsError
from localcloud.aws.iam import callers
from localcloud.aws.parameters import to_plain

ARN = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/(?:.*/)?([\w+=,.@-]+)", re.ASCII)
IF_EXISTS = "IfExists"
FOR_ALL = "ForAllValues:"


def install(simulator: Any) -> None:
    """Add the operation to moto, which lacks it."""

    def simulate_principal_policy(self: Any) -> ActionResult:
        params = to_plain(self._get_params())
        if params.get("PolicyInputList") or params.get("CallerArn") or params.get("ResourcePolicy"):
            raise AwsError("NotSimulated", "only the policies of a role are simulated")
        role = find_role(self.backend, params["PolicySourceArn"])
        statements = list(policy_statements(role))
        keys = callers.keys_of_role(role.name)
        denied = {action for action in params["ActionNames"] if any(simulator.faults.denies(action, key) for key in keys)}
        context = {e["ContextKeyName"].lower(): e["ContextKeyValues"] for e in params.get("ContextEntries") or []}
        resources = params.get("ResourceArns") or ["*"]
        results = [
            evaluation_result([] if action in denied else statements, action, resources, context)
            for action in params["ActionNames"]
        ]
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    IamResponse.simulate_principal_policy = simulate_principal_policy


def find_role(backend: Any, arn: str) -> Any:
    """The role with that ARN, of which its path is a part."""
    found = ARN.fullmatch(arn)
    if not found:
        raise AwsError("InvalidInput", f"Invalid Entity Arn: {arn} does not clearly define entity type and name.")
    role = backend.get_role(found[1])
    if role.arn != arn:
        raise AwsError("NoSuchEntity", f"The role with the ARN {arn} cannot be found.")
    return role


def policy_statements(role: Any) -> Iterator[dict[str, Any]]:
    """Every statement of a role's managed and inline policies."""
    managed = [v.document for p in role.managed_policies.values() for v in p.versions if v.is_default]
    for document in [*managed, *role.policies.values()]:
        document = json.loads(document) if isinstance(document, str) else document
        yield from as_list(document["Statement"])


def as_list(value: Any) -> list[Any]:
    """A policy element as a list. Policies may contain a single value instead."""
    return value if isinstance(value, list) else [value]


@dataclass
class Evaluation:
    """The effects of all matching statements for one action on one resource."""

    effects: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)

    @property
    def decision(self) -> str:
        """The decision. An explicit deny wins, and no match is an implicit deny."""
        if "Deny" in self.effects:
            return "explicitDeny"
        return "allowed" if self.effects else "implicitDeny"


def evaluation_result(statements: list[dict[str, Any]], action: str, resources: list[str], context: dict[str, list[str]]) -> dict[str, Any]:
    """One EvaluationResult. Missing context keys are reported on it only for the resource `*`, otherwise per resource."""
    evaluations = {resource: evaluate(statements, action, resource, context) for resource in resources}
    decisions = [evaluation.decision for evaluation in evaluations.values()]
    overall = next(d for d in ("explicitDeny", "implicitDeny", "allowed") if d in decisions)
    shown = {"EvalActionName": action, "EvalResourceName": resources[0], "EvalDecision": overall, "MatchedStatements": []}
    if resources == ["*"]:
        return shown | {"MissingContextValues": sorted(evaluations["*"].missing)}
    specific = [
        {"EvalResourceName": r, "EvalResourceDecision": v.decision, "MissingContextValues": sorted(v.missing), "MatchedStatements": []}
        for r, v in evaluations.items()
    ]
    return shown | {"MissingContextValues": [], "ResourceSpecificResults": specific}


def evaluate(statements: list[dict[str, Any]], action: str, resource: str, context: dict[str, list[str]]) -> Evaluation:
    """Evaluate all statements that match the action and the resource."""
    evaluation = Evaluation()
    for statement in statements:
        if "Action" not in statement or "Resource" not in statement:
            raise AwsError("NotSimulated", "a statement without Action or Resource")
        action_matches = any(matches_wildcards(pattern.lower(), action.lower()) for pattern in as_list(statement["Action"]))
        if not action_matches or not any(matches_wildcards(pattern, resource) for pattern in as_list(statement["Resource"])):
            continue
        conditions = [(op, key, as_list(v)) for op, keys in statement.get("Condition", {}).items() for key, v in keys.items()]
        evaluation.missing |= {key for op, key, _ in conditions if key.lower() not in context and not op.endswith(IF_EXISTS) and not op.startswith(FOR_ALL)}
        if all(condition_holds(op, context.get(key.lower()), wanted) for op, key, wanted in conditions):
            evaluation.effects.add(statement["Effect"])
    return evaluation


def condition_holds(operator: str, given: list[str] | None, wanted: list[str]) -> bool:
    """Whether a condition holds. A missing context key matches only operators that end in IfExists or begin with ForAllValues.

    IAM User Guide, "Multivalued context keys": ForAllValues is also true when the request has no such key.
    """
    if operator.startswith(FOR_ALL):
        return all(condition_holds(operator.removeprefix(FOR_ALL), [value], wanted) for value in given or [])
    if given is None:
        return operator.endswith(IF_EXISTS)
    kind = operator.removesuffix(IF_EXISTS)
    if kind == "StringNotLike":
        return not any(matches_wildcards(pattern, value) for pattern in wanted for value in given)
    if kind == "StringEquals":
        return any(value in wanted for value in given)
    if kind in ("StringLike", "ArnLike", "ArnEquals"):
        return any(matches_wildcards(pattern, value) for pattern in wanted for value in given)
    raise AwsError("NotSimulated", f"the condition operator {operator}")


def matches_wildcards(pattern: str, text: str) -> bool:
    """Whether text matches a pattern with `*` and `?`."""
    parts = [{"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None
