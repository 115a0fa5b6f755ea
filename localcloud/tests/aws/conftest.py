"""Fixtures for the simulator's tests: one simulator per session, AWS clients, and common resources.

Tests marked `patched` check behavior that unpatched moto lacks or gets wrong. With LOCAL_AWS_PLAIN_MOTO=1 they run
against unpatched moto and must fail. test_unpatched_moto.py checks this for all of them.
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
    """A simulator without nodes. Its attributes are the entries of aws.json."""
    with start_simulator(tmp_path_factory.mktemp("aws")) as facts:
        yield facts


@pytest.fixture(scope="session")
def other_region(simulator, tmp_path_factory):
    """A simulator of another region of the same account."""
    flags = ("--region", "eu-west-1", "--iam", simulator.aws_endpoint)
    with start_simulator(tmp_path_factory.mktemp("aws"), *flags) as facts:
        yield facts


@contextlib.contextmanager
def start_simulator(state, *flags):
    """Start a simulator, and end it afterwards."""
    command = [
        sys.executable,
        "-m",
        "localcloud.aws.server",
        "--state",
        str(state),
        "--delays",
        "short,propagation=0.3,pending=0.2,terminate=0.3,relaunch=0.3,nodegroup=0.2,node_join_timeout=300,cordoned=0.1,profile=0.5,profile_gone=0.3",
        *flags,
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            wait_until(lambda: (state / "aws.json").exists() or process.poll() is not None, "the simulator's start", 600)
            yield SimpleNamespace(**json.loads((state / "aws.json").read_text()))
        finally:
            process.kill()


@pytest.fixture(scope="session")
def aws(simulator):
    """A client per service, without retries, so that a test gets every response."""
    return aws_clients(simulator)


@pytest.fixture(scope="session")
def other_aws(other_region):
    """The same clients for the other region."""
    return aws_clients(other_region)


def aws_clients(simulator):
    """A client per service of one simulator."""
    config = Config(retries={"max_attempts": 0}, read_timeout=60)
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
    """The control endpoint. Its faults are removed after the test."""
    endpoint = Control(simulator.control)
    yield endpoint
    if not PLAIN_MOTO:
        endpoint.post("release")
        endpoint.delete("faults")


@pytest.fixture(scope="session")
def profile(simulator, aws):
    """The ARN of an instance profile that has propagated to EC2."""
    aws.iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=TRUST)
    arn = aws.iam.create_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]["Arn"]
    aws.iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName="nodes")
    time.sleep(0.5)
    return arn


@pytest.fixture
def data(simulator, profile):
    """Valid launch template data."""
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
    """Creates scaling groups, and deletes them after the test."""
    made = Groups(simulator, aws, template)
    yield made
    for name in made.made:
        with contextlib.suppress(ClientError):
            aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


@pytest.fixture(scope="module")
def site(cloud):
    """Launches nodes in the shared cloud, and deletes their groups after the module."""
    made = Site(cloud)
    yield made
    for name in made.made:
        made.asg.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


@pytest.fixture(scope="module")
def joined(site):
    """The instance profile of a role that aws-auth authorizes."""
    role, profile = site.role()
    site.add_aws_auth_entry(role)
    return profile
