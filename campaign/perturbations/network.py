"""Perturbations between the controller and the API server: watches, requests, answers, permissions, and the API server itself."""

import os
import pathlib
import signal

import requests
import yaml

from campaign.controller import REPOSITORY
from campaign.perturbations import perturbation

WATCHED = ["", "/instancegroups", "/nodes", "/pods", "/configmaps", "/namespaces"]
"""Text in the paths of watches. The first is in all of them."""
OBJECTS = r"^(?!.*(/leases|/events))"
CHANGES = "POST|PUT|PATCH|DELETE"
RIGHTS = REPOSITORY / "deploy" / "rbac.yaml"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/instance-manager"


@perturbation("watches end", path=WATCHED, ending=["cut", "expired"], times=[1, 3])
def watches_end(runner, path, ending, times):
    """The connection drops, or the watch is too old and everything has to be listed again."""
    for _ in range(times):
        runner.proxy.cut(path, ending)
        runner.wait(1)


@perturbation("watches frozen", path=WATCHED, seconds=[2, 6, 12])
def watches_frozen(runner, path, seconds):
    """The controller's picture of the cluster stays what it was, and no connection ends."""
    runner.proxy.freeze(f".*{path}")
    runner.undo(runner.proxy.thaw, after=seconds)


@perturbation("watches cut while frozen", path=WATCHED[:3], seconds=[2, 6])
def watches_cut_while_frozen(runner, path, seconds):
    """Events are lost: what was held back never comes, and the next list is newer."""
    runner.proxy.freeze(f".*{path}")
    runner.wait(seconds)
    runner.proxy.cut(path)
    runner.proxy.thaw()


@perturbation("API server killed", times=[1, 2])
def api_server_killed(runner, times):
    """It comes back with all its objects, as after a crash of a control plane's node."""
    for _ in range(times):
        process = pathlib.Path(runner.cloud["logs"]) / "kube-apiserver.pid"
        killed = process.read_text()
        os.kill(int(killed), signal.SIGKILL)
        runner.wait_until(lambda killed=killed, process=process: process.read_text() != killed and is_ready(runner), 60)


@perturbation("API server away", seconds=[2, 5, 15])
def api_server_unreachable(runner, seconds):
    """Requests reach no server, and watches end; the lease cannot be renewed either."""
    api_fault(runner, seconds, lose="request", count=-1)
    runner.proxy.cut()
    runner.wait(seconds)


@perturbation("API server slow", seconds=[5, 15], each=[0.3, 2])
def api_server_slow(runner, seconds, each):
    """Every answer comes late."""
    api_fault(runner, seconds, seconds=each, count=-1)


@perturbation("API server fails", seconds=[3, 10], status=[429, 500, 503, 504], method=[".*", "GET", CHANGES])
def api_server_fails(runner, seconds, status, method):
    """It refuses reads, writes or both for a while, but leases."""
    api_fault(runner, seconds, method=method, path=OBJECTS, status=status, count=-1)


@perturbation("write conflicts", path=[OBJECTS, "/nodes", "/instancegroups", "/configmaps"], count=[1, 5, 20])
def write_conflicts(runner, path, count):
    """Another client always wrote first."""
    api_fault(runner, None, method="PUT|PATCH", path=path, status=409, count=count)


@perturbation("API answers lost", path=[OBJECTS, "/nodes", "/instancegroups", "/eviction"], lose=["request", "answer"], after=range(4), count=[1, 3])
def api_answers_lost(runner, path, lose, after, count):
    """The response to a write is lost; the write may have been performed."""
    api_fault(runner, None, method=CHANGES, path=path, lose=lose, after=after, count=count)


@perturbation("lease writes fail", status=[409, 500], count=[1, 3, 8])
def lease_writes_fail(runner, status, count):
    """The leader has to renew again, or to end."""
    if runner.settings["lease"]:
        api_fault(runner, None, method="PUT|PATCH", path="/leases", status=status, count=count)


@perturbation("API reads denied", resource=["instancegroups", "nodes", "pods", "namespaces", "poddisruptionbudgets"], seconds=[4, 12])
def api_reads_denied(runner, resource, seconds):
    """A user revokes a permission. Open watches continue; the rest is refused."""
    without_permissions(runner, resource, {"get", "list", "watch"}, seconds)
    runner.proxy.cut(f"/{resource}")


@perturbation("API writes denied", resource=["instancegroups", "instancegroups/status", "nodes", "pods/eviction", "pods", "events"], seconds=[4, 12])
def api_writes_denied(runner, resource, seconds):
    """A user revokes the permission to write one kind of object."""
    without_permissions(runner, resource, {"create", "update", "patch", "delete"}, seconds)


def is_ready(runner):
    """Whether the API server answers."""
    try:
        return runner.cloud.api("GET", "/readyz").ok
    except requests.ConnectionError:
        return False


def api_fault(runner, lasting, **fields):
    """A fault of requests to the API server, gone after some seconds or before the final settle."""
    fault = runner.proxy.fault(**fields)
    runner.undo(lambda: runner.proxy.end_fault(fault), after=lasting)


def without_permissions(runner, resource, verbs, seconds):
    """Takes verbs on a resource out of the controller's ClusterRole, and puts them back."""
    shipped = next(d["rules"] for d in yaml.safe_load_all(RIGHTS.read_text()) if (d["kind"], d["metadata"]["name"]) == ("ClusterRole", "instance-manager"))
    left = [{**r, "verbs": [v for v in r["verbs"] if resource not in r["resources"] or v not in verbs]} for r in shipped]
    runner.cloud.patch(ROLE, {"rules": [rule for rule in left if rule["verbs"]]})
    runner.undo(lambda: runner.cloud.patch(ROLE, {"rules": shipped}), after=seconds)
