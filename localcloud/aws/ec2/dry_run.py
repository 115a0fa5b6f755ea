"""EC2 dry runs: whether the caller has the permissions for a call, without performing it.

Follows the Amazon EC2 API Reference, "Common query parameters", DryRun, and the Amazon EC2 User Guide, "Grant
permission to tag Amazon EC2 resources during creation". A caller with the credentials of an assumed role has the
permissions of that role's policies. Every other caller has all permissions. Calls that are not dry runs are not
checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.ec2.exceptions import DryRunClientError
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.security_groups import SecurityGroups
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from localcloud.aws.ec2.operations import tags_of
from localcloud.aws.iam.policy_simulation import evaluate, find_role, policy_statements
from localcloud.aws.parameters import to_plain
from localcloud.aws.request import CREDENTIAL
from localcloud.aws.settings import ACCOUNT

WITHOUT_DRY_RUN = {
    InstanceResponse: ("describe_instance_types", "describe_instance_type_offerings"),
    SecurityGroups: ("describe_security_groups",),
}
"""Operations that moto performs even in a dry run."""


class Unauthorized(DryRunClientError):
    """The error for a caller without the permission."""

    code = "UnauthorizedOperation"
    message = "You are not authorized to perform this operation."


def install(_simulator: Any) -> None:
    """Check permissions in dry runs, also for operations whose dry runs moto ignores."""

    def error_on_dryrun(self: Any) -> None:
        if not self._get_param("DryRun", False):
            return
        for action, resource, context in required_permissions(self):
            statements = caller_statements(self)
            if statements is not None and evaluate(statements, f"ec2:{action}", resource, context).decision != "allowed":
                raise Unauthorized
        raise DryRunClientError

    EC2BaseResponse.error_on_dryrun = error_on_dryrun
    for responses, names in WITHOUT_DRY_RUN.items():
        for name in names:
            setattr(responses, name, check_dry_run_first(getattr(responses, name)))


def check_dry_run_first(action: Any) -> Any:
    """Wrap an operation so that a dry run ends before it is performed."""

    def checked(self: Any) -> Any:
        self.error_on_dryrun()
        return action(self)

    return checked


def caller_statements(response: Any) -> list[dict[str, Any]] | None:
    """The policy statements of the caller's role. None for a caller without a role."""
    key = CREDENTIAL.search(response.headers.get("Authorization", ""))
    assumed = sts_backends[ACCOUNT]["global"].get_assumed_role_from_access_key(key[1] if key else "")
    return None if assumed is None else list(policy_statements(find_role(iam_backends[ACCOUNT]["aws"], assumed.role_arn)))


def required_permissions(response: Any) -> Iterator[tuple[str, str, dict[str, list[str]]]]:
    """Each action that the call requires, with its resource and its condition context."""
    params, action = to_plain(response._get_params()), response._get_action()
    templates = response.ec2_backend.local_templates
    names = [*params.get("Resources", []), params.get("LaunchTemplateId"), params.get("LaunchTemplateName")]
    template = next((t for t in templates.by_id.values() if {t.id, t.name} & set(names)), None)
    if action.startswith("Describe"):
        yield action, "*", {}
        return
    specified = [tag for s in params.get("TagSpecifications", []) for tag in s.get("Tags", [])]
    context = {f"aws:requesttag/{tag['Key'].lower()}": [tag["Value"]] for tag in [*specified, *params.get("Tags", [])]}
    if template and action != "CreateLaunchTemplate":
        context |= {f"aws:resourcetag/{key.lower()}": [value] for key, value in tags_of(response, template).items()}
    resource = f"arn:aws:ec2:{response.region}:{ACCOUNT}:launch-template/{template.id if template else '*'}"
    yield action, resource, context
    if specified:
        yield "CreateTags", resource, context | {"ec2:createaction": [action]}
