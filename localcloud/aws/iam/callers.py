"""Which role the calls of an access key are made with.

On EKS the controller has a session of its role (Amazon EKS User Guide, "IAM roles for service accounts" and "EKS Pod
Identity"). Here its access key is that of such a session as soon as the role exists.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.sts.responses import TokenResponse

from localcloud.aws.errors import AwsError
from localcloud.aws.request import CREDENTIAL

ROLE_OF_KEY = {"controller": "instance-manager"}
"""The name of the role by the access key of its session."""
SESSION = "eks-demo-instance-manager"


def keys_of_role(name: str) -> list[str]:
    """The access keys of the sessions of a role."""
    return [key for key, role in ROLE_OF_KEY.items() if role == name]


def check_service_linked_role(simulator: Any, response: Any, name: str) -> None:
    """Refuse a call of EKS whose caller may not read the service-linked role of EKS.

    EKS looks for the role with the caller's permissions. The wording is from
    "Terraform aws_eks_node_group cannot find service linked role" of terraform-aws-modules/terraform-aws-eks and, for
    AWSServiceRoleForAmazonEKSForFargate, "Failed to validate if SLR" of awsdocs/amazon-eks-user-guide.
    """
    signed = CREDENTIAL.search(response.headers.get("Authorization", ""))
    if signed and simulator.faults.denies("iam:GetRole", signed[1]):
        message = f"Failed to validate if SLR: {name} already exists due to missing permissions for 'iam:GetRole'"
        raise AwsError("InvalidRequestException", message)


def check_launch_template(simulator: Any, response: Any, template: str | None) -> None:
    """Refuse a launch template whose caller may not run instances from it.

    Amazon EC2 Auto Scaling User Guide, "Control Amazon EC2 launch template usage in Auto Scaling groups". The wording, which
    names no action, is from "feat: Add instance tag specifications to Launch Template" of
    terraform-aws-modules/terraform-aws-eks.
    """
    signed = CREDENTIAL.search(response.headers.get("Authorization", ""))
    if template and signed and simulator.faults.denies("ec2:RunInstances", signed[1]):
        raise AwsError("AccessDenied", f"You are not authorized to use launch template: {template}")


def install(simulator: Any) -> None:
    """Replace moto's GetCallerIdentity, which knows only the sessions that AssumeRole began.

    The ARN of a session has the role's name without its path (IAM User Guide, "AWS JSON policy elements: Principal", role
    session principals: `arn:aws:sts::AWS-account-ID:assumed-role/role-name/role-session-name`).
    """
    identify = TokenResponse.get_caller_identity

    def get_caller_identity(self: Any) -> ActionResult:
        # moto reads no access keys but those of 20 characters.
        signed = CREDENTIAL.search(self.headers.get("Authorization", ""))
        name = ROLE_OF_KEY.get(signed[1]) if signed else None
        role = next((role for role in simulator.iam.roles.values() if role.name == name), None)
        if role is None:
            return identify(self)
        account, partition = simulator.settings.account, role.arn.split(":")[1]
        arn = f"arn:{partition}:sts::{account}:assumed-role/{role.name}/{SESSION}"
        return ActionResult({"UserId": f"{role.id}:{SESSION}", "Account": account, "Arn": arn})

    TokenResponse.get_caller_identity = get_caller_identity
