"""Changes that users make by hand to the roles and instance profiles of groups: edited, deleted, tags taken off, made again."""

import json

from campaign.perturbations import perturbation
from campaign.scenario import is_wide
from campaign.user import User, as_list

BOTH = ("eks", "eks-fargate")
POLICY = "arn:aws:iam::aws:policy/"
NOBODY = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]})
"""A trust policy that lets no node use the role."""
NODES = NOBODY.replace("lambda", "ec2")
THEIRS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]})
LATER = [3, 10, None]


@perturbation("policies detached", needs=BOTH, count=[1, 9])
def policies_detached(runner, group, count):
    """Nodes may not join until they are back."""
    user = User(runner, group)
    for name, role in user.each("roles"):
        for arn in role["policies"][:count]:
            user.do("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)


@perturbation("policies of others", needs=BOTH, inline=[True, False], later=LATER)
def foreign_policies(runner, group, inline, later):
    """They stay, also in the way of a deletion, until a user takes them off."""
    user = User(runner, group)
    for name, _ in user.each("roles"):
        if inline:
            user.do("iam", "put_role_policy", RoleName=name, PolicyName="theirs", PolicyDocument=THEIRS)
            user.undo("iam", "delete_role_policy", after=later, RoleName=name, PolicyName="theirs")
        else:
            user.do("iam", "attach_role_policy", RoleName=name, PolicyArn=POLICY + "ReadOnlyAccess")
            user.undo("iam", "detach_role_policy", after=later, RoleName=name, PolicyArn=POLICY + "ReadOnlyAccess")


@perturbation("trust policy edited", needs=BOTH, later=LATER)
def trust_policy_edited(runner, group, later):
    """No node can use the role until a user puts it right."""
    user = User(runner, group)
    for name, role in user.each("roles"):
        user.do("iam", "update_assume_role_policy", RoleName=name, PolicyDocument=NOBODY)
        trust = role["trust"] if isinstance(role["trust"], str) else json.dumps(role["trust"])
        user.undo("iam", "update_assume_role_policy", after=later, RoleName=name, PolicyDocument=trust)


@perturbation("tags of roles and profiles taken off", needs=BOTH, kinds=[["roles"], ["profiles"], ["roles", "profiles"]], later=LATER)
def tags_removed_from_roles_and_profiles(runner, group, kinds, later):
    """The controller need not put them back by itself, so a user does."""
    user = User(runner, group)
    for kind in kinds:
        operation, parameter = ("role", "RoleName") if kind == "roles" else ("instance_profile", "InstanceProfileName")
        for name, thing in user.each(kind):
            user.do("iam", f"untag_{operation}", **{parameter: name}, TagKeys=list(thing["tags"]))
            user.undo("iam", f"tag_{operation}", after=later, **{parameter: name}, Tags=as_list(thing["tags"]))


@perturbation("role taken out of its profile", needs="eks", other=[True, False])
def role_removed_from_its_profile(runner, group, other):
    """Perhaps with another one in its place: new nodes have no role, or a wrong one, until it is back."""
    user = User(runner, group)
    user.empty_profiles()
    for name, _ in user.each("profiles"):
        if other:
            if "theirs" not in runner.cloud.snapshot()["roles"]:
                user.do("iam", "create_role", RoleName="theirs", AssumeRolePolicyDocument=NODES)
            user.do("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName="theirs")


@perturbation("instance profile deleted", needs="eks", again=[True, False], later=LATER)
def instance_profile_deleted(runner, group, again, later):
    """It is made again: by the controller, or by a user who forgets its role at first, and its tags."""
    user = User(runner, group)
    user.empty_profiles()
    for name, profile in user.each("profiles"):
        user.do("iam", "delete_instance_profile", InstanceProfileName=name)
        if again:
            user.do("iam", "create_instance_profile", InstanceProfileName=name)
            user.undo("iam", "tag_instance_profile", after=later, InstanceProfileName=name, Tags=as_list(profile["tags"]))


@perturbation("role deleted", needs=BOTH)
def role_deleted(runner, group):
    """It is made again, with another id."""
    user = User(runner, group)
    user.empty_profiles()
    user.delete_roles()


@perturbation("role made again by hand", needs="eks", policies=[True, False], later=LATER)
def role_made_again_by_hand(runner, group, policies, later):
    """By a user who puts it back into its profile, and forgets its tags at first."""
    user = User(runner, group)
    user.empty_profiles()
    recreate_roles(user, policies, later)
    for name, profile in user.each("profiles"):
        for role in profile["roles"]:
            user.do("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=role)


@perturbation("role of a Fargate profile made again by hand", needs="eks-fargate", when=is_wide, policies=[True, False], later=LATER)
def role_of_a_fargate_profile_made_again_by_hand(runner, group, policies, later):
    """Its tags are forgotten at first. While one profile replaces another, the controller may be done with the old one's role."""
    user = User(runner, group)
    if [profile["status"] for _, profile in user.each("fargate")] == ["ACTIVE"] and not runner.is_being_deleted(group):
        recreate_roles(user, policies, later)


def recreate_roles(user, policies, later):
    """Deletes the group's roles and creates them again, perhaps with their policies. A user tags them later.

    A user makes no role again that the controller has just deleted.
    """
    deleted = user.delete_roles()
    for name, role in ((name, role) for name, role in user.each("roles") if name in deleted):
        trust = role["trust"] if isinstance(role["trust"], str) else json.dumps(role["trust"])
        user.do("iam", "create_role", RoleName=name, AssumeRolePolicyDocument=trust)
        user.undo("iam", "tag_role", after=later, RoleName=name, Tags=as_list(role["tags"]))
        for arn in role["policies"] if policies else []:
            user.do("iam", "attach_role_policy", RoleName=name, PolicyArn=arn)
