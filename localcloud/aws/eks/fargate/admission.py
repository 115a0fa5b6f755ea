"""Pod admission for Fargate: sets a pod's scheduler and the label of its profile.

EKS uses a mutating webhook. Here the API server uses a MutatingAdmissionPolicy, which is rewritten when the ACTIVE
profiles change. Follows the Amazon EKS User Guide, "Define which Pods use AWS Fargate when launched". If several
profiles match, the first one by name is used, unless the pod's label selects another one. `*` and `?` are wildcards.
Pods of DaemonSets are never changed, because they do not run on Fargate nodes.
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = "fargate-profiles.local-cloud"
LABEL = "eks.amazonaws.com/fargate-profile"
SCHEDULER = "fargate-scheduler"
POLICIES = "/apis/admissionregistration.k8s.io/v1"


def cel_pattern(pattern: str) -> str:
    """A pattern with wildcards as a regular expression in a CEL string."""
    parts = [{"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern]
    return json.dumps(f"^{''.join(parts)}$")


def selector_expression(selector: dict[str, Any]) -> str:
    """A CEL expression: whether a selector matches."""
    terms = [f"request.namespace.matches({cel_pattern(selector['namespace'])})"]
    for key, value in selector.get("labels", {}).items():
        terms.append(f"variables.labels.exists(k, k.matches({cel_pattern(key)}) && variables.labels[k].matches({cel_pattern(value)}))")
    return " && ".join(terms)


def profile_expression(profiles: list[Any]) -> str:
    """A CEL expression: the name of the pod's profile, or an empty string."""
    expression = "''"
    for profile in sorted(profiles, key=lambda p: p.name, reverse=True):
        matches = " || ".join(f"({selector_expression(selector)})" for selector in profile.selectors)
        expression = f"(variables.asked in ['', '{profile.name}'] && ({matches})) ? '{profile.name}' : ({expression})"
    return f"variables.daemon ? '' : ({expression})"


def policy(profiles: list[Any]) -> dict[str, Any]:
    """The MutatingAdmissionPolicy for these profiles."""
    metadata = f"Object.metadata{{labels: {{'{LABEL}': variables.profile}}}}"
    mutation_expression = f"Object{{metadata: {metadata}, spec: Object.spec{{schedulerName: '{SCHEDULER}'}}}}"
    variables = {
        "labels": "object.metadata.?labels.orValue({})",
        "asked": f"'{LABEL}' in variables.labels ? variables.labels['{LABEL}'] : ''",
        "daemon": "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')",
        "profile": profile_expression(profiles),
    }
    expression = f"variables.profile == '' ? Object{{}} : {mutation_expression}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "variables": [{"name": name, "expression": expression} for name, expression in variables.items()],
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "mutations": [mutation],
        },
    }


def binding() -> dict[str, Any]:
    """The binding that activates the policy."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME},
    }


def apply_policy(kube: Any, profiles: list[Any]) -> None:
    """Apply the policy and its binding for these profiles. Without profiles, both are deleted."""
    apply = "application/apply-patch+yaml"
    for kind, body in (("mutatingadmissionpolicies", policy(profiles)), ("mutatingadmissionpolicybindings", binding())):
        path = f"{POLICIES}/{kind}/{NAME}"
        if profiles:
            response = kube.request("PATCH", path, body, apply, fieldManager="aws-simulator", force="true")
        else:
            response = kube.request("DELETE", path)
        if response.status_code >= 300 and (profiles or response.status_code != 404):
            raise RuntimeError(f"{path}: {response.text}")
