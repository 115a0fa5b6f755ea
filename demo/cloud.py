"""The demo's access to the local cloud: API server, kubectl, controller, and the simulated AWS."""

import contextlib
import json
import os
import pathlib
import subprocess
import time

import boto3
import requests

from localcloud.controlplane import processes

GROUPS = "/apis/instancemgr.keikoproj.io/v1alpha1/instancegroups"
BINARY = pathlib.Path(os.environ["INSTANCE_MANAGER_BIN"])
# The simulated instances boot in seconds, so the controller's own waits are shortened too.
TIME_SCALE = "0.1"


class Failed(Exception):
    """The demo cannot continue; the message says why."""


def _session():
    """An HTTP session that ignores proxy settings of the environment: everything is on the loopback address."""
    session = requests.Session()
    session.trust_env = False
    return session


class Cloud:
    """Reads and writes with the permissions of the cluster admin."""

    def __init__(self):
        self.facts = json.loads(pathlib.Path(os.environ["LOCAL_CLOUD"]).read_text())
        kubeconfig = json.loads(pathlib.Path(self.facts["kubeconfig"]).read_text())
        self._session = _session()
        self._session.verify = kubeconfig["clusters"][0]["cluster"]["certificate-authority"]
        self._session.headers["Authorization"] = f"Bearer {self.facts['admin_token']}"

    def items(self, path):
        """Lists the objects of a collection; `path` may include a query."""
        answer = self._session.get(self.facts["apiserver"] + path, timeout=30)
        answer.raise_for_status()
        return answer.json()["items"]

    def kubectl(self, *arguments, text=None):
        """Runs kubectl; `text` is its input."""
        done = subprocess.run([*self.facts["kubectl"], *map(str, arguments)], input=text, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, text):
        """Applies YAML and prints the result for each object."""
        for line in self.kubectl("apply", "-f", "-", text=text).splitlines():
            print(f"  {line}", flush=True)

    def groups(self):
        """InstanceGroups by `namespace/name`."""
        return {f"{g['metadata']['namespace']}/{g['metadata']['name']}": g for g in self.items(GROUPS)}

    def nodes(self):
        """Nodes by name."""
        return {n["metadata"]["name"]: n for n in self.items("/api/v1/nodes")}

    def calls(self):
        """Calls to AWS by service and operation: `reads`, `writes` and `total`."""
        return _session().get(f"{self.facts['control']}/calls", timeout=10).json()

    def aws_snapshot(self):
        """Everything that exists in AWS, as text."""
        return _session().get(f"{self.facts['control']}/snapshot", timeout=30).text

    def make_node_role(self, name):
        """Creates the role of managed node groups, as an account admin does once."""
        env = self.facts["env"]
        session = boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], region_name=env["AWS_REGION"])
        iam = session.client("iam", endpoint_url=env["AWS_ENDPOINT_URL"])
        trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
        for policy in ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly", "AmazonEKS_CNI_Policy"):
            iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        print(f"  IAM role {name} created, for managed node groups")

    def created(self):
        """How many resources were created in AWS, by operation."""
        count = {}
        for line in (pathlib.Path(self.facts["state"]) / "aws-events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == "call" and event["operation"].startswith("Create") and not event.get("error"):
                count[event["operation"]] = count.get(event["operation"], 0) + 1
        return count

    def blocked_evictions(self):
        """How many evictions a PodDisruptionBudget blocked."""
        blocked = 0
        for line in pathlib.Path(self.facts["audit_log"]).read_text().splitlines():
            with contextlib.suppress(ValueError):  # the last line may be half written
                event = json.loads(line)
                evicts = event.get("objectRef", {}).get("subresource") == "eviction"
                blocked += evicts and event.get("responseStatus", {}).get("code") == 429
        return blocked


class Controller:
    """The controller, with the permissions of deploy/rbac.yaml; it stops when this process ends."""

    def __init__(self, cloud):
        address = f"127.0.0.1:{processes.free_port()}"
        self.url = f"http://{address}"
        self.log = pathlib.Path(cloud.facts["logs"]) / "controller.log"
        command = [BINARY, "--kubeconfig", cloud.facts["controller_kubeconfig"], "--metrics-addr", address, "--time-scale", TIME_SCALE]
        own = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        parent = os.getpid()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, env=own, stdout=log, stderr=log, start_new_session=True,
                                             preexec_fn=lambda: processes.die_with_parent(parent))

    def wait_ready(self, timeout=60):
        """Returns when the controller is the leader and its caches are synced."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(requests.ConnectionError):
                if _session().get(f"{self.url}/readyz", timeout=5).ok:
                    return
            time.sleep(0.1)
        raise Failed(f"the controller is not ready after {timeout} s; see {self.log}")

    def check(self):
        """Raises `Failed` when the controller has exited."""
        if self._process.poll() is not None:
            tail = "\n".join(self.log.read_text().splitlines()[-10:])
            raise Failed(f"the controller exited with {self._process.returncode}:\n{tail}")

    def stop(self):
        """Sends SIGTERM, as a Deployment would."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
