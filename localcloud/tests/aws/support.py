"""Helpers for the simulator's tests."""

import contextlib
import itertools
import json
import os
import time
from pathlib import Path

import pytest
import requests
from botocore.exceptions import ClientError

REPOSITORY = Path(__file__).resolve().parents[3]
TRUST = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
)
NUMBERS = itertools.count(1)
PLAIN_MOTO = bool(os.environ.get("LOCAL_AWS_PLAIN_MOTO"))
TIMEOUT = 1.0 if PLAIN_MOTO else 120.0


def wait_until(check, what, seconds=TIMEOUT):
    """Wait until `check` returns a truthy value, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = check()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def client_error(function, **parameters):
    """The error code and message of a call that must fail."""
    with pytest.raises(ClientError) as caught:
        function(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


class Control:
    """A client of the control endpoint."""

    def __init__(self, url):
        self.url = url

    def get(self, path):
        return self._checked(requests.get(f"{self.url}/{path}", timeout=60))

    def post(self, path, **fields):
        return self._checked(requests.post(f"{self.url}/{path}", json=fields, timeout=60))

    def delete(self, path, **fields):
        return self._checked(requests.delete(f"{self.url}/{path}", json=fields, timeout=60))

    @contextlib.contextmanager
    def paused(self):
        """A state that lasts for a moment lasts until the end of the block."""
        self.post("pause")
        try:
            yield
        finally:
            self.post("resume")

    @contextlib.contextmanager
    def delayed(self, **seconds):
        """AWS takes this long until the end of the block."""
        usual = self.post("delays")
        self.post("delays", **seconds)
        try:
            yield
        finally:
            self.post("delays", **{name: usual[name] for name in seconds})

    @staticmethod
    def _checked(answer):
        assert answer.status_code == 200, answer.text
        return answer.json()


class Groups:
    """Creates scaling groups and reads their state."""

    def __init__(self, simulator, aws, template):
        self.simulator, self.aws, self.template = simulator, aws, template
        self.made = []

    def parameters(self, name, size=0, **more):
        """Valid parameters of CreateAutoScalingGroup."""
        return {
            "AutoScalingGroupName": name,
            "MinSize": size,
            "MaxSize": max(size, 1),
            "VPCZoneIdentifier": ",".join(self.simulator.subnets),
            "LaunchTemplate": {"LaunchTemplateName": self.template, "Version": "1"},
            **more,
        }

    def make(self, size=0, wait=True, **more):
        """Create a group of that size. Waits until its instances are in service."""
        name = f"group-{next(NUMBERS)}"
        self.aws.autoscaling.create_auto_scaling_group(**self.parameters(name, size, **more))
        self.made.append(name)
        if wait:
            self.settle(name, size)
        return name

    def show(self, name):
        """The group as AWS returns it, or None."""
        found = self.aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return found[0] if found else None

    def states(self, name):
        """The lifecycle states of its instances."""
        return sorted(i["LifecycleState"] for i in self.show(name)["Instances"])

    def history(self, name):
        """The states that its instances have reached, in order: (id, state). A state may last shorter than a look takes."""
        return [(line["id"], line["state"]) for line in events(self.simulator.aws_log, object="instance", group=name)]

    def settle(self, name, size):
        """Wait until the group has exactly this number of instances, all in service. Returns their ids."""
        wait_until(lambda: self.states(name) == ["InService"] * size, f"{size} instances of {name} in service")
        return [i["InstanceId"] for i in self.show(name)["Instances"]]

    def activities(self, name):
        """Its activities, newest first."""
        return self.aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]


def events(path, **wanted):
    """The lines of the event log with these values."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]
