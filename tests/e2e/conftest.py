"""Fixtures of the end-to-end tests.

Tests without the marker `private` run side by side in one cloud with one controller (see session.py), each in
namespaces of its own. Those marked `private` start clouds and controllers of their own.
"""

import contextlib
import itertools
import json
import os

import pytest

from e2e import harness
from e2e.cloud_pool import CloudPool


def pytest_configure(config):
    config.addinivalue_line("markers", "private: starts clouds and controllers of its own")
    config.addinivalue_line("markers", "long: takes most of a minute or more, most of it spent waiting")
    config.addinivalue_line("markers", "together: one worker takes all cases of the test, whose fixtures take long")


@pytest.hookimpl(trylast=True)  # after `-m` has deselected tests
def pytest_collection_modifyitems(items):
    """Deals the long tests to the beginnings of the workers' shares. One that began last would run alone.

    `--dist worksteal` gives each worker an equal share of neighbors (xdist/scheduler/worksteal.py, check_schedule).
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    long = {}
    for item in items:
        if item.get_closest_marker("long"):
            unit = item.nodeid.partition("[")[0] if item.get_closest_marker("together") else item.nodeid
            long.setdefault(unit, []).append(item)
    begun = [item for unit in long.values() for item in unit]
    rest = iter([item for item in items if item not in begun])
    units = sorted(long.values(), key=len, reverse=True)
    dealt = []
    for worker in range(workers):
        share = (len(items) - len(dealt)) // (workers - worker)
        mine = [item for unit in units[worker::workers] for item in unit]
        dealt += mine + list(itertools.islice(rest, max(0, share - len(mine))))
    items[:] = dealt + list(rest)


@pytest.fixture(scope="session")
def shared(cloud):
    """The cloud that scenarios share."""
    shared = harness.Cloud.of(cloud)
    yield shared
    shared.check_requests()


@pytest.fixture(scope="session")
def controller(shared):
    """The controller that works in the shared cloud: the session's, else one of this process."""
    described = os.environ.get("E2E_CONTROLLER")
    if described:
        yield harness.Controller(shared, described=json.loads(described))
        return
    shared.install()
    mine = harness.Controller(shared, harness.SHARED_FLAGS).start()
    yield mine
    mine.stop()


@pytest.fixture
def make_tenant(request):
    """Makes tenants: `make_tenant(namespace=..., annotations=...)`, in the shared cloud unless `cloud` is given.

    The shared cloud is not asked for, and so not started, where every tenant is in a cloud of the test's own.
    """
    made = []

    def make(namespace=None, annotations=None, cloud=None, controller=None):
        if cloud is None:
            cloud, controller = request.getfixturevalue("shared"), request.getfixturevalue("controller")
        made.append(harness.Tenant(cloud, controller, namespace, annotations))
        return made[-1]

    yield make
    for tenant in made:
        tenant.end()


@pytest.fixture
def tenant(make_tenant):
    """A tenant in the shared cloud."""
    return make_tenant()


@pytest.fixture(scope="session")
def cloud_pool(start_cloud):
    """The private clouds of this worker."""
    return CloudPool(start_cloud)


@pytest.fixture(scope="session")
def pooled_cloud(cloud_pool):
    """A context with a private cloud, for the fixtures of modules: `with pooled_cloud("--authentication-mode", "API") as cloud`."""

    @contextlib.contextmanager
    def start(*flags):
        cloud = cloud_pool.take(*flags)
        yield cloud
        cloud_pool.give_back(cloud)

    return start


@pytest.fixture
def own_cloud(pooled_cloud):
    """Starts a cloud of the test's own with the basic boundaries: `own_cloud("--authentication-mode", "API", config=text)`."""
    with contextlib.ExitStack() as taken:

        def start(*flags, config=harness.BASIC):
            cloud = taken.enter_context(pooled_cloud(*flags))
            if config is not None:
                cloud.install(config)
            return cloud

        yield start


@pytest.fixture
def start_controller():
    """Starts controllers that end with the test: `start_controller(cloud, "--resync-period", "5s", env={})`.

    A busy machine does not end the only one of a cloud. Several are there to lose their Lease to each other.
    """
    started = []

    def start(cloud, *args, wait=True, **more):
        others = [each for each in started if each.cloud is cloud]
        for each in others:
            each.is_kept = False
        started.append(harness.Controller(cloud, args, is_kept=not others, **more))
        return started[-1].start(wait)

    yield start
    for each in started:
        each.kill()
