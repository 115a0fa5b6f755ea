"""The defects that are put back on purpose fit the present controller, and the fixed seeds have what they need."""

import re
import subprocess

import pytest

from campaign import __main__ as main
from campaign import oracles, scenario
from campaign.controller import REPOSITORY

PATCHES = sorted((REPOSITORY / "campaign" / "defects").glob("*.patch"))
ORACLES = {oracle.__name__ for oracle in oracles.ORACLES} | {"end_state"}


def header(patch, key):
    """The value of a line at the top of a patch, or None."""
    found = re.search(rf"^{key}: (.+)$", patch.read_text().partition("\ndiff ")[0], re.MULTILINE)
    return found and found[1]


@pytest.mark.parametrize("patch", PATCHES, ids=[patch.stem for patch in PATCHES])
def test_a_defect_can_be_put_back(patch):
    """A patch that no longer applies proves nothing of the campaign as it is now."""
    checked = subprocess.run(["git", "apply", "--check", str(patch)], cwd=REPOSITORY, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert header(patch, "Oracle") in ORACLES
    assert f"`{patch.stem}`" in (REPOSITORY / "docs" / "reliability.md").read_text()


def test_there_is_a_defect_for_each_kind_of_oracle():
    """The end after a perturbation, the end after a transition, and what must hold at every moment."""
    kinds = {(header(patch, "Oracle") == "end_state", header(patch, "Perturbation") is not None) for patch in PATCHES}
    assert {(True, True), (True, False), (False, False)} <= kinds


def test_the_fixed_seeds_have_the_perturbations_that_show_the_defects():
    """Another set of perturbations changes what the seeds draw. A defect that only one of them shows would not be found."""
    events = [(one, event) for _, one, _ in main.fixed_seeds() for event in one["events"] if event["kind"] == "perturbation"]

    def is_of_own_role(one, event):
        found = [group["spec"] for group in scenario.specs(one, event["arguments"].get("group"))]
        return found and all(spec["provisioner"] == "eks" and "roleName" not in spec["eks"]["configuration"] for spec in found)

    for needed in filter(None, (header(patch, "Perturbation") for patch in PATCHES)):
        assert any(event["name"] == needed and is_of_own_role(one, event) for one, event in events), needed
