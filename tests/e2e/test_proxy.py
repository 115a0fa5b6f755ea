"""The proxy in front of the API server does to requests and watches what tests ask of it."""

import json

import pytest
import requests

from e2e.harness import GROUPS
from e2e.proxy import Proxy
from localcloud.tests.support import eventually

pytestmark = pytest.mark.private
MAPS = "/api/v1/namespaces/default/configmaps"
GONE = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)


@pytest.fixture
def proxied(own_cloud):
    """A cloud, a proxy in front of it, and a function that sends requests of the administrator through it."""
    cloud = own_cloud(config=None)
    # What ends the cloud reads them, and these tests are quicker than their API comes up.
    eventually(lambda: cloud.api("GET", f"{GROUPS}/instancegroups").ok)
    proxy = Proxy(cloud)
    server = json.loads(proxy.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    headers = {"Authorization": f"Bearer {cloud['admin_token']}", "Content-Type": "application/json"}

    def send(method, path, body=None, stream=False):
        return requests.request(method, server + path, headers=headers, json=body, stream=stream, timeout=120)

    yield cloud, proxy, send
    proxy.stop()


def test_requests_are_refused_lost_and_delayed(proxied):
    """Each fault hits as many requests as it says, of those that fit, after the ones that it lets pass."""
    cloud, proxy, send = proxied
    new = lambda name: send("POST", MAPS, {"metadata": {"name": name}}).status_code  # noqa: E731
    conflict = proxy.fault(method="POST", path="/configmaps", status=409, after=1, count=2)
    assert [new(name) for name in "abcd"] == [201, 409, 409, 201] and conflict.hits == 2
    for lose, there in (("request", False), ("answer", True)):
        proxy.fault(method="POST", path="/configmaps", lose=lose)
        with pytest.raises(GONE):
            new(lose)
        assert (cloud.get(f"{MAPS}/{lose}") is not None) is there
    away = proxy.fault(seconds=1, lose="request", count=-1)
    for _ in range(2):
        with pytest.raises(GONE):
            send("GET", MAPS)
    proxy.end_fault(away)
    assert send("GET", MAPS).status_code == 200
    assert len(proxy.written) == 3, "a, d and the one whose answer was lost"


def test_the_proxy_holds_the_nth_write_of_a_kind(proxied):
    """`skip` counts the writes of that kind that pass before."""
    _, proxy, send = proxied
    held = proxy.hold("POST", "/configmaps", before=True, skip=1)
    assert send("POST", MAPS, {"metadata": {"name": "first"}}).status_code == 201 and not held.reached.is_set()
    held.release(lose=True)
    with pytest.raises(GONE):
        send("POST", MAPS, {"metadata": {"name": "second"}})
    assert held.reached.is_set()


def test_the_end_of_a_hold_ends_no_other(proxied):
    """A kill at a write would let the writes go that another perturbation holds."""
    _, proxy, send = proxied
    ended, other = (proxy.hold("POST", "/configmaps", before=True) for _ in range(2))
    proxy.end_hold(ended)
    other.release(lose=True)
    with pytest.raises(GONE):
        send("POST", MAPS, {"metadata": {"name": "third"}})
    assert other.reached.is_set() and not ended.reached.is_set()


def test_watches_are_cut_and_expire(proxied):
    """A cut watch ends without a word; one that expired says 410, and its client lists again."""
    cloud, proxy, send = proxied
    for ending in ("cut", "expired"):
        lines = send("GET", f"{MAPS}?watch=1&timeoutSeconds=60", stream=True).iter_lines()
        cloud.create(MAPS, {"metadata": {"name": ending}})
        eventually(lambda lines=lines, ending=ending: json.loads(next(lines))["object"]["metadata"]["name"] == ending)
        assert proxy.cut("^/api/v1/nodes", ending) == 0 and proxy.cut("/configmaps", ending) == 1
        if ending == "cut":
            with pytest.raises(GONE):
                list(lines)
        else:
            (last,) = map(json.loads, lines)
            assert last["type"] == "ERROR" and last["object"]["code"] == 410
