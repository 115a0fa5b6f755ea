"""Fixtures for the simulator's own tests: a simulator of its own per session, AWS clients, and a finished account.

Tests marked `patched` check behavior that plain moto lacks or gets wrong: with LOCAL_AWS_PLAIN_MOTO=1 they run
against plain moto and must fail there, which test_unpatched_moto.py checks for all of them at once.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from localcloud.tests.aws.nodes.site import Site
from localcloud.tests.aws.support import NUMBERS, PLAIN_MOTO, REPOSITORY, TRUST, Control, Groups, wait_until


def pytest_configure(config):
    config.addinivalue_line("markers", "patched: fails on unpatched moto")
    config.addinivalue_line("markers", "same_in_moto: a test in a file of patched behavior that passes on unpatched moto too")


@pytest.fixture(scope="session")
def simulator(tmp_path_factory):
    """A simulator without nodes; its facts as aws.json has them."""
    state = tmp_path_factory.mktemp("aws")
    command = [
        sys.executable,
        "-m",
        "localcloud.aws.server",
        "--state",
        str(state),
        "--delays",
        "short,propagation=0.3,pending=0.2,terminate=0.3,relaunch=0.3,nodegroup=0.2,node_join_timeout=3,cordoned=0.1,profile=0.5,profile_gone=0.3",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            wait_until(lambda: (state / "aws.json").exists() or process.poll() is not None, "the simulator's start", 60)
            yield SimpleNamespace(**json.loads((state / "aws.json").read_text()))
        finally:
            process.kill()


@pytest.fixture(scope="session")
def aws(simulator):
    """A client per service, without retries, so that a test sees every answer."""
    config = Config(retries={"max_attempts": 0}, read_timeout=10)
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    place = {"endpoint_url": simulator.aws_endpoint, "region_name": simulator.region}
    names = ("autoscaling", "ec2", "iam", "eks", "ssm")
    return SimpleNamespace(**{name: boto3.client(name, **place, **keys, config=config) for name in names})


@pytest.fixture
def name():
    """A name that no other test has."""
    return f"thing-{next(NUMBERS)}"


@pytest.fixture
def control(simulator):
    """The control endpoint; its faults are gone after the test."""
    endpoint = Control(simulator.control)
    yield endpoint
    if not PLAIN_MOTO:
        endpoint.post("release")
        endpoint.delete("faults")


@pytest.fixture(scope="session")
def profile(simulator, aws):
    """The ARN of an instance profile that EC2 knows by now."""
    aws.iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=TRUST)
    arn = aws.iam.create_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]["Arn"]
    aws.iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName="nodes")
    time.sleep(0.5)
    return arn


@pytest.fixture
def data(simulator, profile):
    """Launch template data that a group can launch from."""
    return {
        "ImageId": simulator.amis["amazonlinux2"][0],
        "InstanceType": "m5.large",
        "SecurityGroupIds": [simulator.security_group],
        "IamInstanceProfile": {"Arn": profile},
        "UserData": base64.b64encode(b"#!/bin/bash\n").decode(),
    }


@pytest.fixture
def template(aws, data, name):
    """A launch template with one version."""
    aws.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    yield name
    with contextlib.suppress(ClientError):
        aws.ec2.delete_launch_template(LaunchTemplateName=name)


@pytest.fixture
def groups(simulator, aws, template):
    """Groups that are gone after the test."""
    made = Groups(simulator, aws, template)
    yield made
    for name in made.made:
        with contextlib.suppress(ClientError):
            aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


@pytest.fixture(scope="module")
def site(cloud):
    """Makes nodes in the shared cloud; its groups are gone after the module."""
    made = Site(cloud)
    yield made
    for name in made.made:
        made.asg.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


@pytest.fixture(scope="module")
def joined(site):
    """A role that may join, and its profile."""
    role, profile = site.role()
    site.allow(role)
    return profile
