"""deploy/alerts.yaml, tested by Prometheus' own promtool. An alert that cannot fire is worse than none: people rely on it."""

import collections
import json
import pathlib
import re
import subprocess

import pytest
import yaml

from localcloud.controlplane import tools

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Labels that Prometheus adds to each series, the first one where it collects many clusters.
ADDED_LABELS = {"cluster", "instance", "job"}


@pytest.fixture(scope="module")
def rules():
    """The rules by the alert's name."""
    (group,) = yaml.safe_load((REPOSITORY / "deploy" / "alerts.yaml").read_text())["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.fixture(scope="module")
def unit_tests():
    """The unit tests as they are written."""
    return yaml.safe_load(pathlib.Path(__file__).with_name("rules_test.yaml").read_text())


@pytest.fixture(scope="module")
def promtool():
    """Runs promtool; fails with its words."""
    program = tools.promtool()

    def run(*arguments, cwd):
        done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def checks(unit_tests):
    """Each check of an alert."""
    return [check for test in unit_tests["tests"] for check in test["alert_rule_test"]]


def filled_in(text, labels):
    """A summary with its labels, as Prometheus writes it."""
    text = re.sub(r"\{\{ with \$labels\.(\w+) }}(.*?)\{\{ \. }}\{\{ end }}", lambda m: m[2] + labels[m[1]] if m[1] in labels else "", text)
    return re.sub(r"\{\{ \$labels\.(\w+) }}", lambda m: labels[m[1]], text)


def test_alerts_fire_when_they_should_and_only_then(rules, unit_tests, promtool, tmp_path):
    """A threshold that cannot be reached, or a clock that a restart of the pod sets back, shows here and not in the night."""
    for check in checks(unit_tests):
        rule = rules[check["alertname"]]
        for expected in check["exp_alerts"]:
            labels = expected["exp_labels"]
            expected["exp_annotations"] = {key: filled_in(text, labels) for key, text in rule["annotations"].items()}
            expected["exp_labels"] = labels | rule["labels"]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "instance-manager", "rules": list(rules.values())}]}))
    (tmp_path / "test.yaml").write_text(json.dumps(unit_tests))
    promtool("check", "rules", "--lint-fatal", "rules.yaml", cwd=tmp_path)
    promtool("test", "rules", "test.yaml", cwd=tmp_path)


def test_each_alert_is_seen_to_fire_and_to_be_silent(rules, unit_tests):
    """An alert without both tests could be always on or always off."""
    seen = collections.defaultdict(set)
    for check in checks(unit_tests):
        seen[check["alertname"]].add(bool(check["exp_alerts"]))
    assert seen == {name: {True, False} for name in rules}


def test_the_tests_use_the_series_that_the_controller_serves(unit_tests):
    """A test of a series that does not exist proves nothing. A unit test of the controller writes the list."""
    served = set((REPOSITORY / "tests" / "golden" / "metrics.txt").read_text().splitlines())
    for series in {entry["series"] for test in unit_tests["tests"] for entry in test["input_series"]} - {'up{job="other"}'}:
        name, labels = re.fullmatch(r"(\w+)\{(.*)}", series).groups()
        own = sorted(set(re.findall(r"(\w+)=", labels)) - ADDED_LABELS)
        assert f"{name}{{{','.join(own)}}}" in served, series


def test_the_alert_about_locked_groups_names_rollouts(rules):
    """A rollout that is paused or frozen locks its groups as well. The person on call would search for an annotation that no object has."""
    runbook = (REPOSITORY / "docs" / "alerts.md").read_text().split("### InstanceManagerGroupLocked\n")[1].split("\n### ")[0]
    assert "rollout" in rules["InstanceManagerGroupLocked"]["annotations"]["summary"]
    assert "lock-upgrades" in runbook and "(rollouts.md#orders)" in runbook


def test_each_alert_has_a_runbook(rules):
    """The person on call clicks on the link."""
    headings = {line[4:].strip("`").lower() for line in (REPOSITORY / "docs" / "alerts.md").read_text().splitlines() if line.startswith("### ")}
    for name, rule in rules.items():
        assert rule["annotations"]["runbook_url"] == f"RUNBOOKS/alerts.html#{name.lower()}"
        assert name.lower() in headings
