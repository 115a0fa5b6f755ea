"""People's hands on the roles and instance profiles of groups: edited, deleted, tags taken off, made again."""

import json

from campaign.person import Person, as_list
from campaign.perturbations import perturbation

BOTH = ("eks", "eks-fargate")
POLICY = "arn:aws:iam::aws:policy/"
NOBODY = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]})
"""A trust policy that lets no node use the role."""
NODES = NOBODY.replace("lambda", "ec2")
THEIRS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]})
LATER = [3, 10, None]


@perturbation("policies detached", needs=BOTH, count=[1, 9])
def policies_detached(stage, group, count):
    """Nodes may not join until they are back."""
    person = Person(stage, group)
    for name, role in person.each("roles"):
        for arn in role["policies"][:count]:
            person.do("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)


@perturbation("policies of others", needs=BOTH, inline=[True, False], later=LATER)
def policies_of_others(stage, group, inline, later):
    """They stay, also in the way of a deletion, until a person takes them off."""
    person = Person(stage, group)
    for name, _ in person.each("roles"):
        if inline:
            person.do("iam", "put_role_policy", RoleName=name, PolicyName="theirs", PolicyDocument=THEIRS)
            person.undo("iam", "delete_role_policy", after=later, RoleName=name, PolicyName="theirs")
        else:
            person.do("iam", "attach_role_policy", RoleName=name, PolicyArn=POLICY + "ReadOnlyAccess")
            person.undo("iam", "detach_role_policy", after=later, RoleName=name, PolicyArn=POLICY + "ReadOnlyAccess")


@perturbation("trust policy edited", needs=BOTH, later=LATER)
def trust_policy_edited(stage, group, later):
    """No node can use the role until a person puts it right."""
    person = Person(stage, group)
    for name, role in person.each("roles"):
        person.do("iam", "update_assume_role_policy", RoleName=name, PolicyDocument=NOBODY)
        trust = role["trust"] if isinstance(role["trust"], str) else json.dumps(role["trust"])
        person.undo("iam", "update_assume_role_policy", after=later, RoleName=name, PolicyDocument=trust)


@perturbation("tags of roles and profiles taken off", needs=BOTH, kinds=[["roles"], ["profiles"], ["roles", "profiles"]], later=LATER)
def tags_of_roles_and_profiles_taken_off(stage, group, kinds, later):
    """The controller need not put them back by itself, so a person does."""
    person = Person(stage, group)
    for kind in kinds:
        operation, parameter = ("role", "RoleName") if kind == "roles" else ("instance_profile", "InstanceProfileName")
        for name, thing in person.each(kind):
            person.do("iam", f"untag_{operation}", **{parameter: name}, TagKeys=list(thing["tags"]))
            person.undo("iam", f"tag_{operation}", after=later, **{parameter: name}, Tags=as_list(thing["tags"]))


@perturbation("role taken out of its profile", needs="eks", other=[True, False])
def role_taken_out_of_its_profile(stage, group, other):
    """Perhaps with another one in its place: new nodes have no role, or a wrong one, until it is back."""
    person = Person(stage, group)
    empty_profiles(person)
    for name, _ in person.each("profiles"):
        if other:
            if "theirs" not in stage.cloud.snapshot()["roles"]:
                person.do("iam", "create_role", RoleName="theirs", AssumeRolePolicyDocument=NODES)
            person.do("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName="theirs")


@perturbation("instance profile deleted", needs="eks", again=[True, False], later=LATER)
def instance_profile_deleted(stage, group, again, later):
    """It is made again: by the controller, or by a person who forgets its role at first, and its tags."""
    person = Person(stage, group)
    empty_profiles(person)
    for name, profile in person.each("profiles"):
        person.do("iam", "delete_instance_profile", InstanceProfileName=name)
        if again:
            person.do("iam", "create_instance_profile", InstanceProfileName=name)
            person.undo("iam", "tag_instance_profile", after=later, InstanceProfileName=name, Tags=as_list(profile["tags"]))


@perturbation("role deleted", needs=BOTH)
def role_deleted(stage, group):
    """It is made again, with another id."""
    person = Person(stage, group)
    empty_profiles(person)
    delete_roles(person)


@perturbation("role made again by hand", needs="eks", policies=[True, False], later=LATER)
def role_made_again_by_hand(stage, group, policies, later):
    """By a person who puts it back into its profile, and forgets its tags at first."""
    person = Person(stage, group)
    empty_profiles(person)
    delete_roles(person)
    for name, role in person.each("roles"):
        trust = role["trust"] if isinstance(role["trust"], str) else json.dumps(role["trust"])
        person.do("iam", "create_role", RoleName=name, AssumeRolePolicyDocument=trust)
        person.undo("iam", "tag_role", after=later, RoleName=name, Tags=as_list(role["tags"]))
        for arn in role["policies"] if policies else []:
            person.do("iam", "attach_role_policy", RoleName=name, PolicyArn=arn)
    for name, profile in person.each("profiles"):
        for role in profile["roles"]:
            person.do("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=role)


def empty_profiles(person):
    """Takes the roles out of the group's instance profiles."""
    for name, profile in person.each("profiles"):
        for role in profile["roles"]:
            person.do("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role)


def delete_roles(person):
    """Deletes the group's roles, with their policies."""
    for name, role in person.each("roles"):
        for arn in role["policies"]:
            person.do("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)
        person.do("iam", "delete_role", RoleName=name)
