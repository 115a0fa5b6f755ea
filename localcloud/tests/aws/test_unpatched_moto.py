"""Every test of patched behavior fails on unpatched moto. Otherwise it would not test the patch."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from localcloud.tests.aws.support import PLAIN_MOTO, REPOSITORY


@pytest.mark.skipif(PLAIN_MOTO, reason="this is the run on plain moto")
def test_patched_behavior_fails_on_unpatched_moto(tmp_path):
    """Run the same tests against the published moto."""
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-m",
        "patched and not same_in_moto",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        str(Path(__file__).parent),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        command, env=environment | {"LOCAL_AWS_PLAIN_MOTO": "1"}, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) > 80, done.stdout
    honest = [case.get("name") for case in cases if case.find("failure") is None]
    assert honest == [], "these pass, or do not even start, on plain moto"
