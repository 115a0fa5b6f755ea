"""From an InstanceGroup to nodes, the sizes in between, and the end."""


def test_a_short_group_becomes_ready_nodes_and_goes(tenant):
    """Without this, nothing that the project promises happens at all."""
    tenant.defaults(eks={"minSize": 2})
    group = tenant.group("web", labels={"team": "search"})
    group.wait_ready(nodes=2)
    assert {n["metadata"]["labels"]["team"] for n in group.nodes()} == {"search"}
    group.delete()
    group.wait_gone()
    assert group.undrained() == {} and group.asg() is None
