"""The user data of managed nodes, for each AMI family.

Follows the Amazon EKS User Guide, "Customize managed nodes with launch templates", "Amazon EC2 user data", and
"Understand each phase of node updates" for the labels that EKS sets.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from localcloud.aws.eks import clusters
from localcloud.aws.eks.nodegroups.model import NodeGroup
from localcloud.aws.eks.nodegroups.releases import AMI_TYPES

EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
BOUNDARY = "//"
AL2_SCRIPT = """#!/bin/bash
set -ex
/etc/eks/bootstrap.sh {cluster} --kubelet-extra-args '{flags}' --b64-cluster-ca {ca} --apiserver-endpoint {endpoint}
"""
NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {{name: {cluster}, apiServerEndpoint: "{endpoint}", certificateAuthority: {ca}, cidr: {cidr}}}
  kubelet:
    flags: {flags}
"""
WINDOWS_SCRIPT = """<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName "{cluster}" -Base64ClusterCA "{ca}" -APIServerEndpoint "{endpoint}" `
  -ServiceCIDR "{cidr}" -KubeletExtraArgs "{flags}" 3>&1 4>&1 5>&1 6>&1
</powershell>
"""
BOTTLEROCKET_SETTINGS = """[settings.kubernetes]
api-server = "{endpoint}"
cluster-certificate = "{ca}"
cluster-name = "{cluster}"
"""


def eks_labels(group: NodeGroup, ami: str) -> dict[str, str]:
    """The labels that EKS sets."""
    return {
        "eks.amazonaws.com/nodegroup": group.name,
        "eks.amazonaws.com/nodegroup-image": ami,
        "eks.amazonaws.com/capacityType": group.settings["capacityType"],
    }


def taint_text(taint: dict[str, str]) -> str:
    """A taint in the format of the kubelet's flag."""
    return f"{taint['key']}={taint.get('value') or ''}:{EFFECTS[taint['effect']]}"


def kubernetes_taint(taint: dict[str, str]) -> dict[str, str]:
    """A taint in the format of a Node."""
    value = {"value": taint["value"]} if taint.get("value") else {}
    return {"key": taint["key"], **value, "effect": EFFECTS[taint["effect"]]}


def user_data(simulator: Any, group: NodeGroup, ami: str) -> str:
    """The user data in base64, as launch templates contain it."""
    family = AMI_TYPES[group.settings["amiType"]].removesuffix("-arm64")
    labels = group.settings["labels"] | eks_labels(group, ami)
    flags = ["--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items())]
    if group.settings["taints"]:
        flags.append("--register-with-taints=" + ",".join(map(taint_text, group.settings["taints"])))
    values = {
        "cluster": group.cluster,
        "ca": simulator.ca_data,
        "endpoint": simulator.endpoint,
        "cidr": clusters.service_range(simulator.eks.clusters[group.cluster]),
        "flags": " ".join(flags),
    }
    match family:
        case "amazonlinux2":
            text = mime("text/x-shellscript", AL2_SCRIPT.format(**values))
        case "amazonlinux2023":
            text = mime("application/node.eks.aws", NODE_CONFIG.format(**values | {"flags": json.dumps(flags)}))
        case "bottlerocket":
            text = BOTTLEROCKET_SETTINGS.format(**values) + bottlerocket_tables(group, labels)
        case _:
            text = WINDOWS_SCRIPT.format(**values)
    return base64.b64encode(text.encode()).decode()


def mime(kind: str, body: str) -> str:
    """A MIME archive with one part."""
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{BOUNDARY}"\n\n--{BOUNDARY}\n'
    return f'{head}Content-Type: {kind}; charset="us-ascii"\n\n{body}\n--{BOUNDARY}--\n'


def bottlerocket_tables(group: NodeGroup, labels: dict[str, str]) -> str:
    """Labels and taints in the format of Bottlerocket's settings."""
    lines = ["[settings.kubernetes.node-labels]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in labels.items())]
    by_key: dict[str, list[str]] = {}
    for taint in group.settings["taints"]:
        by_key.setdefault(taint["key"], []).append(f"{taint.get('value') or ''}:{EFFECTS[taint['effect']]}")
    if by_key:
        lines += ["[settings.kubernetes.node-taints]", *(f"{json.dumps(key)} = {json.dumps(values)}" for key, values in by_key.items())]
    return "\n".join(lines) + "\n"
