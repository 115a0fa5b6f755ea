"""States of groups as keikoproj/instance-manager leaves them, constructed in the shape that keiko_loader.py loads.

`STATES[name](site)` gives the states of that name at a site, most of them one. Names are derived as
keikoproj/instance-manager derives them. The launch template has no tags, the scaling group follows `$Latest`, and nothing
has this controller's tags.
"""

import hashlib
import textwrap

from e2e.harness import FINALIZER, OWNERSHIP, PREFIX
from e2e.keiko_loader import NODE_POLICIES, TRUST, GroupState

TEMPLATE_TIMESTAMP = "20240229123456"
"""When each launch template was made, as its name says."""
ROLLING = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
KEY = "operators"
WARM_CHECK = """\
if command -v aws && command -v jq; then
  T=$(curl -X PUT http://169.254.169.254/latest/api/token -H "X-aws-ec2-metadata-token-ttl-seconds: 600")
  S=$(curl -H "X-aws-ec2-metadata-token: $T" http://169.254.169.254/latest/meta-data/autoscaling/target-lifecycle-state)
  if [[ $S == *Warmed* ]]; then rm -f /var/lib/cloud/instances/*/sem/config_scripts_user; exit 0; fi
fi
"""


class GroupBuilder:
    """One group: what its tenant asked for, from which the rest is derived."""

    def __init__(self, site, name, lifecycle="normal", annotations=None, **configuration):
        self.site, self.name, self.lifecycle = site, name, lifecycle
        self.annotations = annotations or {}
        self.derived = f"{site.cluster}-{site.namespace}-{name}"
        self.own_role = configuration.get("roleName")
        self.configuration = {
            "clusterName": site.cluster, "image": site.images["amazonlinux2"][0], "instanceType": "m5.large", "keyPairName": KEY,
            "subnets": list(site.subnets), "securityGroups": [site.security_group], **configuration,
        }  # fmt: skip

    @property
    def identity(self):
        """The name of role and profile: IAM allows 64 characters, and keikoproj/instance-manager uses 63."""
        short = self.derived if len(self.derived) <= 63 else hashlib.md5(self.derived.encode()).hexdigest()
        return self.own_role or short

    def arn(self, kind):
        """The ARN of its role or instance profile."""
        return f"arn:aws:iam::{self.site.account}:{kind}/{self.identity}"

    # the node

    def labels(self):
        """The label flag: the labels of keikoproj/instance-manager and the tenant's, sorted."""
        own = {PREFIX + "image": self.configuration["image"], PREFIX + "lifecycle": self.lifecycle, "node.kubernetes.io/role": self.name}
        labels = own | self.configuration.get("labels", {})
        return "--node-labels=" + ",".join(f"{key}={labels[key]}" for key in sorted(labels))

    def taints(self):
        """The taint flag."""
        taints = self.configuration.get("taints", [])
        return "--register-with-taints=" + ",".join(f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in taints)

    def stages(self, stage):
        """The tenant's scripts of a stage, joined without a separator."""
        return "".join(script["data"] for script in self.configuration.get("userData", []) if script["stage"] == stage)

    def user_data(self):
        """What its nodes boot with."""
        site, before, after = self.site, self.stages("PreBootstrap"), self.stages("PostBootstrap")
        if self.stages("NodeConfigYaml"):
            # Cluster, endpoint and CA are in the tenant's document only.
            own = f"---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    flags:\n    - {self.labels()}\n    - {self.taints()}\n"
            parts = [("text/x-shellscript", f"#!/bin/bash\n{before}\n{WARM_CHECK}"), ("application/node.eks.aws", self.stages("NodeConfigYaml"))]
            parts += [("application/node.eks.aws", own), ("text/x-shellscript", f"#!/bin/bash\n{after}\n")]
            body = "".join(f'--BOUNDARY\nContent-Type: {kind}; charset="us-ascii"\n\n{text}\n' for kind, text in parts)
            return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="BOUNDARY"\n\n{body}--BOUNDARY--\n'
        arguments = self.configuration.get("bootstrapArguments", "")
        return (
            f"#!/bin/bash\n{before}\n{WARM_CHECK}set -o xtrace\n/etc/eks/bootstrap.sh {site.cluster} --b64-cluster-ca {site.ca} "
            f"--apiserver-endpoint {site.endpoint} --dns-cluster-ip {site.dns} "
            f"--kubelet-extra-args '{self.labels()} {self.taints()} {arguments}'\nset +o xtrace\n{after}"
        )

    def launch(self):
        """What a launch template version holds."""
        configuration = self.configuration
        ebs = {"DeleteOnTermination": True, "VolumeSize": 32, "VolumeType": "gp2"}
        return {
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": ebs}],
            "IamInstanceProfile": {"Arn": self.arn("instance-profile")},
            "ImageId": configuration["image"],
            "InstanceType": configuration["instanceType"],
            "KeyName": configuration["keyPairName"],
            "SecurityGroupIds": configuration["securityGroups"],
            "UserDataDecoded": self.user_data(),
        }

    # the state

    def tags(self):
        """The tags of the scaling group, all propagated."""
        tags = {
            "Name": self.derived, "KubernetesCluster": self.site.cluster, OWNERSHIP + "ClusterName": self.site.cluster,
            OWNERSHIP + "Namespace": self.site.namespace, OWNERSHIP + "InstanceGroup": self.name,
            **{tag["key"]: tag["value"] for tag in self.configuration.get("tags", [])},
        }  # fmt: skip
        return [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()]

    def build(self, sizes=(1, 3), versions=None, running=(1,), state="Ready", strategy=ROLLING, eks=None, source=None, **parts):
        """All of it. `versions` are drafts of the launch template's versions, the last of them this one; `running` is the
        version of each instance; `source` replaces the launch template in the scaling group; `parts` are added to
        the scaling group, `warm_pool` and `hooks` beside it."""
        versions = [*(versions or []), self]
        template = f"{self.derived}-{TEMPLATE_TIMESTAMP}"
        source = source or {"LaunchTemplate": {"LaunchTemplateName": template, "Version": "$Latest"}}
        hooks, pool = parts.pop("hooks", []), parts.pop("warm_pool", None)
        scaling = {
            "AutoScalingGroupName": self.derived, "MinSize": sizes[0], "MaxSize": sizes[1], "DesiredCapacity": len(running),
            "VPCZoneIdentifier": ",".join(sorted(self.site.subnets)), "Tags": self.tags(), **source, **parts,
            "Instances": [{"LaunchTemplate": {"LaunchTemplateName": template, "Version": str(number)}} for number in running],
        }  # fmt: skip
        status = {
            "currentState": state, "currentMin": sizes[0], "currentMax": sizes[1], "lifecycle": self.lifecycle, "provisioner": "eks",
            "strategy": strategy.get("type", ""), "activeScalingGroupName": self.derived, "nodesInstanceRoleArn": self.arn("role"),
            "conditions": [{"type": "NodesReady", "status": "True"}],
        }  # fmt: skip
        data = {
            "autoScalingGroup": scaling,
            "role": {"RoleName": self.identity, "Arn": self.arn("role"), "Path": "/", "AssumeRolePolicyDocument": TRUST},
            "rolePolicies": [] if self.own_role else [{"PolicyArn": f"arn:aws:iam::aws:policy/{name}"} for name in NODE_POLICIES],
            "instanceProfile": {"InstanceProfileName": self.identity, "Arn": self.arn("instance-profile"), "Path": "/"},
            "lifecycleHooks": [{"AutoScalingGroupName": self.derived, **hook} for hook in hooks],
            "warmPool": pool,
        }
        if "LaunchConfigurationName" in source:
            status["activeLaunchConfigurationName"] = source["LaunchConfigurationName"]
            data["launchConfiguration"] = launch_configuration_of(source["LaunchConfigurationName"], self.launch())
            del scaling["Instances"][:]
        else:
            status |= {"activeLaunchTemplateName": template, "latestTemplateVersion": str(len(versions))}
            data["launchTemplate"] = [{"LaunchTemplateName": template, "DefaultVersionNumber": len(versions)}]
            data["launchTemplateVersions"] = [
                {"LaunchTemplateName": template, "VersionNumber": number, "LaunchTemplateData": builder.launch()}
                for number, builder in enumerate(versions, 1)
            ]
        spec = {"provisioner": "eks", "strategy": strategy, "eks": {"minSize": sizes[0], "maxSize": sizes[1], "configuration": self.configuration, **(eks or {})}}
        metadata = {"name": self.name, "namespace": self.site.namespace, "annotations": self.annotations, "finalizers": [FINALIZER]}
        kind = {"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup"}
        data["instanceGroup"] = {**kind, "metadata": metadata, "spec": spec, "status": status}
        groups = ["system:bootstrappers", "system:nodes"]
        return GroupState(data, {"rolearn": self.arn("role"), "username": "system:node:{{EC2PrivateDNSName}}", "groups": groups})


def launch_configuration_of(name, launch):
    """A launch configuration with what a template version would hold."""
    given = {key: launch[key] for key in ("ImageId", "InstanceType", "KeyName", "BlockDeviceMappings", "UserDataDecoded")}
    return {"LaunchConfigurationName": name, "IamInstanceProfile": launch["IamInstanceProfile"]["Arn"], "SecurityGroups": launch["SecurityGroupIds"], **given}


# --- the states -----------------------------------------------------------------------------------


def plain(site):
    """Amazon Linux 2 with labels, taints and tags."""
    more = {"labels": {"team": "search"}, "taints": [{"key": "gpu", "effect": "PreferNoSchedule"}], "tags": [{"key": "owner", "value": "search"}]}
    return [GroupBuilder(site, "plain", **more).build(sizes=(2, 4), running=(1, 1))]


def given_role(site):
    """An existing role and profile, which keikoproj/instance-manager only used."""
    name = f"{site.namespace}-nodes"
    return [GroupBuilder(site, "given", roleName=name, instanceProfileName=name).build()]


def old_versions(site):
    """Three versions of the template, and every node on the first: with this strategy keikoproj/instance-manager never rotated."""
    first = GroupBuilder(site, "aged")
    second = GroupBuilder(site, "aged", image=site.images["amazonlinux2"][1])
    third = GroupBuilder(site, "aged", image=site.images["amazonlinux2"][1], instanceType="m5.xlarge")
    return [third.build(sizes=(2, 4), versions=[first, second], running=(1, 1), state="Error", strategy={"type": "managed"})]


def prefixes(site):
    """Two groups, and the derived names of one begin with those of the other; nothing of them is tagged."""
    return [GroupBuilder(site, name).build() for name in ("web", "web-blue")]


def long_name(site):
    """A name too long for IAM: role and profile are named by a hash."""
    return [GroupBuilder(site, "a-name-that-leaves-no-room-for-a-role-of-its-own-in-iam").build()]


def node_config(site):
    """Amazon Linux 2023, which keikoproj/instance-manager supports only with a NodeConfig of the tenant."""
    document = textwrap.dedent(f"""\
        apiVersion: node.eks.aws/v1alpha1
        kind: NodeConfig
        spec:
          cluster:
            name: {site.cluster}
            apiServerEndpoint: {site.endpoint}
            certificateAuthority: {site.ca}
            cidr: {site.cidr}
        """)
    scripts = [{"name": "cluster", "stage": "NodeConfigYaml", "data": document}]
    return [GroupBuilder(site, "al2023", image=site.images["amazonlinux2023"][0], userData=scripts).build()]


def hooks(site):
    """Hooks, suspended processes and one metric, because keikoproj/instance-manager keeps only the last of several."""
    wanted = [{"name": "down", "lifecycle": "terminate", "defaultResult": "continue"}]
    builder = GroupBuilder(site, "hooks", lifecycleHooks=wanted, suspendProcesses=["AZRebalance"], metricsCollection=["GroupMinSize", "GroupMaxSize"])
    hook = {"LifecycleHookName": "down", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "DefaultResult": "CONTINUE", "HeartbeatTimeout": 300}
    kept = {"SuspendedProcesses": [{"ProcessName": "AZRebalance"}], "EnabledMetrics": [{"Metric": "GroupMaxSize", "Granularity": "1Minute"}]}
    return [builder.build(hooks=[hook], **kept)]


def never_spot(site):
    """A spot price that reached nothing but a label: the nodes are on-demand, the first version not even labeled."""
    first, second = GroupBuilder(site, "cheap"), GroupBuilder(site, "cheap", lifecycle="spot", spotPrice="0.05")
    return [second.build(versions=[first], running=(2,))]


def launch_configuration(site):
    """A launch configuration, as accounts of old may still have."""
    builder = GroupBuilder(site, "old-way")
    source = {"LaunchConfigurationName": f"{builder.derived}-{TEMPLATE_TIMESTAMP}"}
    return [builder.build(source=source, eks={"type": "LaunchConfiguration"})]


def mixed(site):
    """A mixed instances policy; the primary type leads the overrides."""
    types = [{"type": "m5a.large", "weight": 1}]
    builder = GroupBuilder(site, "mixed", lifecycle="mixed", mixedInstancesPolicy={"strategy": "CapacityOptimized", "baseCapacity": 1, "spotRatio": "50%", "instanceTypes": types})
    policy = {
        "InstancesDistribution": {
            "OnDemandAllocationStrategy": "prioritized",
            "OnDemandBaseCapacity": 1,
            "OnDemandPercentageAboveBaseCapacity": 50,
            "SpotAllocationStrategy": "capacity-optimized",
        },
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateName": f"{builder.derived}-{TEMPLATE_TIMESTAMP}", "Version": "$Latest"},
            "Overrides": [{"InstanceType": kind, "WeightedCapacity": "1"} for kind in ("m5.large", "m5a.large")],
        },
    }
    return [builder.build(sizes=(2, 4), running=(1, 1), source={"MixedInstancesPolicy": policy})]


def warm_pool(site):
    """A warm pool, which keikoproj/instance-manager created in an update of the group."""
    pool = {"MinSize": 1, "MaxGroupPreparedCapacity": 2, "PoolState": "Stopped"}
    return [GroupBuilder(site, "warm").build(eks={"warmPool": {"minSize": 1, "maxSize": 2}}, warm_pool=pool)]


STATES = {
    make.__name__: make
    for make in (plain, given_role, old_versions, prefixes, long_name, node_config, hooks, never_spot, launch_configuration, mixed, warm_pool)
}


def all_states(site):
    """All states at a site, {name: state}; where a name has several, the name of the group distinguishes them."""
    made = [(name, state) for name, make in STATES.items() for state in make(site)]
    return {f"{name}/{state.data['instanceGroup']['metadata']['name']}": state for name, state in made}
