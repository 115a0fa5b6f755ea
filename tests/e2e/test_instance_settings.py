"""What a machine is made of beyond its type and image, as AWS has it in the end."""

import base64
import gzip

import pytest

from e2e.harness import BASIC, PREFIX

LICENSES = [f"arn:aws:license-manager:us-west-2:123456789012:license-configuration:lic-{digit * 32}" for digit in "ab"]
HOSTS = "arn:aws:resource-groups:us-west-2:123456789012:group/windows-hosts"


def data_of(group):
    """What the version that the group launches holds."""
    return group.template_versions()[-1]["LaunchTemplateData"]


def test_licenses_and_hosts_can_be_set_and_removed(tenant):
    """Bring-your-own-licence hosts are paid for whether the nodes land on them or not."""
    placement = {"tenancy": "host", "hostResourceGroupArn": HOSTS}
    group = tenant.group(size=(1, 2), licenseSpecifications=LICENSES, placement=placement).wait_ready(nodes=1)
    before = group.instances()
    data = data_of(group)
    assert [s["LicenseConfigurationArn"] for s in data["LicenseSpecifications"]] == LICENSES
    assert data["Placement"] == {"Tenancy": "host", "HostResourceGroupArn": HOSTS}
    group.patch_spec(licenseSpecifications=None, placement=None)
    group.wait(lambda g: len(g.ready_nodes()) == 1 and g.instances() != before and g.has_condition("Ready"), what="nodes without licences")
    assert not {"LicenseSpecifications", "Placement"} & set(data_of(group))


def test_every_kind_of_volume_is_created_as_specified(tenant, shared):
    """A database node whose disk is slower than asked for is found out in production."""
    snapshot = shared.boto("ec2").create_snapshot(VolumeId=shared.boto("ec2").create_volume(AvailabilityZone="us-west-2a", Size=8)["VolumeId"])["SnapshotId"]
    volumes = [
        {"name": "/dev/xvda", "type": "gp3", "size": 40, "iops": 4000, "throughput": 250, "encrypted": True},
        {"name": "/dev/xvdb", "type": "io1", "size": 50, "iops": 500},
        {"name": "/dev/xvdc", "type": "io2", "size": 50, "iops": 600, "deleteOnTermination": False},
        {"name": "/dev/xvdd", "type": "st1", "size": 125},
        {"name": "/dev/xvde", "type": "sc1", "size": 125},
        {"name": "/dev/xvdf", "type": "gp2", "snapshotId": snapshot},
    ]
    group = tenant.group(size=(1, 2), volumes=volumes).wait_ready(nodes=1)
    made = {d["DeviceName"]: d["Ebs"] for d in data_of(group)["BlockDeviceMappings"]}
    names = {"type": "VolumeType", "size": "VolumeSize", "iops": "Iops", "throughput": "Throughput", "encrypted": "Encrypted", "snapshotId": "SnapshotId"}
    for volume in volumes:
        wanted = {names[field]: value for field, value in volume.items() if field in names}
        wanted["DeleteOnTermination"] = volume.get("deleteOnTermination", True)
        assert made[volume["name"]] == wanted


def test_custom_networking_limits_the_pods_of_each_node(tenant):
    """Pods beyond the addresses of the other interfaces would stay without a network."""
    annotations = {PREFIX + "custom-networking-enabled": "true", PREFIX + "custom-networking-host-pods": "4"}
    group = tenant.group(size=(1, 2), annotations=annotations, instanceType="m5.large").wait_ready(nodes=1)
    (node,) = group.nodes()
    assert node["status"]["capacity"]["pods"] == str(2 * 9 + 4)


@pytest.mark.parametrize("family", ["amazonlinux2", "amazonlinux2023", "bottlerocket"])
def test_user_data_beyond_the_limit_is_compressed(tenant, shared, family):
    """A long script that keikoproj/instance-manager could not send works unchanged."""
    line = "# one of many lines that a platform team has written down here\n"
    annotations, image = {PREFIX + "os-family": family}, shared["amis"][family][0]
    tenant.set_defaults(annotations=annotations, image=image, userData=[{"name": "long", "stage": "PreBootstrap", "data": line * 600}])
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    data = base64.b64decode(data_of(group)["UserData"])
    assert len(data) <= 16384 and line * 600 in gzip.decompress(data).decode()


def test_a_group_in_an_ipv6_cluster_reports_what_its_nodes_lack(tenant):
    """The nodes would never join, and the group would be Ready without them."""
    eks, name = tenant.cloud.boto("eks"), f"six-{tenant.unique}"
    network = {"subnetIds": tenant.cloud["subnets"], "securityGroupIds": [tenant.cloud["security_group"]]}
    eks.create_cluster(name=name, roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=network, kubernetesNetworkConfig={"ipFamily": "ipv6"})
    annotations = {PREFIX + "os-family": "amazonlinux2023"}
    tenant.set_defaults(annotations=annotations, clusterName=name)
    group = tenant.group("six", annotations=annotations, size=(1, 1))
    message = group.wait_condition("Stalled")["message"]
    assert "spec.eks.configuration.managedPolicies" in message and "spec.eks.configuration.subnets" in message
    assert not [e for e in tenant.aws_events() if e["operation"] in ("CreateLaunchTemplate", "CreateAutoScalingGroup")]
    group.delete()
    group.wait_gone()
    eks.delete_cluster(name=name)


@pytest.mark.private
def test_nodes_launch_where_the_account_shows_tags_in_instance_metadata(own_cloud, start_controller, make_tenant):
    """EC2 would refuse every launch, because the tag keys of Kubernetes have a slash. The first one may be the rotation's."""
    text = BASIC.read_text()
    options = "".join(text.partition("          metadataOptions:\n")[1:]).partition("          volumes:\n")[0]
    cloud = own_cloud(config=text.replace(options, ""))
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud))
    cloud.control("POST", "metadata-defaults", InstanceMetadataTags="enabled")
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    assert data_of(group)["MetadataOptions"] == {"InstanceMetadataTags": "disabled"}
    assert not [e for e in group.events_in_aws() if e.get("state") == "launch-failed"]


def test_a_version_that_leaves_tags_in_metadata_to_the_account_stays_current(tenant):
    """Versions of earlier releases and of the Keiko controller do. A new release must not replace their nodes for that."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    before, old, ec2 = group.instances(), group.template_versions()[-1], tenant.cloud.boto("ec2")
    data = old["LaunchTemplateData"]
    assert data["MetadataOptions"].pop("InstanceMetadataTags") == "disabled"
    made = ec2.create_launch_template_version(
        LaunchTemplateId=old["LaunchTemplateId"], LaunchTemplateData=data, VersionDescription=old["VersionDescription"]
    )["LaunchTemplateVersion"]
    assert "InstanceMetadataTags" not in made["LaunchTemplateData"]["MetadataOptions"]
    number = str(made["VersionNumber"])
    launch = {"LaunchTemplateId": old["LaunchTemplateId"], "Version": number}
    tenant.cloud.boto("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.scaling_group, LaunchTemplate=launch)
    group.patch_spec(eks={"minSize": 2})
    group.wait_ready(nodes=2)
    assert group.pinned() == number and set(before) < set(group.instances())
    assert len(group.template_versions()) == 2 and group.undrained() == {}
