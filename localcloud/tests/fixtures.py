"""Fixtures that start local clouds: one that all tests of a run share, and private ones."""

import json
import os
import pathlib
import shutil
import tempfile
import uuid

import pytest

from localcloud.tests import support


@pytest.fixture(scope="session")
def start_cloud():
    """Starts local clouds: `start_cloud("--no-aws")` returns a running `Cloud`. All of them stop with the session."""
    started = []
    base = pathlib.Path(tempfile.mkdtemp(prefix="local-clouds-"))

    def start(*flags):
        state = base / str(len(started))
        log = base / f"{len(started)}.log"
        process = support.start(flags, state, log)
        started.append(process)
        description = state / "cloud.json"
        support.eventually(lambda: description.exists() or process.poll() is not None, support.START_TIMEOUT, f"a local cloud ({log})")
        assert process.poll() is None, log.read_text()
        return support.Cloud(json.loads(description.read_text()), process)

    yield start
    for process in started:
        if process.poll() is None:
            support.stop(process)
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def cloud(start_cloud):
    """The shared cloud: that of `localcloud/up -- pytest ...`, otherwise a new one of this process."""
    shared = os.environ.get("LOCAL_CLOUD")
    return support.Cloud(json.loads(pathlib.Path(shared).read_text())) if shared else start_cloud()


@pytest.fixture
def private_cloud(start_cloud):
    """Starts a cloud for this test only, with the given flags of localcloud/up. It stops with the test."""
    mine = []

    def start(*flags):
        mine.append(start_cloud(*flags))
        return mine[-1]

    yield start
    for cloud_ in mine:
        if cloud_.process.poll() is None:
            support.stop(cloud_.process)


@pytest.fixture
def unique():
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}"
