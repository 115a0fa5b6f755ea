"""What the end-to-end tests use: the controller as a process, tenants with their namespaces, and their groups.

Tests check what the controller did in the simulator's log and the API server's audit log (see logs.py), not in its own log.
"""

import base64
import bisect
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid

import boto3
import pytest
import requests
import yaml
from botocore.config import Config
from botocore.exceptions import ClientError

from localcloud.tests import support
from e2e import logs
from e2e.changes import Changes
from localcloud.controlplane import processes

GROUPS = "/apis/instancemgr.keikoproj.io/v1alpha1"
GENERATED_NAMESPACE = re.compile("t[0-9a-f]{8}")
TENANT_OBJECTS = {GROUPS: ("instancegroups",), "/apis/apps/v1": ("deployments", "daemonsets"), "/apis/policy/v1": ("poddisruptionbudgets",), "/api/v1": ("pods",)}
PREFIX = "instancemgr.keikoproj.io/"
FIELD_MANAGER = "instance-manager.keikoproj.io"
FINALIZER = "finalizer.instancegroups.keikoproj.io"
OWNERSHIP = "instancegroups.keikoproj.io/"
REPEATED_TAINTS = [{"key": "twice", "value": value, "effect": "NoSchedule"} for value in ("1", "2")]
"""Taints with which no kubelet starts: the API server accepts them, and the controller does not."""
NODES = "/api/v1/nodes"
CONFIG = "/api/v1/namespaces/instance-manager/configmaps/instance-manager"
CONFIG_EVENTS = "/apis/events.k8s.io/v1/namespaces/instance-manager/events"
AWS_AUTH = "/api/v1/namespaces/kube-system/configmaps/aws-auth"
BASIC = support.REPOSITORY / "boundaries" / "basic.yaml"
TIME_SCALE = "0.2"
SHARED_FLAGS = ("--resync-period", "10s")
"""Flags of the controller that scenarios share: what others change in AWS is seen soon."""
IPV6_BLOCK = "2600:1f14:abc:de00::/64"
RESTARTS = ("Lease lost, exiting", "caches cannot follow the API server, exiting")
"""The last words of a controller that a busy machine kept from its Lease, or from its watches, for too long."""
WAIT = 300
"""How long a test waits for something that should come, in seconds. Nothing is proved by being faster."""


_MAKING_CLIENTS = threading.Lock()


# --- the cloud ------------------------------------------------------------------------------------


def ipv6_subnet(cloud):
    """The subnet of a cloud that assigns IPv6 addresses to new instances, made if there is none."""
    ec2, block = cloud.boto("ec2"), "10.0.192.0/20"
    with contextlib.suppress(ClientError):
        made = ec2.create_subnet(VpcId=cloud["vpc"], CidrBlock=block, Ipv6CidrBlock=IPV6_BLOCK, AvailabilityZone=f"{cloud['region']}a")
        ec2.modify_subnet_attribute(SubnetId=made["Subnet"]["SubnetId"], AssignIpv6AddressOnCreation={"Value": True})
    filters = [{"Name": "vpc-id", "Values": [cloud["vpc"]]}, {"Name": "cidr-block", "Values": [block]}]
    return ec2.describe_subnets(Filters=filters)["Subnets"][0]["SubnetId"]


class Cloud(support.Cloud):
    """A running local cloud with AWS, and what tests ask of it."""

    control_plane = None
    """Set for a cloud of a test's own."""

    @classmethod
    def shared(cls):
        """The cloud that LOCAL_CLOUD names."""
        return cls(json.loads(pathlib.Path(os.environ["LOCAL_CLOUD"]).read_text()))

    @classmethod
    def of(cls, cloud):
        """The same cloud with what is asked of it here."""
        return cls(cloud._description, cloud.process)

    @classmethod
    def on_control_plane(cls, control_plane, kubernetes, aws):
        """The cloud of a control plane and a simulated AWS, given the description of both."""
        nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        used_before = len(logs.read(kubernetes["audit_log"]))
        cloud = cls({**kubernetes._description, **aws, "env": {**aws["env"], **nowhere}, "audited_before": used_before}, kubernetes.process)
        cloud.control_plane = control_plane
        return cloud

    @functools.cached_property
    def asked(self):
        """What was asked since a test emptied it: paths of the API server, and names for the rest."""
        return set()

    def api(self, method, path, *args, **more):
        """See support.Cloud."""
        self.asked.add(path)
        return super().api(method, path, *args, **more)

    def boto(self, service, key="person"):
        """A client of one AWS service, with the access key of a user unless another one is given."""
        self.asked.add(service)
        # Clients are kept, because making one reads the whole model of its service. boto3 makes them in one thread only.
        with _MAKING_CLIENTS:
            return _aws_client(service, self["aws_endpoint"], self["region"], key)

    def control(self, method, name, /, **body):
        """Asks the simulator's control endpoint, see localcloud/aws/control.py."""
        self.asked.add(f"control/{name}")
        answer = support.session().request(method, f"{self['control']}/{name}", json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json()

    @contextlib.contextmanager
    def fault(self, **fields):
        """A fault of the controller's calls, gone at the end (with all other faults: for private clouds)."""
        self.control("POST", "faults", **{"caller": "controller", **fields})
        try:
            yield
        finally:
            self.control("DELETE", "faults")

    def snapshot(self):
        """Everything in the simulated account."""
        return self.control("GET", "snapshot")

    def aws_events(self, after=0):
        """The simulator's log from the line after `after` on, in order; see localcloud/aws/event_log.py."""
        self.asked.add("aws_events")
        lines = logs.read(self["aws_log"])
        return lines[bisect.bisect_right(lines, after, key=lambda line: line["seq"]) :]

    def log_position(self):
        """The number of the last line in the simulator's log, for `aws_events(after=...)`."""
        lines = logs.read(self["aws_log"])
        return lines[-1]["seq"] if lines else 0

    def check_requests(self):
        """Fails if the controller sent a request that breaks the model of an AWS service."""
        broken = [line for line in self.aws_events() if line["kind"] == "invalid" and line["caller"]["key"] == "controller"]
        described = [f"{line['service']}:{line['operation']}: {'; '.join(line['violations'])}" for line in broken]
        assert not described, f"the controller sent {len(described)} invalid requests:\n" + "\n".join(sorted(set(described)))

    def audit(self, after=0):
        """Every write that the API server has answered, in order, without the first `after` of them."""
        self.asked.add("audit")
        return logs.read(self["audit_log"])[self._description.get("audited_before", 0) + after :]

    def eventually(self, check, timeout=WAIT, what="the expected state", names=lambda: [""], failed=str):
        """Waits until `check()` gives something true, and returns that; failing, shows what `failed()` gives.

        It looks again when a log of the cloud has a new line about what `check` asked for, with one of the texts that
        `names()` gives. Looks in short intervals would cost more than the controller under test.
        """
        start = time.monotonic()
        while True:
            self.asked.clear()
            changes = Changes(self)
            if answer := check():
                return answer
            waited = time.monotonic() - start
            if waited > timeout:
                pytest.fail(f"{what} did not come within {timeout} s; last: {answer!r}\n{failed()}", pytrace=True)
            changes.wait(support.poll_interval(waited), self.asked.copy(), names())

    def edit_config_map(self, change, path=CONFIG):
        """Gives the ConfigMap's `data` to `change`, which changes it in place, and writes it. It starts again when another client has written meanwhile."""
        while True:
            found = self.get(path)
            change(found["data"])
            answer = self.api("PUT", path, found)
            if answer.status_code != 409:
                assert answer.ok, answer.text
                return answer.json()

    def server_side_apply(self, document):
        """Does to a namespaced object what `kubectl apply --server-side --force-conflicts` does, without its start."""
        version, metadata = document["apiVersion"], document["metadata"]
        collection = f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{metadata['namespace']}/{document['kind'].lower()}s"
        query = "fieldManager=kubectl&fieldValidation=Strict&force=true"
        answer = self.api("PATCH", f"{collection}/{metadata['name']}?{query}", document, content_type="application/apply-patch+yaml")
        assert answer.ok, answer.text

    def wait_permission(self, user, allowed, **attributes):
        """Waits until the API server judges by a Role that has changed: it learns of a change a moment later."""
        spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        support.eventually(lambda: self.create(path, review)["status"]["allowed"] == allowed, WAIT, f"{allowed} for {attributes}")

    def config_events(self, text):
        """Events on the admin's ConfigMap whose message holds `text`."""
        found = self.get(CONFIG_EVENTS)["items"]
        return [e for e in found if e["regarding"]["kind"] == "ConfigMap" and text in (e.get("note") or "")]

    def set_status(self, group_path, status):
        """Merges `status` into that of an InstanceGroup, in the name of the controller: it pauses while there is another writer."""
        self.patch(f"{group_path}/status?fieldManager={FIELD_MANAGER}", {"status": status})

    def install(self, config=BASIC):
        """Applies the boundaries that tests begin with: a file, or text."""
        text = config if isinstance(config, str) else config.read_text()
        for document in filter(None, yaml.safe_load_all(text)):
            self.server_side_apply(document)

    def make_role(self, name, policies=("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly", "AmazonEKS_CNI_Policy"), path="/"):
        """A person's role and instance profile of the same name, fit for nodes; returns the role's ARN."""
        iam = self.boto("iam")
        trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        arn = iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        for policy in policies:
            iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return arn

    def make_controller_role(self, path="/"):
        """The controller's role with the policies of deploy/iam. Its calls are those of a session of this role from now on."""
        iam = self.boto("iam")
        trust = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        arn = iam.create_role(RoleName="instance-manager", Path=path, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        for file in sorted((support.REPOSITORY / "deploy" / "iam").glob("*.json")):
            text = file.read_text().replace("REGION", self["region"]).replace("ACCOUNT", self["account"]).replace("CLUSTER", self["cluster_name"])
            iam.put_role_policy(RoleName="instance-manager", PolicyName=file.stem, PolicyDocument=text)
        return arn

    def edit_map_roles(self, change):
        """A person's edit of mapRoles in kube-system/aws-auth, from text to text; an empty list is given as no text."""
        if self.get(AWS_AUTH) is None:
            # Another client may be creating it now.
            self.api("POST", AWS_AUTH.rpartition("/")[0], {"metadata": {"name": "aws-auth"}, "data": {"mapRoles": ""}})

        def edit(data):
            before = data.get("mapRoles", "")
            data["mapRoles"] = change("" if before.strip() == "[]" else before)

        return self.edit_config_map(edit, AWS_AUTH)

    def map_roles(self):
        """The text of mapRoles in kube-system/aws-auth, empty without it."""
        found = self.get(AWS_AUTH)
        return (found or {}).get("data", {}).get("mapRoles", "")


@functools.cache
def _aws_client(service, endpoint, region, key):
    keys = {"aws_access_key_id": key, "aws_secret_access_key": "local"}
    return boto3.client(service, endpoint_url=endpoint, region_name=region, **keys, config=Config(retries={"max_attempts": 2}))


# --- the controller -------------------------------------------------------------------------------


class Controller:
    """The controller as a process of its own; it ends with this one.

    One that `is_kept` is started again when it ends with one of `RESTARTS`, as its Deployment would.
    """

    def __init__(self, cloud, args=(), kubeconfig=None, env=None, log=None, described=None, is_kept=False):
        self.cloud = cloud
        self.args = list(args)
        self.kubeconfig = kubeconfig or cloud["controller_kubeconfig"]
        self.env = env or {}
        self.is_kept = is_kept
        self.process = None
        self._stopped = None
        self._lock = threading.Lock()
        self.port = processes.free_port() if described is None else described["port"]
        self.log = pathlib.Path(described["log"]) if described else pathlib.Path(log or tempfile.mkstemp(prefix="controller-", suffix=".log")[1])

    def describe(self):
        """What another process needs in order to ask this one: see `described`."""
        return {"port": self.port, "log": str(self.log)}

    @property
    def command(self):
        """The program and its flags."""
        program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
        flags = ["--kubeconfig", self.kubeconfig, "--metrics-addr", f"127.0.0.1:{self.port}", "-time-scale", TIME_SCALE]
        return [str(program), *map(str, flags), *map(str, self.args)]

    def start(self, wait=True):
        """Starts it and waits until it is ready, unless `wait` is false; returns itself."""
        self._spawn()
        threading.Thread(target=self._keep, args=(self.process,), daemon=True).start()
        if wait:
            support.eventually(lambda: self.ready() or self.process.poll() is not None, WAIT, f"the controller ({self.log})")
            assert self.process.poll() is None, self.tail()
        return self

    def _spawn(self):
        parent = os.getpid()
        environment = {**self.cloud.environment, "AWS_ACCESS_KEY_ID": "controller", **self.env}
        environment.pop("KUBECONFIG", None)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=log, preexec_fn=lambda: processes.die_with_parent(parent)
            )

    def _keep(self, process):
        # The kernel ends a process with the thread that started it, which is why this one stays.
        while process.wait() == 1 and any(words in self.tail(count=5) for words in RESTARTS):
            with self._lock:
                if not self.is_kept or process is self._stopped or process is not self.process:
                    return
                print(f"the controller ended with {self.tail(count=1)!r} and is started again", flush=True)
                self._spawn()
                process = self.process

    def ready(self):
        """Whether /readyz says that it leads. A busy machine may keep it from an answer."""
        try:
            return support.session().get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).text == "ok"
        except (requests.ConnectionError, requests.Timeout):
            return False

    def metrics(self):
        """The text of /metrics. A controller that is started again answers after a while."""
        self.cloud.asked.add("metrics")

        def text():
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                return support.session().get(f"http://127.0.0.1:{self.port}/metrics", timeout=60).text

        return support.eventually(text, WAIT, "the metrics of the controller")

    def wait_config_loaded(self, patience=WAIT):
        """Waits until the present ConfigMap is active, so that a group created next is merged with it.

        The metric names a revision shortly before it is active, and the event on the ConfigMap comes last. A controller
        that is not ready, or may not read the ConfigMap, is not waited for.
        """
        deadline = time.monotonic() + patience
        while self.ready() and time.monotonic() < deadline:
            changes = Changes(self.cloud)
            revision = revision_of(self.cloud.get(CONFIG)["data"])
            with contextlib.suppress(requests.ConnectionError):
                if f'hash="{revision}"' in self.metrics() and self.cloud.config_events(revision):
                    return
            changes.wait(0.02, {CONFIG_EVENTS}, ["/namespaces/instance-manager/events"])
        assert not self.ready(), f"the ConfigMap did not become active within {patience} s"

    def stop(self):
        """Asks it to end, and waits; returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self):
        """Ends it at once, as a crash would."""
        return self._end(signal.SIGKILL)

    def _end(self, number):
        with self._lock:
            self._stopped = process = self.process
        if process is None or process.poll() is not None:
            return None
        process.send_signal(number)
        return process.wait(40)

    def tail(self, text="", count=25):
        """The last lines of its log, those that hold `text`."""
        found = [line for line in self.log.read_text(errors="replace").splitlines() if text in line]
        return "\n".join(found[-count:])


# --- tenants --------------------------------------------------------------------------------------


def end_namespace(cloud, namespace):
    """Deletes the objects that tests create in a tenant's namespace, or a namespace whose name a later test may use.

    The deletion of a namespace is two hundred requests to the API server, which lists and deletes each kind of object.
    Returns whether the namespace stays.
    """
    place = f"/api/v1/namespaces/{namespace}"
    if not GENERATED_NAMESPACE.fullmatch(namespace):
        cloud.api("DELETE", place, {"propagationPolicy": "Background"})
        return False
    for group_version, kinds in TENANT_OBJECTS.items():
        for kind in kinds:
            cloud.api("DELETE", f"{group_version}/namespaces/{namespace}/{kind}", {"propagationPolicy": "Background"})
    cloud.api("PATCH", place, {"metadata": {"labels": None, "annotations": None}}, content_type="application/merge-patch+json")
    return True


class Tenant:
    """A namespace of its own, whose groups have a conditional of their own in the shared ConfigMap."""

    def __init__(self, cloud, controller, namespace=None, annotations=None, labels=None):
        self.cloud, self.controller = cloud, controller
        self.unique = namespace or f"t{uuid.uuid4().hex[:8]}"  # GENERATED_NAMESPACE
        self.namespace = self.unique
        metadata = {"name": self.namespace, "annotations": annotations or {}, "labels": labels or {}}
        self._has_conditional = False
        if namespace:
            # An earlier test may have used the name, and its namespace ends later than the test.
            place = f"/api/v1/namespaces/{namespace}"
            cloud.eventually(lambda: cloud.api("GET", place).status_code == 404, what=f"the end of an earlier namespace {namespace}")
        cloud.create("/api/v1/namespaces", {"metadata": metadata})

    def set_defaults(self, annotations=None, spec=None, eks=None, **configuration):
        """What the admin's ConfigMap says for this tenant's groups from now on: spec.eks.configuration, and the rest."""
        merged = {"spec": {**(spec or {}), "eks": {**(eks or {}), "configuration": configuration}}}
        if annotations:
            merged["metadata"] = {"annotations": annotations}
        self.set_conditional_defaults(merged)

    def set_conditional_defaults(self, defaults):
        """Writes the conditional of this tenant's groups into the ConfigMap; None removes it."""
        self._write_conditional(defaults)
        if self.controller is not None:
            self.controller.wait_config_loaded()

    def _write_conditional(self, defaults):
        selector = f"e2e = {self.unique}"
        self._has_conditional = defaults is not None

        def change(data):
            kept = [s for s in yaml.load(data.get("conditionals") or "[]", yaml.CSafeLoader) or [] if s["annotationSelector"] != selector]
            if defaults is not None:
                kept.append({"annotationSelector": selector, "defaults": defaults})
            data["conditionals"] = yaml.dump(kept, Dumper=yaml.CSafeDumper, sort_keys=False)

        self.cloud.edit_config_map(change)

    def apply(self, manifest):
        """Applies objects (a dict, or YAML text) in this namespace; returns the Group when it is one."""
        documents = [manifest] if isinstance(manifest, dict) else [d for d in yaml.safe_load_all(manifest) if d]
        for document in documents:
            document.setdefault("metadata", {})["namespace"] = self.namespace
            self.cloud.server_side_apply(document)
        found = [Group(self, d["metadata"]["name"]) for d in documents if d["kind"] == "InstanceGroup"]
        return found[0] if len(found) == 1 else found or None

    def manifest(self, name, spec=None, annotations=None, eks=None, **configuration):
        """A short InstanceGroup: `configuration` is spec.eks.configuration, `eks` the other fields of spec.eks."""
        body = {"eks": {**(eks or {}), **({"configuration": configuration} if configuration else {})}, **(spec or {})}
        metadata = {"name": name, "annotations": {"e2e": self.unique, **(annotations or {})}}
        return {"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "metadata": metadata, "spec": body}

    def group(self, name="web", spec=None, annotations=None, size=None, **configuration):
        """Creates a short InstanceGroup; `size` is (minSize, maxSize)."""
        eks = {"minSize": size[0], "maxSize": size[1]} if size else {}
        return self.apply(self.manifest(name, spec, annotations, eks, **configuration))

    def deployment(self, name, replicas, selector=None, budget=None, tolerations=None, annotations=None, **pod):
        """A Deployment of pods that land on nodes with the labels `selector`; `budget` is the spec of a PodDisruptionBudget."""
        labels = {"app": name}
        container = {"name": "main", "image": "example.com/app"}
        template = {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": {"containers": [container], "nodeSelector": selector or {}, "tolerations": tolerations or [], "terminationGracePeriodSeconds": 1, **pod}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
        if budget is not None:
            spec = {"selector": {"matchLabels": labels}, **budget}
            self.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})

    def pods(self):
        """The pods of this namespace."""
        return self.cloud.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]

    def wait_pods_running(self, count, app=None):
        """Waits until so many pods of this namespace, or of one Deployment in it, run."""
        def is_running(pod):
            is_meant = app is None or pod["metadata"].get("labels", {}).get("app") == app
            return is_meant and pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")

        def check():
            return sum(map(is_running, self.pods())) == count
        self.cloud.eventually(check, what=f"{count} running pods in {self.namespace}", names=lambda: [self.namespace])

    def aws_events(self, after=0):
        """What the simulator's log says about this tenant's groups."""
        return [e for e in self.cloud.aws_events(after) if f"-{self.namespace}-" in json.dumps(e)]

    def end(self):
        """Deletes the objects of the tests, and the conditional, which later tests would see; does not wait."""
        end_namespace(self.cloud, self.namespace)
        if self._has_conditional:
            self._write_conditional(None)


class Group:
    """An InstanceGroup and its resources in AWS and Kubernetes."""

    def __init__(self, tenant, name):
        self.tenant, self.cloud, self.name = tenant, tenant.cloud, name
        self.path = f"{GROUPS}/namespaces/{tenant.namespace}/instancegroups/{name}"
        self.key = f"{tenant.namespace}/{name}"
        self.scaling_group = f"{self.cloud['cluster_name']}-{tenant.namespace}-{name}"

    # what it is

    def get(self):
        """The object, or None."""
        return self.cloud.get(self.path)

    def status(self):
        """Its status, empty when there is none."""
        return (self.get() or {}).get("status", {})

    def state(self):
        """`.status.currentState`."""
        return self.status().get("currentState")

    def condition(self, kind):
        """The condition of that type, or None."""
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), None)

    def has_condition(self, kind, status="True", reason=None):
        """Whether the condition has that status (and reason); gives the condition."""
        found = self.condition(kind)
        fits = found and found["status"] == status and (reason is None or found.get("reason") == reason)
        return found if fits else None

    def events(self):
        """The events on it, oldest first."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.tenant.namespace}/events"
        found = self.cloud.get(f"{path}?fieldSelector=regarding.name={self.name}")["items"]
        return sorted(found, key=lambda e: e["metadata"]["creationTimestamp"])

    def _event(self, reason, text=""):
        """The last event with that reason whose message holds `text`, or None. Tests wait: an event follows its condition."""
        found = [e for e in self.events() if e["reason"] == reason and text in (e.get("note") or "")]
        return found[-1] if found else None

    def asg(self):
        """Its scaling group as AWS shows it, or None."""
        found = self.cloud.boto("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[self.scaling_group])
        return next(iter(found["AutoScalingGroups"]), None)

    def instances(self, state="InService"):
        """Ids of its instances in that state (None: in any)."""
        found = self.cloud.control("POST", "group", name=self.scaling_group)
        return [i["InstanceId"] for i in found if state in (None, i["LifecycleState"])]

    def nodes(self):
        """Its Node objects, whichever labels they have: found by the ids of its instances."""
        ids = set(self.instances(None))
        return [n for n in self.cloud.get(NODES)["items"] if n["spec"].get("providerID", "").rsplit("/", 1)[-1] in ids]

    def ready_nodes(self):
        """Those that are Ready and not cordoned."""
        return [n for n in self.nodes() if node_ready(n) and not n["spec"].get("unschedulable")]

    def template_versions(self):
        """The versions of its launch template, oldest first, as AWS shows them."""
        name = self.status()["activeLaunchTemplateName"]
        found = self.cloud.boto("ec2").describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
        return sorted(found, key=lambda v: v["VersionNumber"])

    def pinned(self):
        """The version of its launch template that its scaling group is pinned to, as text."""
        asg = self.asg()
        mixed = asg.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
        return (mixed or asg["LaunchTemplate"])["Version"]

    def user_data(self):
        """The user data of the newest template version, decoded."""
        return base64.b64decode(self.template_versions()[-1]["LaunchTemplateData"]["UserData"]).decode()

    # what changes it

    def patch(self, body):
        """Merges `body` into the object."""
        return self.cloud.patch(self.path, body)

    def patch_spec(self, eks=None, **configuration):
        """Changes spec.eks (`eks`) and spec.eks.configuration; None removes a field."""
        changes = {**(eks or {}), **({"configuration": configuration} if configuration else {})}
        return self.patch({"spec": {"eks": changes}})

    def annotate(self, **annotations):
        """Sets annotations with our prefix; underscores stand for dashes, None removes."""
        body = {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
        return self.patch({"metadata": {"annotations": body}})

    def delete(self):
        """Asks for its deletion."""
        answer = self.cloud.api("DELETE", self.path)
        assert answer.ok, answer.text

    # waiting

    def wait(self, predicate, timeout=WAIT, what="the expected state"):
        """Waits until `predicate(self)` gives something true, and returns that; failing, shows what there is."""
        return self.cloud.eventually(lambda: predicate(self), timeout, f"{what} of {self.key}", self._names, self.diagnostics)

    def _names(self):
        """Texts of which a log's line about this group holds one. In a cloud of the test's own, each line may be about it."""
        if self.cloud.control_plane is not None:
            return [""]
        if NODES not in self.cloud.asked:
            return [self.tenant.namespace]
        states = [e for e in self.cloud.aws_events() if e["kind"] == "state" and e["object"] == "node"]
        return [self.tenant.namespace, *{e["id"] for e in states if self.tenant.namespace in e.get("group", "")}]

    def wait_ready(self, nodes=None, timeout=WAIT):
        """Waits until it has converged on the present generation, with that many Ready nodes when given."""
        def check(_):
            found = self.get()
            status = found.get("status", {})
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            ready = next((c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"), None)
            done = seen and status.get("currentState") == "Ready" and ready == "True"
            return done and (nodes is None or len(self.ready_nodes()) == nodes)
        self.wait(check, timeout, "Ready" if nodes is None else f"Ready with {nodes} nodes")
        return self

    def wait_state(self, state, timeout=WAIT):
        """Waits until `.status.currentState` is that."""
        self.wait(lambda g: g.state() == state, timeout, f"state {state}")
        return self

    def wait_condition(self, kind, status="True", reason=None, timeout=WAIT, text=""):
        """Waits for a condition whose message holds `text` and returns it. One reason may stand for two causes, one after the other."""

        def find(group):
            found = group.has_condition(kind, status, reason)
            return found if found and text in found["message"] else None

        return self.wait(find, timeout, f"{kind}={status} {reason or ''} {text!r}")

    def wait_event(self, reason, text="", timeout=WAIT):
        """Waits for an event and returns it."""
        return self.wait(lambda g: g._event(reason, text), timeout, f"event {reason} {text!r}")

    def has_no_event(self, reason, text=""):
        """Whether no such event is there yet. Call it after the event, condition or write that would have come last."""
        return self._event(reason, text) is None

    def wait_gone(self, timeout=WAIT):
        """Waits until the object is gone."""
        self.wait(lambda g: g.get() is None, timeout, "its end")

    def diagnostics(self):
        """What explains a failure: its description, the controller's log lines and the states of its instances."""
        described = subprocess.run([*self.cloud["kubectl"], "describe", "ig", "-n", self.tenant.namespace, self.name], capture_output=True, text=True).stdout
        states = [e for e in self.cloud.aws_events() if e.get("group") == self.scaling_group or e.get("id") == self.scaling_group]
        lines = [f"{e['time'][11:23]} {e['object']} {e['id']} {e['state']} {e.get('reason', '')} {e.get('version', '')}" for e in states[-15:]]
        log = self.tenant.controller.tail(self.key) if self.tenant.controller else ""
        return "\n".join(["--- describe", described, "--- the controller's log", log, "--- the simulator's", *lines])

    # checks on the logs

    def events_in_aws(self, after=0):
        """What the simulator's log says about it: its states, and calls that name what it is made of."""
        return logs.events_of_group(self.cloud.aws_events(after), self.scaling_group)

    def writes(self, after=0):
        """The controller's calls to AWS that wrote something of this group, from the line after `after` on."""
        return logs.writes(self.cloud.aws_events(), self.scaling_group, after)

    def max_unavailable_seen(self):
        """The most nodes that were unavailable by the controller's own doing at once."""
        return logs.max_unavailable_seen(self.cloud.aws_events(), self.cloud.audit(), self.scaling_group)

    def min_serving_nodes(self, size):
        """The fewest nodes that took and kept pods, from when there first were `size`, by the controller's own doing."""
        return logs.min_serving_nodes(self.cloud.aws_events(), self.cloud.audit(), self.scaling_group, size)

    def undrained(self, stays=()):
        """Instances that the controller terminated before they were drained, with what stood on each; none is right."""
        return logs.undrained(self.cloud.aws_events(), self.cloud.audit(), self.scaling_group, stays)


def node_ready(node):
    """Whether the Node's condition Ready is True."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))


def revision_of(data):
    """The revision that the controller gives a ConfigMap with this data."""
    known = [data.get(key) for key in ("boundaries", "defaults", "conditionals", "policy")]
    return hashlib.sha256(json.dumps(known, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()[:16]


def tags_of(asg):
    """The tags of a scaling group as a dict."""
    return {tag["Key"]: tag["Value"] for tag in asg["Tags"]}
