"""The controller that tests share is there for all of them: a Deployment would see to it."""

import subprocess

import pytest

from e2e import session
from localcloud.tests.support import eventually


class Program:
    """Stands for a controller whose first process ends by itself with `words`."""

    def __init__(self, words):
        self.process, self.starts, self._words = None, 0, words

    def start(self, wait=True):
        self.starts += 1
        self.process = subprocess.Popen(["sleep", "600"] if self.starts > 1 else ["false"])

    def stop(self):
        self.process.kill()

    def tail(self, count):
        return self._words


@pytest.mark.parametrize("words, is_crash", [(words, False) for words in session.RESTARTS] + [("thread 'main' panicked", True)])
def test_a_controller_that_ends_by_itself_is_started_again_and_a_crash_is_reported(words, is_crash):
    """Without this, one slow minute of the machine would fail every test that comes after it."""
    program = Program(words)
    kept = session.Kept(program).start()
    eventually(lambda: program.starts == 2)
    kept.stop()
    assert program.starts == 2
    assert kept.crashes == ([words] if is_crash else [])


def test_the_words_are_those_of_the_controller():
    """Another wording would make each restart a crash."""
    source = (session.harness.support.REPOSITORY / "src" / "cli" / "run.rs").read_text()
    assert [words for words in session.RESTARTS if f'"{words}"' not in source] == []
