"""A user who finds what belongs to a group in AWS and Kubernetes, and changes it by hand."""

from botocore.exceptions import ClientError

from campaign import state


class User:
    """Hands on the resources of one group, as they are when it is made. What AWS refuses is noted, and left."""

    def __init__(self, runner, group):
        self.runner, self.group = runner, group
        self.found = state.resources({"aws": runner.cloud.snapshot()}, group)

    def each(self, kind):
        """(name, thing) of the group's resources of a kind of the snapshot, see localcloud/aws/snapshot.py."""
        return sorted(self.found.get(kind, {}).items())

    def scaling_group(self):
        """The group's scaling group, or None; for a managed node group that of EKS."""
        return next((thing for _, thing in self.each("groups")), None)

    def members(self, *states):
        """Ids of the instances of its scaling group in these lifecycle states, or in service."""
        found = (self.scaling_group() or {"Instances": []})["Instances"]
        return [i["InstanceId"] for i in found if i["LifecycleState"] in (states or ("InService",))]

    def do(self, service, operation, **parameters):
        """Calls AWS; the answer, or None when AWS refuses."""
        try:
            return getattr(self.runner.cloud.boto(service), operation)(**parameters)
        except ClientError as refused:
            self.runner.note("refused", call=f"{service}:{operation}", message=str(refused))
            return None

    def undo(self, service, operation, after=None, **parameters):
        """Has AWS called later: after so many seconds, before the group is created again, or before the final settle."""
        self.runner.undo(lambda: self.do(service, operation, **parameters), after=after, group=self.group)

    def empty_profiles(self):
        """Takes the roles out of the group's instance profiles."""
        for name, profile in self.each("profiles"):
            for role in profile["roles"]:
                self.do("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role)

    def delete_roles(self):
        """Deletes the group's roles, with their policies; returns the names of those that the user deleted."""
        deleted = set()
        for name, role in self.each("roles"):
            for arn in role["policies"]:
                self.do("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)
            if self.do("iam", "delete_role", RoleName=name):
                deleted.add(name)
        return deleted

    def delete_roles_and_profiles(self):
        """Deletes the group's roles and instance profiles."""
        self.empty_profiles()
        for name, _ in self.each("profiles"):
            self.do("iam", "delete_instance_profile", InstanceProfileName=name)
        self.delete_roles()

    def nodes(self):
        """Its Node objects, by the label that every group of a scenario gives its nodes."""
        found = self.runner.cloud.get("/api/v1/nodes")["items"]
        return sorted((n for n in found if n["metadata"].get("labels", {}).get("pool") == self.group), key=lambda n: n["metadata"]["name"])

    def node(self, index):
        """The path of one of its Nodes, or None if it has none."""
        nodes = self.nodes()
        return f"/api/v1/nodes/{nodes[index % len(nodes)]['metadata']['name']}" if nodes else None

    def patch(self, path, body):
        """Merges `body` into an object, if it is still there."""
        answer = self.runner.cloud.api("PATCH", path, body, content_type="application/merge-patch+json")
        if not answer.ok:
            self.runner.note("refused", call=f"PATCH {path}", message=answer.text)
        return answer.ok


def owned(tags):
    """Those of a resource's tags that say whose it is."""
    return {key: value for key, value in tags.items() if key in state.OWNER_TAGS}


def as_list(tags, **more):
    """Tags as most services take them."""
    return [{"Key": key, "Value": value, **more} for key, value in tags.items()]
