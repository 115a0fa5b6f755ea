"""The only controller of a cloud is there for all of its tests: its Deployment would see to that."""

import pytest

from e2e import harness
from localcloud.tests.support import eventually

PROGRAM = 'echo start >> {0}/starts; if [ $(wc -l < {0}/starts) = 1 ]; then echo "{1}"; exit 1; fi; exec sleep 600'
"""Stands for a controller whose first process ends by itself."""


class Cloud:
    """What a controller asks of its cloud."""

    environment = {"PATH": "/usr/bin:/bin"}

    def __getitem__(self, name):
        return ""


@pytest.mark.parametrize("words, is_kept, starts", [
    *((words, True, 2) for words in harness.RESTARTS),
    ("thread 'main' panicked", True, 1),
    (harness.RESTARTS[0], False, 1),
])
def test_a_controller_that_loses_its_lease_is_started_again_but_not_one_that_crashes(tmp_path, monkeypatch, words, is_kept, starts):
    """Without this, one slow minute of the machine would fail every test that comes after it."""
    monkeypatch.setattr(harness.Controller, "command", ["/bin/sh", "-c", PROGRAM.format(tmp_path, words)])
    controller = harness.Controller(Cloud(), log=tmp_path / "log", is_kept=is_kept)
    (tmp_path / "starts").touch()
    controller.start(wait=False)
    started = lambda: len((tmp_path / "starts").read_text().splitlines())  # noqa: E731
    if starts == 2:
        eventually(lambda: started() == 2)
        assert controller.stop() is not None
    else:
        controller._keep(controller.process)
        assert controller.stop() is None
    assert controller.process.poll() is not None
    assert started() == starts


def test_the_words_are_those_of_the_controller():
    """With other words, the controller that tests share would be gone when it loses its Lease."""
    source = (harness.support.REPOSITORY / "src" / "cli" / "run.rs").read_text()
    assert [words for words in harness.RESTARTS if f'"{words}"' not in source] == []
