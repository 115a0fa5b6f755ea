"""The totals distinguish perturbations that hit from those that were only drawn."""

from campaign import hits

AT = "2026-01-01T00:00:{:02}.000000"


def played(name, met=None, aws=(), audit=()):
    """A run with one perturbation, which lasts from second 10 to second 20."""
    end = {"time": AT.format(20), "what": "perturbed", "name": name, **({} if met is None else {"met": met})}
    journal = [{"time": AT.format(10), "what": "perturbation", "name": name, "arguments": {}}, end]
    scenario = {"events": [{"kind": "perturbation", "name": name, "arguments": {}}]}
    run = {"scenario": scenario, "journal": journal, "aws": list(aws), "audit": list(audit)}
    return [event["name"] for event in hits.of_run(run)] == [name]


def call(second, key="person", status=200):
    return {"time": AT.format(second), "kind": "call", "caller": {"key": key}, "status": status}


def write(resource, user="admin", code=200):
    ref, status = {"resource": resource}, {"code": code}
    return {"auditID": "x", "stageTimestamp": AT.format(15), "user": {"username": user}, "verb": "patch", "objectRef": ref, "responseStatus": status}


def test_a_fault_hits_when_a_request_meets_it():
    """A denied operation that the controller never calls has no effect."""
    assert played("AWS throttles", met=True) and not played("AWS throttles", met=False)


def test_hands_hit_when_a_write_of_theirs_is_accepted():
    """A group that has no instance yet cannot lose one."""
    name = "finalizer taken off"
    assert played(name, aws=[call(15)]) and played(name, audit=[write("instancegroups")])
    missed = [call(5), call(25), call(15, key="controller2"), call(15, status=400)]
    assert not played(name, aws=missed, audit=[write("leases"), write("nodes", user="kwok"), write("nodes", code=409)])


def test_what_is_done_to_the_process_always_hits():
    """Nothing in the logs says that a process was paused."""
    assert played("restarted")
