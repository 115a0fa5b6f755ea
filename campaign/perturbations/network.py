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
def watches_end(stage, path, ending, times):
    """The connection drops, or the watch is too old and everything has to be listed again."""
    for _ in range(times):
        stage.proxy.cut(path, ending)
        stage.wait(1)


@perturbation("watches frozen", path=WATCHED, seconds=[2, 6, 12])
def watches_frozen(stage, path, seconds):
    """The controller's picture of the cluster stays what it was, and no connection ends."""
    stage.proxy.freeze(f".*{path}")
    stage.undo(stage.proxy.thaw, after=seconds)


@perturbation("watches cut while frozen", path=WATCHED[:3], seconds=[2, 6])
def watches_cut_while_frozen(stage, path, seconds):
    """Events are lost: what was held back never comes, and the next list is newer."""
    stage.proxy.freeze(f".*{path}")
    stage.wait(seconds)
    stage.proxy.cut(path)
    stage.proxy.thaw()


@perturbation("API server killed", times=[1, 2])
def api_server_killed(stage, times):
    """It comes back with all its objects, as after a crash of a control plane's node."""
    for _ in range(times):
        process = pathlib.Path(stage.cloud["logs"]) / "kube-apiserver.pid"
        killed = process.read_text()
        os.kill(int(killed), signal.SIGKILL)
        stage.wait_until(lambda killed=killed, process=process: process.read_text() != killed and is_ready(stage), 60)


@perturbation("API server away", seconds=[2, 5, 15])
def api_server_away(stage, seconds):
    """Requests reach nobody, and watches end; the lease cannot be renewed either."""
    api_fault(stage, seconds, lose="request", count=-1)
    stage.proxy.cut()
    stage.wait(seconds)


@perturbation("API server slow", seconds=[5, 15], each=[0.3, 2])
def api_server_slow(stage, seconds, each):
    """Every answer comes late."""
    api_fault(stage, seconds, seconds=each, count=-1)


@perturbation("API server fails", seconds=[3, 10], status=[429, 500, 503, 504], method=[".*", "GET", CHANGES])
def api_server_fails(stage, seconds, status, method):
    """It refuses reads, writes or both for a while, but leases."""
    api_fault(stage, seconds, method=method, path=OBJECTS, status=status, count=-1)


@perturbation("write conflicts", path=[OBJECTS, "/nodes", "/instancegroups", "/configmaps"], count=[1, 5, 20])
def write_conflicts(stage, path, count):
    """Another client always wrote first."""
    api_fault(stage, None, method="PUT|PATCH", path=path, status=409, count=count)


@perturbation("API answers lost", path=[OBJECTS, "/nodes", "/instancegroups", "/eviction"], lose=["request", "answer"], after=range(4), count=[1, 3])
def api_answers_lost(stage, path, lose, after, count):
    """The response to a write is lost; the write may have been performed."""
    api_fault(stage, None, method=CHANGES, path=path, lose=lose, after=after, count=count)


@perturbation("lease writes fail", status=[409, 500], count=[1, 3, 8])
def lease_writes_fail(stage, status, count):
    """The leader has to renew again, or to end."""
    api_fault(stage, None, method="PUT|PATCH", path="/leases", status=status, count=count)


@perturbation("API reads denied", resource=["instancegroups", "nodes", "pods", "namespaces", "poddisruptionbudgets"], seconds=[4, 12])
def api_reads_denied(stage, resource, seconds):
    """A person revokes a permission. Watches that are open go on; the rest is refused."""
    without_permissions(stage, resource, {"get", "list", "watch"}, seconds)
    stage.proxy.cut(f"/{resource}")


@perturbation("API writes denied", resource=["instancegroups", "instancegroups/status", "nodes", "pods/eviction", "pods", "events"], seconds=[4, 12])
def api_writes_denied(stage, resource, seconds):
    """A person revokes the permission to write one kind of object."""
    without_permissions(stage, resource, {"create", "update", "patch", "delete"}, seconds)


def is_ready(stage):
    """Whether the API server answers."""
    try:
        return stage.cloud.api("GET", "/readyz").ok
    except requests.ConnectionError:
        return False


def api_fault(stage, lasting, **fields):
    """A fault of requests to the API server, gone after some seconds or before the final settle."""
    fault = stage.proxy.fault(**fields)
    stage.undo(lambda: stage.proxy.end_fault(fault), after=lasting)


def without_permissions(stage, resource, verbs, seconds):
    """Takes verbs on a resource out of the controller's ClusterRole, and puts them back."""
    shipped = next(d["rules"] for d in yaml.safe_load_all(RIGHTS.read_text()) if (d["kind"], d["metadata"]["name"]) == ("ClusterRole", "instance-manager"))
    left = [{**r, "verbs": [v for v in r["verbs"] if resource not in r["resources"] or v not in verbs]} for r in shipped]
    stage.cloud.patch(ROLE, {"rules": [rule for rule in left if rule["verbs"]]})
    stage.undo(lambda: stage.cloud.patch(ROLE, {"rules": shipped}), after=seconds)
