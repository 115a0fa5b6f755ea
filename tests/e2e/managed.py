"""What the tests of managed node groups share: groups of the provisioner eks-managed, and what EKS shows of them."""

from e2e import harness, logs

RELEASES = tuple(f"1.32.0-{date}" for date in ("20250101", "20250601", "20251001"))
"""What the simulated EKS knows of Amazon Linux 2023 for Kubernetes 1.32, oldest first."""
UPDATES = ("UpdateNodegroupConfig", "UpdateNodegroupVersion")
LABEL = "eks.amazonaws.com/nodegroup"


class Managed(harness.Group):
    """An InstanceGroup of the provisioner eks-managed and its node groups."""

    def __init__(self, tenant, name):
        super().__init__(tenant, name)
        del self.scaling_group

    def __getattr__(self, name):
        if name == "scaling_group":
            return self.status().get("activeScalingGroupName", "none-yet")
        raise AttributeError(name)

    @property
    def names(self):
        """The names of its node groups on record, oldest first."""
        return [text.partition("/")[2] for text in self.status().get("managed", {}).get("nodegroups", [])]

    def nodegroup(self, name=None):
        """A node group of its as EKS shows it, the newest unless `name` says which; None when it is gone."""
        eks, names = self.cloud.boto("eks"), [name] if name else self.names
        if not names:
            return None
        try:
            return eks.describe_nodegroup(clusterName=self.cloud["cluster_name"], nodegroupName=names[-1])["nodegroup"]
        except eks.exceptions.ResourceNotFoundException:
            return None

    def change(self, sizes=None, **configuration):
        """Changes spec.eks-managed (`sizes`) and its configuration; None removes a field."""
        body = {**(sizes or {}), **({"configuration": configuration} if configuration else {})}
        return self.patch({"spec": {"eks-managed": body}})

    def calls(self, *operations, after=0):
        """The controller's calls of these operations that EKS took and that name a node group of this namespace."""
        made = [e for e in self.cloud.aws_events(after) if logs.is_controller_call(e) and e["operation"] in operations]
        return [e for e in made if self.tenant.namespace in str(e) and e["status"] < 300]

    def ready_nodes(self):
        """Nodes of its newest node group that are Ready and not cordoned."""
        return [n for n in self.managed_nodes() if harness.node_ready(n) and not n["spec"].get("unschedulable")]

    def managed_nodes(self, name=None):
        """The Node objects of one of its node groups, the newest unless `name` says which."""
        wanted = name or (self.names or ["none"])[-1]
        return [n for n in self.cloud.get("/api/v1/nodes")["items"] if n["metadata"].get("labels", {}).get(LABEL) == wanted]


def role(tenant, name="nodes"):
    """The ARN of a role that is fit for nodes, and this tenant's own."""
    return tenant.cloud.make_role(f"{tenant.unique}-{name}")


def give_role(tenant, arn):
    """Lets the admin's ConfigMap name the role of this tenant's nodes: the basic boundaries keep it from tenants."""
    tenant.set_conditional_defaults({"spec": {"eks-managed": {"configuration": {"nodeRole": arn}}}})


def manifest(tenant, name="web", size=(2, 4), spec=None, annotations=None, **configuration):
    """A short InstanceGroup of the provisioner eks-managed."""
    given = {"clusterName": tenant.cloud["cluster_name"], "subnets": ["demo-private-a", "demo-private-b"], "instanceType": "m5.large", **configuration}
    managed = {"minSize": size[0], "maxSize": size[1], "configuration": given}
    body = tenant.manifest(name, {"provisioner": "eks-managed", **(spec or {}), "eks-managed": managed}, annotations)
    del body["spec"]["eks"]
    return body


def apply(tenant, name="web", size=(2, 4), spec=None, annotations=None, role_arn=None, **configuration):
    """Creates one; it creates a role for it unless one is given."""
    give_role(tenant, role_arn or role(tenant, name))
    tenant.apply(manifest(tenant, name, size, spec, annotations, **configuration))
    return Managed(tenant, name)


def names_in_eks(cloud):
    """The names of all node groups."""
    return cloud.boto("eks").list_nodegroups(clusterName=cloud["cluster_name"])["nodegroups"]
