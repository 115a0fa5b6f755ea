"""The fixtures that start local clouds, for every test below this directory."""

import gc

from localcloud.tests.fixtures import cloud, private_cloud, start_cloud, unique  # noqa: F401


def pytest_collection_finish():
    """Nearly all objects are modules, tests and parsed logs, which live as long as this process: looking for garbage among
    them takes much of its CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_sessionfinish():
    """pytest looks for garbage several times before it ends."""
    gc.freeze()
