"""The wall clock of the controllers of a world, which can be moved. What measures durations continues as it was."""

import os
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).with_name("clock.c")


class Clock:
    """A clock in a file that processes read with each question for the time, through a library that is preloaded.

    It moves nothing in a program that does not ask the C library, as one that is linked statically.
    """

    def __init__(self, directory):
        self._file = pathlib.Path(directory) / "clock"
        self.environment = {"LD_PRELOAD": str(library(directory)), "CAMPAIGN_CLOCK": str(self._file)}
        """What a process needs to go by this clock."""
        self._file.write_bytes(bytes(8))

    def move(self, seconds):
        """From now on it is so many seconds fast, or slow if they are negative."""
        with open(self._file, "r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


def library(directory):
    """The compiled library of a directory."""
    path = pathlib.Path(directory).resolve() / "clock.so"
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
        os.replace(made, path)
    return path
