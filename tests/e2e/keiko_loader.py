"""Loads the state that keikoproj/instance-manager leaves of its groups into a local cloud.

A state is what keikoproj/instance-manager leaves of one InstanceGroup in AWS and Kubernetes, in the shape of its recordings: a folder
of `<group>.json`, with `_world.json` (the network) and `_aws-auth.json` (the map of roles) beside them. Each file has
the keys `instanceGroup` (with its status), `autoScalingGroup`, `launchTemplate` and `launchTemplateVersions` (with
`UserDataDecoded`) or `launchConfiguration`, `role`, `rolePolicies`, `instanceProfile`, `lifecycleHooks` and `warmPool`,
as the APIs return them. The environment variable KEIKO_RECORDINGS names the folder; its default is
`shared/original-worlds` beside the checkout.
Constructed states have the same shape: see keiko_groups.py.

A recording speaks of another cluster. It is rewritten as a whole, by one table, before it is loaded: the names of its
cluster and namespace wherever they stand as words (so derived names stay derived), account, region, network, the
cluster's endpoint and CA, and the address of its DNS. Everything else stays as it was recorded, ids of images too.

    state = keiko_loader.recording(cloud, "plain")          # or keiko_groups.STATES["plain"](site)
    group = keiko_loader.load(cloud, state)                 # a harness.Group with more: see keiko_group.KeikoGroup
    before, mark = group.snapshot(), group.mark()
    ...                                                 # start a controller
    assert group.writes_since(mark) == []
    assert keiko_loader.differences(before, group.snapshot()) == {}
"""

import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import threading

import yaml
from botocore.exceptions import ClientError

from localcloud.tests import support
from e2e import harness
from e2e.keiko_group import KeikoGroup, differences

__all__ = ["KeikoGroup", "Site", "GroupState", "differences", "load", "load_all", "recording", "recordings"]
MANAGER = "manager"
"""The field manager of keikoproj/instance-manager."""
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
"""The trust of every node role."""
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly", "AmazonEKS_CNI_Policy")
UNRECORDED_HOOK_FIELDS = {"NotificationTargetARN": "notificationArn", "RoleARN": "roleArn", "NotificationMetadata": "metadata"}
"""Fields of a hook that the recordings lack. keikoproj/instance-manager took them from the spec."""
LAUNCH_CONFIGURATIONS_ALLOWED = threading.Lock()
"""Held while the account may make launch configurations."""
LAUNCH_CONFIGURATION = (
    "LaunchConfigurationName", "ImageId", "InstanceType", "KeyName", "SecurityGroups", "IamInstanceProfile", "SpotPrice",
    "BlockDeviceMappings", "InstanceMonitoring", "EbsOptimized", "PlacementTenancy", "MetadataOptions",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Site:
    """Where states are loaded: a cluster, a namespace, and the network and images of the account."""

    cluster: str
    namespace: str
    region: str
    account: str
    endpoint: str
    ca: str
    cidr: str
    vpc: str
    subnets: tuple
    security_group: str
    images: dict

    @classmethod
    def of(cls, cloud, namespace):
        """The site that a local cloud offers for groups of a namespace."""
        found = cloud.boto("eks").describe_cluster(name=cloud["cluster_name"])["cluster"]
        return cls(
            cloud["cluster_name"], namespace, cloud["region"], cloud["account"], found["endpoint"],
            found["certificateAuthority"]["data"], found["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            cloud["vpc"], tuple(sorted(cloud["subnets"])), cloud["security_group"], cloud["amis"],
        )  # fmt: skip

    @property
    def dns(self):
        """The address of the cluster's DNS."""
        return re.sub(r"\d+/\d+$", "10", self.cidr)


@dataclasses.dataclass(frozen=True)
class GroupState:
    """One InstanceGroup and its resources; `entry` is the entry of its role in aws-auth, `auth` the whole map if known."""

    data: dict
    entry: dict
    auth: dict | None = None


# --- recordings -----------------------------------------------------------------------------------


def folder():
    """Where the recordings are; it need not exist."""
    return pathlib.Path(os.environ.get("KEIKO_RECORDINGS") or support.REPOSITORY.parent / "shared" / "original-worlds")


def recordings():
    """The names of all recordings, none without the folder."""
    return [path.stem for path in sorted(folder().glob("*.json")) if not path.name.startswith("_")]


def recording(cloud, name, namespace=None):
    """The recording of that name as it would have been in this cloud, in its own namespace or another."""
    parts = [json.loads((folder() / f"{part}.json").read_text()) for part in (name, "_aws-auth", "_world")]
    tags = {tag["Key"]: tag["Value"] for tag in parts[0]["autoScalingGroup"]["Tags"]}
    site = Site.of(cloud, namespace or tags[harness.OWNERSHIP + "Namespace"])
    data, auth = (rewritten(part, substitutions(parts[2], tags, parts[0], site)) for part in parts[:2])
    wanted = data["role"]["Arn"]
    (entry,) = [e for e in yaml.safe_load(auth["mapRoles"]) if e["rolearn"] == wanted]
    return GroupState(data, entry, auth)


def substitutions(network, tags, data, site):
    """What is rewritten: pairs of a pattern and its replacement, in this order."""
    arn = data["autoScalingGroup"]["AutoScalingGroupARN"].split(":")
    words = {
        network["account"]: site.account, arn[3]: site.region, network["vpc"]: site.vpc, network["sg"]: site.security_group,
        **dict(zip(sorted(network["subnets"]), site.subnets, strict=True)),
        tags["KubernetesCluster"]: site.cluster, tags[harness.OWNERSHIP + "Namespace"]: site.namespace,
    }  # fmt: skip
    return [
        (re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{600,}={0,2}"), site.ca),
        (re.compile(r"https://[\w.-]+\.eks\.amazonaws\.com/?"), site.endpoint),
        (re.compile(r"(?<=--dns-cluster-ip )[\d.]+"), site.dns),
        *((re.compile(rf"(?<![A-Za-z0-9]){re.escape(old)}(?![A-Za-z0-9])"), new) for old, new in words.items()),
    ]


def rewritten(value, pairs):
    """A state with every text in it rewritten."""
    if isinstance(value, dict):
        return {key: rewritten(each, pairs) for key, each in value.items()}
    if isinstance(value, list):
        return [rewritten(each, pairs) for each in value]
    if isinstance(value, str):
        return functools.reduce(lambda text, pair: pair[0].sub(lambda _: pair[1], text), pairs, value)
    return value


# --- loading --------------------------------------------------------------------------------------


def load(cloud, state):
    """Makes a state in a cloud, waits until its nodes are Ready, and returns it as a `KeikoGroup`.

    Instances are launched from `$Latest` as it was when they were: versions are added in between, so that each runs the
    version that it is recorded with. A role, a profile, a key pair or an image that exists already stays as it is.
    """
    (loaded,) = load_all(cloud, {"": state}).values()
    return loaded


def load_all(cloud, named):
    """Makes many states at once, {name: state}; returns {name: KeikoGroup}. The first failure is raised, with its state's name."""
    for state in named.values():
        add_to_aws_auth(cloud, state)
    with concurrent.futures.ThreadPoolExecutor(len(named)) as pool:
        loading = {name: pool.submit(Loader(cloud, state.data).load) for name, state in named.items()}
    for name, future in loading.items():
        if problem := future.exception():
            problem.add_note(f"while the state {name!r} was loaded")
            raise problem
    return {name: future.result() for name, future in loading.items()}


class Loader:
    """Creates one state step by step, as an administrator."""

    def __init__(self, cloud, data):
        self.cloud, self.data = cloud, data
        self.ec2, self.asg, self.iam = (cloud.boto(service) for service in ("ec2", "autoscaling", "iam"))
        self.scaling = data["autoScalingGroup"]
        self.name = {"AutoScalingGroupName": self.scaling["AutoScalingGroupName"]}
        self.versions = sorted(data.get("launchTemplateVersions") or [], key=lambda v: v["VersionNumber"])
        self.made = 0

    def load(self):
        """Creates everything. The InstanceGroup comes last, so that no controller acts on it before."""
        self.identity()
        self.parts()
        self.instances()
        self.settings()
        loaded = KeikoGroup(self.cloud, self.data)
        for node in loaded.wait_nodes().nodes():
            self.relabel(node)
        self.instance_group()
        return loaded

    def identity(self):
        """Creates role and profile; existing ones stay as they are."""
        role, profile = self.data["role"], self.data["instanceProfile"]
        with ignore_existing():
            trust = json.dumps(role["AssumeRolePolicyDocument"] or TRUST)
            self.iam.create_role(RoleName=role["RoleName"], Path=role["Path"], AssumeRolePolicyDocument=trust)
        # An existing role was recorded without trust policy and policies, which its nodes need to join.
        arns = [policy["PolicyArn"] for policy in self.data["rolePolicies"]] or [f"arn:aws:iam::aws:policy/{name}" for name in NODE_POLICIES]
        for arn in arns:
            self.iam.attach_role_policy(RoleName=role["RoleName"], PolicyArn=arn)
        with ignore_existing():
            self.iam.create_instance_profile(InstanceProfileName=profile["InstanceProfileName"], Path=profile["Path"])
            self.iam.add_role_to_instance_profile(InstanceProfileName=profile["InstanceProfileName"], RoleName=role["RoleName"])

    def parts(self):
        """What launches refer to: images, which join whatever their family, and the key pair."""
        for data in [v["LaunchTemplateData"] for v in self.versions] or [self.data["launchConfiguration"]]:
            known = self.ec2.describe_images(Filters=[{"Name": "image-id", "Values": [data["ImageId"]]}])["Images"]
            if not known:
                self.cloud.control("POST", "ami", id=data["ImageId"], behavior="ok")
            if data.get("KeyName"):
                with ignore_existing():
                    self.ec2.create_key_pair(KeyName=data["KeyName"])

    def add_versions(self, until):
        """Versions up to that number; numbers that are missing were deleted, and are so again."""
        for number in range(self.made + 1, until + 1):
            wanted = next((v for v in self.versions if v["VersionNumber"] == number), self.versions[0])
            template = {"LaunchTemplateName": wanted["LaunchTemplateName"], "LaunchTemplateData": launch_data(wanted["LaunchTemplateData"])}
            if wanted.get("VersionDescription"):
                template["VersionDescription"] = wanted["VersionDescription"]
            create = self.ec2.create_launch_template if number == 1 else self.ec2.create_launch_template_version
            create(**template)
            self.made = number

    def finish_template(self):
        """The rest of the versions, the default one, and none that was deleted."""
        if not self.versions:
            return
        name = {"LaunchTemplateName": self.versions[0]["LaunchTemplateName"]}
        self.add_versions(self.versions[-1]["VersionNumber"])
        self.ec2.modify_launch_template(**name, DefaultVersion=str(self.data["launchTemplate"][0]["DefaultVersionNumber"]))
        kept = {v["VersionNumber"] for v in self.versions}
        gone = [str(n) for n in range(1, self.made + 1) if n not in kept]
        if gone:
            self.ec2.delete_launch_template_versions(**name, Versions=gone)

    def instances(self):
        """The scaling group, and instances of each version while that is the latest."""
        if not self.versions:
            self.make_launch_configuration()
            self.make_group(self.scaling["DesiredCapacity"])
            return
        latest = self.versions[-1]["VersionNumber"]
        running = sorted(int(i["LaunchTemplate"]["Version"]) for i in self.scaling["Instances"])
        running += [latest] * (self.scaling["DesiredCapacity"] - len(running))
        self.add_versions(running[0] if running else latest)
        self.make_group(running.count(running[0]) if running else 0)
        for number in sorted(set(running))[1:]:
            self.add_versions(number)
            self.scale(sum(version <= number for version in running))
        self.finish_template()

    def make_launch_configuration(self):
        """The launch configuration, though AWS lets new accounts make none."""
        data = {key: value for key, value in self.data["launchConfiguration"].items() if key in LAUNCH_CONFIGURATION}
        devices = [{k: v for k, v in device.items() if k != "NoDevice" or v} for device in data.get("BlockDeviceMappings", [])]
        # This call of boto3 encodes the user data itself.
        user_data = self.data["launchConfiguration"]["UserDataDecoded"]
        with LAUNCH_CONFIGURATIONS_ALLOWED:
            self.cloud.control("POST", "allow-launch-configurations", allowed=True)
            retry_unknown_profile(lambda: self.asg.create_launch_configuration(**data | {"BlockDeviceMappings": devices, "UserData": user_data}))
            self.cloud.control("POST", "allow-launch-configurations", allowed=False)

    def make_group(self, desired):
        """The scaling group, which launches; its minimum comes later, so that it does not launch too many."""
        source = {key: self.scaling[key] for key in ("LaunchTemplate", "MixedInstancesPolicy", "LaunchConfigurationName") if key in self.scaling}
        source = without_ids(source)
        tags = [{key: tag[key] for key in ("Key", "Value", "PropagateAtLaunch")} for tag in self.scaling["Tags"]]
        sizes = {"MinSize": 0, "MaxSize": self.scaling["MaxSize"], "DesiredCapacity": desired}
        place = {"VPCZoneIdentifier": self.scaling["VPCZoneIdentifier"]}
        retry_unknown_profile(lambda: self.asg.create_auto_scaling_group(**self.name, **sizes, **place, **source, Tags=tags))
        self.wait_in_service(desired)

    def scale(self, desired):
        """So many instances."""
        self.asg.set_desired_capacity(**self.name, DesiredCapacity=desired)
        self.wait_in_service(desired)

    def wait_in_service(self, count):
        """Waits until exactly so many are in service."""
        def states():
            (found,) = self.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[self.scaling["AutoScalingGroupName"]])["AutoScalingGroups"]
            return [i["LifecycleState"] for i in found["Instances"]] == ["InService"] * count
        support.eventually(states, harness.WAIT, f"{count} instances of {self.scaling['AutoScalingGroupName']}")

    def wait_warm(self):
        """Waits until the warm pool is full and at rest."""
        pool = self.data["warmPool"]
        limit = pool.get("MaxGroupPreparedCapacity", self.scaling["MaxSize"])
        count = max(pool.get("MinSize", 0), limit - self.scaling["DesiredCapacity"])
        def full():
            states = [i["LifecycleState"] for i in self.asg.describe_warm_pool(**self.name)["Instances"]]
            return states == [f"Warmed:{pool.get('PoolState', 'Stopped')}"] * count
        support.eventually(full, harness.WAIT, f"{count} instances in the warm pool of {self.scaling['AutoScalingGroupName']}")

    def settings(self):
        """What keikoproj/instance-manager sets after the group exists. Hooks too, so they do not apply to the first instances."""
        self.asg.update_auto_scaling_group(**self.name, MinSize=self.scaling["MinSize"])
        if self.scaling.get("SuspendedProcesses"):
            self.asg.suspend_processes(**self.name, ScalingProcesses=[p["ProcessName"] for p in self.scaling["SuspendedProcesses"]])
        if self.scaling.get("EnabledMetrics"):
            metrics = [m["Metric"] for m in self.scaling["EnabledMetrics"]]
            self.asg.enable_metrics_collection(**self.name, Metrics=metrics, Granularity="1Minute")
        for hook in self.data["lifecycleHooks"]:
            (wanted,) = [h for h in self.data["instanceGroup"]["spec"]["eks"]["configuration"]["lifecycleHooks"] if h["name"] == hook["LifecycleHookName"]]
            recorded = {key: value for key, value in hook.items() if key not in ("GlobalTimeout", *UNRECORDED_HOOK_FIELDS)}
            self.asg.put_lifecycle_hook(**recorded, **{key: wanted[field] for key, field in UNRECORDED_HOOK_FIELDS.items() if field in wanted})
        if self.data["warmPool"]:
            known = ("MinSize", "MaxGroupPreparedCapacity", "PoolState", "InstanceReusePolicy")
            self.asg.put_warm_pool(**self.name, **{key: value for key, value in self.data["warmPool"].items() if key in known})
            self.wait_warm()

    def relabel(self, node):
        """Copies the role label of a node to its older name, as keikoproj/instance-manager does."""
        role = node["metadata"]["labels"].get("node.kubernetes.io/role")
        if role:
            self.cloud.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": {"kubernetes.io/role": role}}})

    def instance_group(self):
        """The resource with its finalizer, then its status, as keikoproj/instance-manager wrote both."""
        body = self.data["instanceGroup"]
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        answer = self.cloud.api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert answer.ok or answer.status_code == 409, answer.text
        path = f"{harness.GROUPS}/namespaces/{namespace}/instancegroups"
        self.cloud.create(f"{path}?fieldManager={MANAGER}", {key: body[key] for key in ("apiVersion", "kind", "metadata", "spec")})
        # Its own definition of the resource has no default for the status.
        self.cloud.patch(f"{path}/{name}/status?fieldManager={MANAGER}", {"status": {"observedGeneration": None, **body["status"]}})


def add_to_aws_auth(cloud, state):
    """Lets the nodes of a state join: creates aws-auth as recorded, or adds the missing entry to it."""
    def known(text):
        return [entry["rolearn"] for entry in yaml.safe_load(text) or []]

    def add(text):
        return text if state.entry["rolearn"] in known(text) else text + yaml.safe_dump([state.entry], sort_keys=False)

    if cloud.get(harness.AWS_AUTH) is None and state.auth:
        cloud.create(harness.AWS_AUTH.rpartition("/")[0], {"metadata": {"name": "aws-auth"}, "data": state.auth})
    elif state.entry["rolearn"] not in known(cloud.map_roles()):
        cloud.edit_map_roles(add)


def launch_data(data):
    """Launch template data as a request has it."""
    given = {key: value for key, value in data.items() if key != "UserDataDecoded"}
    return given | ({"UserData": encoded(data["UserDataDecoded"])} if "UserDataDecoded" in data else {})


def without_ids(source):
    """What a group launches from, by name: ids are the account's to give."""
    if isinstance(source, dict):
        return {key: without_ids(value) for key, value in source.items() if key != "LaunchTemplateId"}
    return [without_ids(each) for each in source] if isinstance(source, list) else source


def encoded(text):
    """User data as AWS takes it."""
    return base64.b64encode(text.encode()).decode()


@contextlib.contextmanager
def ignore_existing():
    """What exists already stays as it is."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("EntityAlreadyExists", "InvalidKeyPair.Duplicate"):
            raise


def retry_unknown_profile(call):
    """Makes a call again while a new instance profile is not known everywhere."""
    def done():
        try:
            return call() or True
        except ClientError as error:
            if "nvalid IAM Instance Profile" not in str(error) and "iamInstanceProfile" not in str(error):
                raise
            return None
    return support.eventually(done, harness.WAIT, "the instance profile to be known")
