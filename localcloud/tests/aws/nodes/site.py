"""Helpers for tests of simulated kubelets: user data of each family, and groups of nodes."""

import base64
import json
import time
from pathlib import Path

import boto3
import yaml

from localcloud.tests.aws.support import NUMBERS, TRUST, Control, events, wait_until

AL2 = """#!/bin/bash
set -o xtrace
/etc/eks/bootstrap.sh {cluster} --use-max-pods false --b64-cluster-ca {ca} --apiserver-endpoint {endpoint} \\
  --dns-cluster-ip 172.20.0.10 --kubelet-extra-args '--node-labels={labels} --register-with-taints=team=a:NoSchedule --max-pods=42'
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
  cluster: {{name: {cluster}, apiServerEndpoint: "{endpoint}", certificateAuthority: {ca}, cidr: 172.20.0.0/16}}
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
    -ServiceCIDR 172.20.0.0/16 -KubeletExtraArgs '--node-labels={labels} --register-with-taints=team=a:NoSchedule --max-pods=42' 3>&1 4>&1 5>&1 6>&1
</powershell>
"""
USER_DATA = {"amazonlinux2": AL2, "amazonlinux2023": AL2023, "bottlerocket": BOTTLEROCKET, "windows": WINDOWS}
POLICY = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
LABELS = "team=a,node.kubernetes.io/role=web"
NODE_GROUPS = ("system:bootstrappers", "system:nodes")
WINDOWS_GROUP = "eks:kube-proxy-windows"


class Site:
    """Launches groups of nodes in a cloud and reads their state."""

    def __init__(self, cloud):
        self.cloud = cloud
        place = {"endpoint_url": cloud["aws_endpoint"], "region_name": cloud["region"]}
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.asg, self.ec2, self.iam, self.eks = (boto3.client(s, **place, **keys) for s in ("autoscaling", "ec2", "iam", "eks"))
        self.control = Control(cloud["control"])
        kube = json.loads((Path(cloud["state"]) / "kube.json").read_text())
        self.url, self.get = kube["url"], cloud.get
        self.ca = base64.b64encode(Path(kube["ca"]).read_bytes()).decode()
        self.made = []

    def user_data(self, family, **changes):
        """User data of a family that joins this cluster, unless changed."""
        facts = {"cluster": self.cloud["cluster_name"], "endpoint": self.url, "ca": self.ca, "labels": LABELS}
        return USER_DATA[family].format(**facts | changes)

    def role(self, path="/"):
        """Create a role with an instance profile. Returns the ARNs of both."""
        name = f"nodes-{next(NUMBERS)}-{time.time_ns()}"
        role = self.iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
        profile = self.iam.create_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Arn"]
        self.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        time.sleep(self.cloud["delays"]["propagation"] + 0.1)
        return role, profile

    def launch(self, user_data, profile, ami, size=1, source=None, **more):
        """Create a group of nodes. Returns its name. It has a launch template of its own, unless another source is
        given.
        """
        name = f"nodes-{next(NUMBERS)}-{time.time_ns()}"
        data = {
            "ImageId": ami,
            "InstanceType": "m5.large",
            "IamInstanceProfile": {"Arn": profile},
            "SecurityGroupIds": [self.cloud["security_group"]],
            "UserData": base64.b64encode(user_data if isinstance(user_data, bytes) else user_data.encode()).decode(),
        }
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        self.asg.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=size,
            VPCZoneIdentifier=",".join(self.cloud["subnets"]),
            **(source or (lambda template: {"LaunchTemplate": template}))({"LaunchTemplateName": name, "Version": "1"}),
            **{"MaxSize": 9, **more},
        )
        self.made.append(name)
        return name

    def log(self, group, state):
        """The lines of the event log about nodes of a group in that state."""
        return events(self.cloud["aws_log"], kind="state", object="node", group=group, state=state)

    def ready(self, group, count=1):
        """Wait for that number of Ready nodes. Returns their Node objects."""
        lines = wait_until(lambda: (found := self.log(group, "ready")) and len(found) >= count and found, f"{count} nodes of {group}")
        return [self.get(f"/api/v1/nodes/{line['id']}") for line in lines]

    def reason(self, group):
        """Wait for the reason why an instance did not join."""
        return wait_until(lambda: self.log(group, "not-joined"), f"the reason why {group} does not join")[-1]["reason"]

    def condition(self, node):
        """The status of a node's condition Ready."""
        return next(c["status"] for c in self.get(f"/api/v1/nodes/{node}")["status"]["conditions"] if c["type"] == "Ready")

    def change_aws_auth_entries(self, change):
        """Change the list of aws-auth entries."""
        wait_until(lambda: self.try_change_aws_auth_entries(change), "a write of aws-auth without a conflict")

    def try_change_aws_auth_entries(self, change):
        """Change the entries once. Returns False if there was a conflicting write."""
        path = "/api/v1/namespaces/kube-system/configmaps"
        config = self.get(f"{path}/aws-auth")
        roles = json.dumps(change(yaml.safe_load((config or {}).get("data", {}).get("mapRoles") or "[]") or []))
        if config is None:
            return self.cloud.api("POST", path, {"metadata": {"name": "aws-auth"}, "data": {"mapRoles": roles}}).ok
        config["data"] = {**config.get("data", {}), "mapRoles": roles}
        return self.cloud.api("PUT", f"{path}/aws-auth", config).ok

    def add_aws_auth_entry(self, role, username="system:node:{{EC2PrivateDNSName}}", groups=(*NODE_GROUPS, WINDOWS_GROUP)):
        """Add or replace a role's aws-auth entry."""
        entry = {"rolearn": role, "username": username, "groups": list(groups)}
        self.change_aws_auth_entries(lambda entries: [e for e in entries if e["rolearn"] != role] + [entry])

    def remove_aws_auth_entry(self, role):
        """Remove a role's aws-auth entry."""
        self.change_aws_auth_entries(lambda entries: [e for e in entries if e["rolearn"] != role])
