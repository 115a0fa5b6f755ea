"""What belongs to others in every world, and must stay exactly as it is."""

import json

from localcloud.tests import support

NAME = "others-nodes"
AUTH = f"""# The platform team's own nodes: ask before you change this.
- rolearn: arn:aws:iam::123456789012:role/{NAME}
  username: system:node:{{{{EC2PrivateDNSName}}}}
  groups:
  - system:bootstrappers
  - system:nodes
  note: "kept by hand"
"""
"""An entry of aws-auth with a comment and an unknown key."""


def plant(cloud, mode):
    """Makes them in a cluster with this authentication mode; returns their names."""
    role = cloud.make_role(NAME)
    cloud.edit_map_roles(lambda text: text + AUTH)
    ec2, autoscaling = cloud.boto("ec2"), cloud.boto("autoscaling")
    data = {"ImageId": "ami-02100000000000001", "InstanceType": "m5.large"}
    template = ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=data)["LaunchTemplate"]["LaunchTemplateId"]
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=NAME, MinSize=0, MaxSize=0, VPCZoneIdentifier=cloud["subnets"][0],
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
        Tags=[{"Key": "instancegroups.keikoproj.io/ClusterName", "Value": "another", "PropagateAtLaunch": False, "ResourceId": NAME, "ResourceType": "auto-scaling-group"}],
    )  # fmt: skip
    if mode != "CONFIG_MAP":
        make_access_entry(cloud, role)
    node = {"metadata": {"name": "bare-metal-1"}, "spec": {"unschedulable": True}}
    cloud.create("/api/v1/nodes", node)
    return {"names": [NAME, template, "bare-metal-1"]}


def make_access_entry(cloud, role):
    """The access entry of a role of others, once IAM knows the role everywhere."""
    eks = cloud.boto("eks")

    def is_made():
        try:
            eks.create_access_entry(clusterName="demo", principalArn=role, type="EC2_LINUX", tags={"owner": "platform"})
        except eks.exceptions.InvalidParameterException:
            return False
        return True

    support.eventually(is_made, message=f"an access entry for {role}")


def snapshot(account):
    """Their part of a snapshot of the account."""
    return json.loads(json.dumps({kind: {name: thing for name, thing in things.items() if NAME in name} for kind, things in account.items()}))
