"""Which instances become nodes, on the real control plane."""

import base64
import json
import re
import time
from pathlib import Path

import boto3
import pytest
import yaml

from simulator.simulation import NUMBERS, TRUST, Control, events, until

AL2 = """#!/bin/bash
set -o xtrace
/etc/eks/bootstrap.sh {cluster} --use-max-pods false --b64-cluster-ca {ca} --apiserver-endpoint {endpoint} \\
  --dns-cluster-ip 10.96.0.10 --kubelet-extra-args '--node-labels={labels} --register-with-taints=team=a:NoSchedule --max-pods=42'
echo done
"""
AL2023 = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config: {{maxPods: 42}}
--BOUNDARY
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {{name: {cluster}, apiServerEndpoint: "{endpoint}", certificateAuthority: {ca}, cidr: 10.96.0.0/16}}
  kubelet:
    flags: ["--node-labels={labels}", "--register-with-taints=team=a:NoSchedule"]
--BOUNDARY--
"""
BOTTLEROCKET = """[settings.kubernetes]
api-server = "{endpoint}"
cluster-certificate = "{ca}"
cluster-name = "{cluster}"
max-pods = 42
[settings.kubernetes.node-labels]
"team" = "a"
"node.kubernetes.io/role" = "web"
[settings.kubernetes.node-taints]
"team" = "a:NoSchedule"
"""
WINDOWS = """<powershell>
  [string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
  & $EKSBootstrapScriptFile -EKSClusterName '{cluster}' -Base64ClusterCA {ca} -APIServerEndpoint '{endpoint}' `
    -KubeletExtraArgs '--node-labels={labels} --register-with-taints=team=a:NoSchedule --max-pods=42' 3>&1 4>&1 5>&1 6>&1
</powershell>
"""
USER_DATA = {"amazonlinux2": AL2, "amazonlinux2023": AL2023, "bottlerocket": BOTTLEROCKET, "windows": WINDOWS}
POLICY = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
LABELS = "team=a,node.kubernetes.io/role=web"
MEMBERS = ("system:bootstrappers", "system:nodes")
PROXY = "eks:kube-proxy-windows"


class Site:
    """Makes groups of nodes in the cloud and looks at them."""

    def __init__(self, cloud):
        self.cloud = cloud
        place = {"endpoint_url": cloud["aws_endpoint"], "region_name": cloud["region"]}
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.asg, self.ec2, self.iam = (boto3.client(s, **place, **keys) for s in ("autoscaling", "ec2", "iam"))
        self.control = Control(cloud["control"])
        kube = json.loads((Path(cloud["state"]) / "kube.json").read_text())
        self.url, self.get = kube["url"], cloud.get
        self.ca = base64.b64encode(Path(kube["ca"]).read_bytes()).decode()
        self.made = []

    def user_data(self, family, **changes):
        """User data of a family that joins this cluster, unless changed."""
        facts = {"cluster": self.cloud["cluster_name"], "endpoint": self.url, "ca": self.ca, "labels": LABELS}
        return USER_DATA[family].format(**facts | changes)

    def role(self):
        """A new role with its profile; the ARNs of both."""
        name = f"nodes-{next(NUMBERS)}-{time.time_ns()}"
        role = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
        profile = self.iam.create_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Arn"]
        self.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        time.sleep(self.cloud["delays"]["propagation"] + 0.1)
        return role, profile

    def launch(self, user_data, profile, ami, size=1):
        """A group of nodes; its name."""
        name = f"nodes-{next(NUMBERS)}-{time.time_ns()}"
        data = {
            "ImageId": ami,
            "InstanceType": "m5.large",
            "IamInstanceProfile": {"Arn": profile},
            "SecurityGroupIds": [self.cloud["security_group"]],
            "UserData": base64.b64encode(user_data.encode()).decode(),
        }
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        self.asg.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=size,
            MaxSize=9,
            VPCZoneIdentifier=",".join(self.cloud["subnets"]),
            LaunchTemplate={"LaunchTemplateName": name, "Version": "1"},
        )
        self.made.append(name)
        return name

    def log(self, group, state):
        """What the event log says about nodes of a group in that state."""
        return events(self.cloud["aws_log"], kind="state", object="node", group=group, state=state)

    def ready(self, group, count=1):
        """Wait for that many Ready nodes; their Node objects."""
        lines = until(lambda: (found := self.log(group, "ready")) and len(found) >= count and found, f"{count} nodes of {group}")
        return [self.get(f"/api/v1/nodes/{line['id']}") for line in lines]

    def reason(self, group):
        """Wait for the reason why an instance did not join."""
        return until(lambda: self.log(group, "not-joined"), f"a refused node of {group}")[-1]["reason"]

    def condition(self, node):
        """The status of a node's condition Ready."""
        return next(c["status"] for c in self.get(f"/api/v1/nodes/{node}")["status"]["conditions"] if c["type"] == "Ready")

    def entries(self, change):
        """Change the list of aws-auth entries."""
        until(lambda: self.try_entries(change), "a write of aws-auth that nobody crosses")

    def try_entries(self, change):
        """Change the entries unless somebody else changes them meanwhile; whether that was done."""
        path = "/api/v1/namespaces/kube-system/configmaps"
        config = self.get(f"{path}/aws-auth")
        roles = json.dumps(change(yaml.safe_load((config or {}).get("data", {}).get("mapRoles") or "[]") or []))
        if config is None:
            return self.cloud.api("POST", path, {"metadata": {"name": "aws-auth"}, "data": {"mapRoles": roles}}).ok
        config["data"] = {**config.get("data", {}), "mapRoles": roles}
        return self.cloud.api("PUT", f"{path}/aws-auth", config).ok

    def allow(self, role, username="system:node:{{EC2PrivateDNSName}}", groups=(*MEMBERS, PROXY)):
        """Give a role an entry."""
        entry = {"rolearn": role, "username": username, "groups": list(groups)}
        self.entries(lambda entries: [e for e in entries if e["rolearn"] != role] + [entry])

    def forbid(self, role):
        """Take a role's entry away."""
        self.entries(lambda entries: [e for e in entries if e["rolearn"] != role])


@pytest.fixture(scope="module")
def site(cloud):
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


@pytest.mark.parametrize("family", USER_DATA)
def test_an_instance_with_proper_user_data_becomes_the_node_that_it_describes(site, joined, family):
    """Amazon EKS User Guide, "Customize managed nodes with launch templates"; Kubernetes, "Well-Known Labels"."""
    group = site.launch(site.user_data(family), joined, site.cloud["amis"][family][0])
    (node,) = site.ready(group)
    instance = site.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]["Instances"][0]
    labels = node["metadata"]["labels"]
    assert re.fullmatch(r"ip-10-0-\d+-\d+\.us-west-2\.compute\.internal", node["metadata"]["name"])
    assert node["spec"]["providerID"] == f"aws:///{instance['AvailabilityZone']}/{instance['InstanceId']}"
    assert (labels["team"], labels["node.kubernetes.io/role"]) == ("a", "web")
    assert labels["topology.kubernetes.io/zone"] == labels["failure-domain.beta.kubernetes.io/zone"] == instance["AvailabilityZone"]
    assert labels["node.kubernetes.io/instance-type"] == labels["beta.kubernetes.io/instance-type"] == "m5.large"
    assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
    assert {"key": "team", "value": "a", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["pods"] == "42"
    assert site.condition(node["metadata"]["name"]) == "True"
    system = "windows" if family == "windows" else "linux"
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"]) == (system, "amd64")
    assert ("node.kubernetes.io/windows-build" in labels) == (family == "windows")
    assert ("Windows" in node["status"]["nodeInfo"]["osImage"]) == (family == "windows")


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("amazonlinux2", {"cluster": "other"}, "names cluster 'other'"),
        ("amazonlinux2", {"endpoint": "https://127.0.0.1:1"}, "cannot be reached"),
        ("amazonlinux2023", {"ca": "b3RoZXI="}, "unknown authority"),
        ("bottlerocket", {"cluster": ""}, "cluster-name is missing"),
        ("amazonlinux2", {"labels": "kubernetes.io/role=web"}, "unknown 'kubernetes.io'"),
        ("amazonlinux2023", {"labels": "a=b --no-such-flag=1"}, "not a valid label"),
        ("windows", {"cluster": "other"}, "names cluster 'other'"),
        ("windows", {"labels": "a=b' -Verbose '"}, "matches parameter name 'Verbose'"),
    ],
)
def test_an_instance_whose_user_data_is_wrong_does_not_join(site, joined, family, changes, reason):
    """Kubernetes, "kubelet" (--node-labels); amazon-eks-ami, nodeadm and bootstrap.sh; Bottlerocket, "kubernetes settings"."""
    group = site.launch(site.user_data(family, **changes), joined, site.cloud["amis"][family][0])
    assert reason in site.reason(group)


def test_an_instance_whose_ami_reads_other_user_data_does_not_join(site, joined):
    """Bottlerocket reads TOML only; see "Using user data" in its documents."""
    group = site.launch(site.user_data("amazonlinux2"), joined, site.cloud["amis"]["bottlerocket"][0])
    assert "not TOML" in site.reason(group)


def test_an_instance_waits_for_its_role_in_aws_auth_and_falls_silent_when_the_entry_goes(site):
    """Amazon EKS User Guide, "Grant IAM users access to Kubernetes with a ConfigMap"."""
    role, profile = site.role()
    group = site.launch(site.user_data("amazonlinux2"), profile, site.cloud["amis"]["amazonlinux2"][0])
    assert role in site.reason(group) or "does not exist" in site.reason(group)
    site.allow(role, username="wrong")
    until(lambda: "username" in site.reason(group), "the reason to change")
    site.allow(role)
    (node,) = site.ready(group)
    site.forbid(role)
    until(lambda: site.condition(node["metadata"]["name"]) == "Unknown", "the node to be Unknown")
    site.allow(role)
    until(lambda: site.condition(node["metadata"]["name"]) == "True", "the node to be Ready again")


def test_an_instance_waits_for_the_policy_that_its_role_lacks(site):
    """Amazon EKS User Guide, "Amazon EKS node IAM role"."""
    role, profile = site.role()
    name = role.rsplit("/", 1)[1]
    site.allow(role)
    site.iam.detach_role_policy(RoleName=name, PolicyArn=POLICY)
    group = site.launch(site.user_data("amazonlinux2"), profile, site.cloud["amis"]["amazonlinux2"][0])
    assert "lacks AmazonEKSWorkerNodePolicy" in site.reason(group)
    site.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
    site.ready(group)


def test_a_windows_instance_waits_for_the_group_of_its_proxy(site):
    """Amazon EKS User Guide, "Deploy Windows nodes on EKS clusters": eks:kube-proxy-windows in the role's entry; pods run there."""
    role, profile = site.role()
    site.allow(role, groups=MEMBERS)
    group = site.launch(site.user_data("windows"), profile, site.cloud["amis"]["windows"][0])
    assert PROXY in site.reason(group)
    site.allow(role)
    (node,) = site.ready(group)
    pod = {"metadata": {"name": group}, "spec": {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/default/pods"
    site.cloud.create(pods, pod)
    until(lambda: site.get(f"{pods}/{group}")["status"].get("phase") == "Running", "the pod to run")
    site.cloud.api("DELETE", f"{pods}/{group}", {"gracePeriodSeconds": 0})


def test_broken_amis_never_join_stay_not_ready_or_die(site, joined):
    """What a broken AMI does to a node group; the three kinds that the controller must tell apart."""
    amis = site.cloud["amis"]
    never, unready, dies = (
        site.launch(site.user_data("amazonlinux2"), joined, amis[key]) for key in ("broken_never_joins", "broken_not_ready", "broken_dies")
    )
    assert "starts no kubelet" in site.reason(never)
    node = until(lambda: site.log(unready, "not-ready"), "the node that is never ready")[0]["id"]
    (dead,) = site.ready(dies)
    until(lambda: site.condition(dead["metadata"]["name"]) == "Unknown", "the node to die")
    assert site.condition(node) == "False"


def test_a_dead_kubelet_leaves_its_pods_terminating_until_the_node_is_gone(site, joined):
    """Kubernetes, "Nodes" and "Pod garbage collection": pods of a deleted node are removed."""
    group = site.launch(site.user_data("amazonlinux2"), joined, site.cloud["amis"]["amazonlinux2"][0])
    (node,) = site.ready(group)
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rsplit("/", 1)[1]
    pod = {"metadata": {"name": group}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/default/pods"
    site.cloud.create(pods, pod)
    until(lambda: site.get(f"{pods}/{group}")["status"].get("phase") == "Running", "the pod to run")
    site.control.post("instance", id=instance, action="kubelet-dies")
    until(lambda: site.condition(name) == "Unknown", "the node to be Unknown")
    site.cloud.api("DELETE", f"{pods}/{group}", {"gracePeriodSeconds": 1})
    time.sleep(3)
    assert site.get(f"{pods}/{group}")["metadata"]["deletionTimestamp"]
    site.asg.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
    until(lambda: site.get(f"/api/v1/nodes/{name}") is None, "the node to be gone")
    until(lambda: site.get(f"{pods}/{group}") is None, "the pod to be gone")


def test_a_kubelet_that_recovers_is_ready_again(site, joined):
    """Kubernetes, "Node status": Ready is Unknown while the kubelet is silent."""
    group = site.launch(site.user_data("amazonlinux2023"), joined, site.cloud["amis"]["amazonlinux2023"][0])
    (node,) = site.ready(group)
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rsplit("/", 1)[1]
    for action, status in (("kubelet-dies", "Unknown"), ("kubelet-recovers", "True")):
        site.control.post("instance", id=instance, action=action)
        until(lambda s=status: site.condition(name) == s, f"the node to be {status}")


def test_the_console_tells_why_an_instance_did_not_join(site, joined):
    """Amazon EC2 API Reference, GetConsoleOutput."""
    group = site.launch("not a script", joined, site.cloud["amis"]["amazonlinux2"][0])
    reason = site.reason(group)
    instance = site.log(group, "not-joined")[0]["instance"]
    assert reason in site.ec2.get_console_output(InstanceId=instance)["Output"]
