//! Amazon EC2: launch templates and the resources that they refer to.

use std::collections::BTreeSet;

use async_trait::async_trait;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;

use super::convert::{ec2_tag, missing, owned_text, required, tags_from_ec2, timestamp, to_aws_error};
use super::launch_template::{request_data, version};
use crate::aws::error::none_if_not_found;
use crate::aws::fargate::RouteTable;
use crate::aws::{
    Accelerator, AwsError, AwsResult, DryRun, Ec2, Image, InstanceLaunch, InstanceType, LaunchTemplate, NetworkObject,
    NetworkQuery, NewTemplate, NewVersion, StateReason, Tag, TemplateVersion,
};

const SERVICE: &str = "EC2";
/// The tag by which EC2 Auto Scaling marks its instances (Amazon EC2 Auto Scaling User Guide, "Tag Auto Scaling groups and
/// instances").
const SCALING_GROUP_TAG: &str = "aws:autoscaling:groupName";
/// The filter for the tag that EC2 gives to each instance from a launch template, and that no one can edit (Amazon EC2 User
/// Guide, "Launch EC2 instances using a launch template").
const TEMPLATE_TAG_FILTER: &str = "tag:aws:ec2launchtemplate:id";

pub(super) struct Ec2Sdk(pub Client);

#[async_trait]
impl Ec2 for Ec2Sdk {
    async fn describe_templates(&self, names: &[String]) -> AwsResult<Vec<LaunchTemplate>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // With a list of names, one name that does not exist would fail the whole call. A filter ignores it.
        let request = self.0.describe_launch_templates().filters(filter("launch-template-name", names));
        let found = request.into_paginator().page_size(200).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeLaunchTemplates"))?;
        let found: AwsResult<Vec<_>> = found.iter().map(template).collect();
        Ok(found?.into_iter().filter(|t| names.contains(&t.name)).collect())
    }

    async fn template_by_id(&self, id: &str) -> AwsResult<Option<LaunchTemplate>> {
        let response = self.0.describe_launch_templates().launch_template_ids(id).send().await;
        let found = none_if_not_found(response.map_err(to_aws_error(SERVICE, "DescribeLaunchTemplates")))?;
        found.and_then(|f| f.launch_templates().first().map(template)).transpose()
    }

    async fn describe_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<Vec<TemplateVersion>> {
        let request = self.0.describe_launch_template_versions().launch_template_id(template_id);
        // AWS does not accept a page size together with version numbers.
        let found = if numbers.is_empty() {
            request.into_paginator().page_size(200).items().send().try_collect().await
        } else {
            let numbers = numbers.iter().map(i64::to_string).collect();
            request.set_versions(Some(numbers)).into_paginator().items().send().try_collect().await
        };
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeLaunchTemplateVersions"))?;
        found.iter().map(version).collect()
    }

    async fn default_versions(&self) -> AwsResult<Vec<TemplateVersion>> {
        versions_of_all_templates(&self.0, "$Default").await
    }

    async fn latest_versions(&self) -> AwsResult<Vec<TemplateVersion>> {
        versions_of_all_templates(&self.0, "$Latest").await
    }

    async fn create_template(&self, input: &NewTemplate) -> AwsResult<TemplateVersion> {
        let request = self
            .0
            .create_launch_template()
            .client_token(&input.version.token)
            .launch_template_name(&input.name)
            .version_description(&input.version.description)
            .launch_template_data(request_data(&input.version.data))
            .set_tag_specifications((!input.tags.is_empty()).then(|| {
                let tags = sdk::TagSpecification::builder().resource_type(sdk::ResourceType::LaunchTemplate);
                vec![tags.set_tags(Some(input.tags.iter().map(ec2_tag).collect())).build()]
            }));
        let response = request.send().await.map_err(to_aws_error(SERVICE, "CreateLaunchTemplate"))?;
        let created = response.launch_template();
        Ok(TemplateVersion {
            template_id: required(
                created.and_then(|t| t.launch_template_id()),
                SERVICE,
                "CreateLaunchTemplate",
                "launch template id",
            )?
            .to_owned(),
            number: 1,
            description: Some(input.version.description.clone()),
            data: input.version.data.clone(),
        })
    }

    async fn create_version(&self, template_id: &str, input: &NewVersion) -> AwsResult<TemplateVersion> {
        let request = self
            .0
            .create_launch_template_version()
            .client_token(&input.token)
            .launch_template_id(template_id)
            .version_description(&input.description)
            .launch_template_data(request_data(&input.data));
        let response = request.send().await.map_err(to_aws_error(SERVICE, "CreateLaunchTemplateVersion"))?;
        let created = response.launch_template_version().and_then(|v| v.version_number());
        let number = created.ok_or_else(|| missing(SERVICE, "CreateLaunchTemplateVersion", "version number"))?;
        Ok(TemplateVersion {
            template_id: template_id.to_owned(),
            number,
            description: Some(input.description.clone()),
            data: input.data.clone(),
        })
    }

    async fn delete_versions(&self, template_id: &str, numbers: &[i64]) -> AwsResult<()> {
        let request = self.0.delete_launch_template_versions().launch_template_id(template_id);
        let response = request.set_versions(Some(numbers.iter().map(i64::to_string).collect())).send().await;
        let response = response.map_err(to_aws_error(SERVICE, "DeleteLaunchTemplateVersions"))?;
        // The response has status 200 even if some versions were not deleted. It lists them.
        let failed = response.unsuccessfully_deleted_launch_template_versions().iter().find(|failed| {
            failed.response_error().and_then(|e| e.code())
                != Some(&sdk::LaunchTemplateErrorCode::LaunchTemplateVersionDoesNotExist)
        });
        let Some(error) = failed.and_then(|f| f.response_error()) else { return Ok(()) };
        let code = error.code().map(|c| c.as_str()).unwrap_or_default();
        let message = error.message().unwrap_or_default();
        Err(AwsError::from_response(SERVICE, "DeleteLaunchTemplateVersions", code, message, 200))
    }

    async fn delete_template(&self, template_id: &str) -> AwsResult<()> {
        let request = self.0.delete_launch_template().launch_template_id(template_id);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteLaunchTemplate"))?;
        Ok(())
    }

    async fn create_tags(&self, resource: &str, tags: &[Tag]) -> AwsResult<()> {
        let request = self.0.create_tags().resources(resource).set_tags(Some(tags.iter().map(ec2_tag).collect()));
        request.send().await.map_err(to_aws_error(SERVICE, "CreateTags"))?;
        Ok(())
    }

    async fn tag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()> {
        let tags = tags.iter().map(ec2_tag).collect();
        let request = self.0.create_tags().set_resources(Some(ids.to_vec())).set_tags(Some(tags));
        request.send().await.map_err(to_aws_error(SERVICE, "CreateTags"))?;
        Ok(())
    }

    async fn untag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()> {
        let tags = tags.iter().map(ec2_tag).collect();
        let request = self.0.delete_tags().set_resources(Some(ids.to_vec())).set_tags(Some(tags));
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteTags"))?;
        Ok(())
    }

    async fn describe_subnets(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>> {
        let request = self.0.describe_subnets().filters(network_filter(query, "subnet-id"));
        let found = request.into_paginator().page_size(1000).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeSubnets"))?;
        let object = |subnet: &sdk::Subnet| NetworkObject {
            id: owned_text(subnet.subnet_id()),
            name: name_tag(subnet.tags()),
            vpc: owned_text(subnet.vpc_id()),
            zone: subnet.availability_zone().map(str::to_owned),
            ipv4_cidr: subnet.cidr_block().map(str::to_owned),
            assigns_ipv6: subnet.assign_ipv6_address_on_creation(),
        };
        Ok(found.iter().map(object).collect())
    }

    async fn describe_route_tables(&self, vpc: &str) -> AwsResult<Vec<RouteTable>> {
        let request = self.0.describe_route_tables().filters(filter("vpc-id", &[vpc.to_owned()]));
        let found = request.into_paginator().page_size(100).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeRouteTables"))?;
        Ok(found.iter().map(route_table).collect())
    }

    async fn describe_security_groups(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>> {
        let request = self.0.describe_security_groups().filters(network_filter(query, "group-id"));
        let found = request.into_paginator().page_size(1000).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeSecurityGroups"))?;
        let object = |group: &sdk::SecurityGroup| NetworkObject {
            id: owned_text(group.group_id()),
            name: name_tag(group.tags()),
            vpc: owned_text(group.vpc_id()),
            zone: None,
            ipv4_cidr: None,
            assigns_ipv6: None,
        };
        Ok(found.iter().map(object).collect())
    }

    async fn instance_types(&self, names: &[String]) -> AwsResult<Vec<InstanceType>> {
        // With a list of names, one unknown name would fail the whole call. A filter ignores it.
        let request = self.0.describe_instance_types().filters(filter("instance-type", names));
        let found = request.into_paginator().page_size(100).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeInstanceTypes"))?;
        // The filter expands wildcards, which a type name does not have.
        Ok(found.iter().map(instance_type).filter(|t| names.contains(&t.name)).collect())
    }

    async fn instance_types_in_families(&self, prefixes: &[String]) -> AwsResult<Vec<InstanceType>> {
        let request = self.0.describe_instance_types().filters(filter("instance-type", &prefix_wildcards(prefixes)));
        let found = request.into_paginator().page_size(100).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeInstanceTypes"))?;
        Ok(found.iter().map(instance_type).collect())
    }

    async fn instance_type_offerings(&self, prefixes: &[String]) -> AwsResult<Vec<(String, String)>> {
        let request = self.0.describe_instance_type_offerings().location_type(sdk::LocationType::AvailabilityZone);
        let request = request.filters(filter("instance-type", &prefix_wildcards(prefixes)));
        let found = request.into_paginator().page_size(1000).items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeInstanceTypeOfferings"))?;
        let offering =
            |o: &sdk::InstanceTypeOffering| Some((o.instance_type()?.as_str().to_owned(), o.location()?.to_owned()));
        Ok(found.iter().filter_map(offering).collect())
    }

    async fn images(&self, ids: &[String]) -> AwsResult<Vec<Image>> {
        // With a list of IDs, one unknown ID would fail the whole call. A filter ignores it.
        let request = self.0.describe_images().filters(filter("image-id", ids)).include_deprecated(true);
        let found = request.into_paginator().items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeImages"))?;
        Ok(found.iter().filter(|i| i.state() == Some(&sdk::ImageState::Available)).map(image).collect())
    }

    async fn dry_run(&self, action: DryRun, template: Option<&LaunchTemplate>, tags: &[Tag]) -> AwsResult<()> {
        super::dry_run::send(&self.0, action, template, tags).await
    }

    async fn launches(&self, ids: &[String]) -> AwsResult<Vec<(String, InstanceLaunch)>> {
        let launch = |i: &sdk::Instance| Some((i.instance_id()?.to_owned(), instance_launch(i)?));
        Ok(self.describe_instances(ids).await?.iter().filter_map(launch).collect())
    }

    async fn state_reasons(&self, ids: &[String]) -> AwsResult<Vec<(String, StateReason)>> {
        let reason = |i: &sdk::Instance| {
            let (code, message) = (i.state_reason()?.code()?, i.state_reason()?.message().unwrap_or_default());
            Some((i.instance_id()?.to_owned(), StateReason { code: code.to_owned(), message: message.to_owned() }))
        };
        Ok(self.describe_instances(ids).await?.iter().filter_map(reason).collect())
    }

    async fn private_dns_names(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>> {
        let name = |i: &sdk::Instance| {
            let name = i.private_dns_name().filter(|name| !name.is_empty())?;
            Some((i.instance_id()?.to_owned(), name.to_owned()))
        };
        Ok(self.describe_instances(ids).await?.iter().filter_map(name).collect())
    }

    async fn scaling_groups_of(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>> {
        let group = |i: &sdk::Instance| Some((i.instance_id()?.to_owned(), scaling_group(i)?));
        Ok(self.describe_instances(ids).await?.iter().filter_map(group).collect())
    }

    async fn running_instances(&self, ids: &[String]) -> AwsResult<Vec<String>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let filters = [filter("instance-id", ids), filter("instance-state-name", &["running".to_owned()])];
        let found = self.instances(&filters).await?;
        Ok(found.iter().filter_map(|i| i.instance_id()).map(str::to_owned).collect())
    }

    async fn instances_with_profiles(&self, profile_arns: &[String]) -> AwsResult<Vec<String>> {
        let filters = [filter("iam-instance-profile.arn", profile_arns), not_terminating()];
        let found = self.instances(&filters).await?;
        Ok(found.iter().filter_map(|i| i.instance_id()).map(str::to_owned).collect())
    }

    async fn scaling_groups_of_template(&self, template_id: &str) -> AwsResult<BTreeSet<String>> {
        let filters = [filter(TEMPLATE_TAG_FILTER, &[template_id.to_owned()]), not_terminating()];
        Ok(self.instances(&filters).await?.iter().filter_map(scaling_group).collect())
    }
}

/// The scaling group that an instance belongs to, by the tag of Auto Scaling.
fn scaling_group(instance: &sdk::Instance) -> Option<String> {
    let tag = instance.tags().iter().find(|tag| tag.key() == Some(SCALING_GROUP_TAG))?;
    tag.value().map(str::to_owned)
}

fn not_terminating() -> sdk::Filter {
    filter("instance-state-name", &["pending", "running", "stopping", "stopped"].map(str::to_owned))
}

impl Ec2Sdk {
    async fn describe_instances(&self, ids: &[String]) -> AwsResult<Vec<sdk::Instance>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.instances(&[filter("instance-id", ids)]).await
    }

    async fn instances(&self, filters: &[sdk::Filter]) -> AwsResult<Vec<sdk::Instance>> {
        let request = self.0.describe_instances().set_filters(Some(filters.to_vec()));
        let found = request.into_paginator().page_size(1000).items().send().try_collect().await;
        let found: Vec<sdk::Reservation> = found.map_err(to_aws_error(SERVICE, "DescribeInstances"))?;
        Ok(found.into_iter().flat_map(|reservation| reservation.instances.unwrap_or_default()).collect())
    }
}

/// One version of every launch template in the region: `$Default` or `$Latest`.
async fn versions_of_all_templates(client: &Client, version_alias: &str) -> AwsResult<Vec<TemplateVersion>> {
    let request = client.describe_launch_template_versions().versions(version_alias);
    let found = request.into_paginator().page_size(200).items().send().try_collect().await;
    let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "DescribeLaunchTemplateVersions"))?;
    found.iter().map(version).collect()
}

fn network_filter(query: &NetworkQuery, id_filter: &str) -> sdk::Filter {
    match query {
        NetworkQuery::Vpc(vpc) => filter("vpc-id", std::slice::from_ref(vpc)),
        NetworkQuery::Ids(ids) => filter(id_filter, ids),
    }
}

fn filter(name: &str, values: &[String]) -> sdk::Filter {
    sdk::Filter::builder().name(name).set_values(Some(values.to_vec())).build()
}

/// Filter values that match the prefixes (Amazon EC2 User Guide, "List and filter using the CLI and API").
fn prefix_wildcards(prefixes: &[String]) -> Vec<String> {
    prefixes.iter().map(|prefix| format!("{prefix}*")).collect()
}

fn name_tag(tags: &[sdk::Tag]) -> Option<String> {
    tags.iter().find(|t| t.key() == Some("Name")).and_then(|t| t.value()).map(str::to_owned)
}

fn image(found: &sdk::Image) -> Image {
    Image {
        id: owned_text(found.image_id()),
        architecture: owned_text(found.architecture().map(|a| a.as_str())),
        is_windows: found.platform().is_some_and(|p| p.as_str().eq_ignore_ascii_case("windows")),
        amazon_name: found.name().filter(|_| found.image_owner_alias() == Some("amazon")).map(str::to_owned),
        root_device: owned_text(found.root_device_name()),
        device_names: found.block_device_mappings().iter().map(|d| owned_text(d.device_name())).collect(),
        volume_sizes: (found.block_device_mappings().iter())
            .filter_map(|d| Some((owned_text(d.device_name()), d.ebs()?.volume_size()?)))
            .collect(),
    }
}

/// EC2's API model marks no field of `InstanceTypeInfo` as always present, so each count may be unknown. No type has a
/// count of zero.
/// How an instance was launched. EC2 changes its launch time whenever a stopped instance starts, as one of a warm pool does;
/// the attachment time of its primary network interface stays (Amazon EC2 API Reference, Instance, `launchTime`).
fn instance_launch(found: &sdk::Instance) -> Option<InstanceLaunch> {
    let attachments = found.network_interfaces().iter().filter_map(|interface| interface.attachment());
    let primary = attachments.into_iter().find(|attachment| attachment.device_index() == Some(0));
    let attached = primary.and_then(|attachment| timestamp(attachment.attach_time()));
    let time = attached.or_else(|| timestamp(found.launch_time()))?;
    Some(InstanceLaunch { time, subnet: owned_text(found.subnet_id()) })
}

fn instance_type(found: &sdk::InstanceTypeInfo) -> InstanceType {
    let network = found.network_info();
    let count = |count: Option<i32>| count.filter(|n| *n > 0);
    InstanceType {
        name: owned_text(found.instance_type().map(|t| t.as_str())),
        architectures: (found.processor_info().into_iter())
            .flat_map(|p| p.supported_architectures())
            .map(|a| a.as_str().to_owned())
            .collect(),
        vcpus: count(found.v_cpu_info().and_then(|v| v.default_v_cpus())),
        memory_mib: found.memory_info().and_then(|m| m.size_in_mib()).filter(|n| *n > 0),
        max_interfaces: count(network.and_then(|n| n.maximum_network_interfaces())),
        ipv4_per_interface: count(network.and_then(|n| n.ipv4_addresses_per_interface())),
        accelerator: accelerator(found),
        is_xen: found.hypervisor() == Some(&sdk::InstanceTypeHypervisor::Xen),
    }
}

/// The accelerator of a type. AWS publishes no images with the drivers of other manufacturers' GPUs.
fn accelerator(found: &sdk::InstanceTypeInfo) -> Option<Accelerator> {
    let gpus = found.gpu_info().map(|info| info.gpus()).unwrap_or_default();
    let inference = found.inference_accelerator_info().map(|info| info.accelerators()).unwrap_or_default();
    let is_neuron = found.neuron_info().is_some() || inference.iter().any(|a| a.manufacturer() == Some("AWS"));
    if gpus.iter().any(|gpu| gpu.manufacturer() == Some("NVIDIA")) {
        Some(Accelerator::Nvidia)
    } else {
        is_neuron.then_some(Accelerator::Neuron)
    }
}

fn route_table(found: &sdk::RouteTable) -> RouteTable {
    let is_internet_route = |route: &sdk::Route| route.gateway_id().is_some_and(|id| id.starts_with("igw-"));
    let subnets = found.associations().iter().filter_map(|a| a.subnet_id());
    RouteTable {
        is_main: found.associations().iter().any(|a| a.main() == Some(true)),
        subnets: subnets.map(str::to_owned).collect(),
        has_internet_gateway: found.routes().iter().any(is_internet_route),
    }
}

fn template(template: &sdk::LaunchTemplate) -> AwsResult<LaunchTemplate> {
    let operation = "DescribeLaunchTemplates";
    let number = |value: Option<i64>, field| value.ok_or_else(|| missing(SERVICE, operation, field));
    Ok(LaunchTemplate {
        id: required(template.launch_template_id(), SERVICE, operation, "LaunchTemplateId")?.to_owned(),
        name: owned_text(template.launch_template_name()),
        default_version: number(template.default_version_number(), "DefaultVersionNumber")?,
        latest_version: number(template.latest_version_number(), "LatestVersionNumber")?,
        tags: tags_from_ec2(template.tags()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_ec2_does_not_return_are_unknown() {
        let network =
            sdk::NetworkInfo::builder().maximum_network_interfaces(0).ipv4_addresses_per_interface(10).build();
        let found = instance_type(&sdk::InstanceTypeInfo::builder().network_info(network).build());
        assert_eq!((found.max_interfaces, found.ipv4_per_interface), (None, Some(10)));
        let found = instance_type(&sdk::InstanceTypeInfo::builder().build());
        assert_eq!((found.max_interfaces, found.ipv4_per_interface), (None, None));
        assert_eq!((found.vcpus, found.memory_mib), (None, None));
    }

    /// Bare metal types have no hypervisor, and are Nitro-based.
    #[test]
    fn only_types_with_the_xen_hypervisor_are_not_nitro_based() {
        let is_xen = |hypervisor: Option<sdk::InstanceTypeHypervisor>| {
            instance_type(&sdk::InstanceTypeInfo::builder().set_hypervisor(hypervisor).build()).is_xen
        };
        assert!(is_xen(Some(sdk::InstanceTypeHypervisor::Xen)));
        assert!(!is_xen(Some(sdk::InstanceTypeHypervisor::Nitro)) && !is_xen(None));
    }

    #[test]
    fn accelerators_are_reported_apart() {
        let gpu = |manufacturer: &str| {
            let device = sdk::GpuDeviceInfo::builder().manufacturer(manufacturer).build();
            instance_type(
                &sdk::InstanceTypeInfo::builder().gpu_info(sdk::GpuInfo::builder().gpus(device).build()).build(),
            )
        };
        assert_eq!(gpu("NVIDIA").accelerator, Some(Accelerator::Nvidia));
        assert_eq!(gpu("AMD").accelerator, None);
        let device = sdk::InferenceDeviceInfo::builder().manufacturer("AWS").build();
        let inferentia = sdk::InferenceAcceleratorInfo::builder().accelerators(device).build();
        let found = sdk::InstanceTypeInfo::builder().inference_accelerator_info(inferentia).build();
        assert_eq!(instance_type(&found).accelerator, Some(Accelerator::Neuron));
        let trainium = sdk::InstanceTypeInfo::builder().neuron_info(sdk::NeuronInfo::builder().build()).build();
        assert_eq!(instance_type(&trainium).accelerator, Some(Accelerator::Neuron));
        assert_eq!(instance_type(&sdk::InstanceTypeInfo::builder().build()).accelerator, None);
    }

    /// `rotate-at` would keep an instance of the warm pool that was launched before, and started after that time.
    #[test]
    fn instance_that_starts_again_keeps_the_time_of_its_launch() {
        let at = |seconds| aws_smithy_types::DateTime::from_secs(seconds);
        let interface = |index, seconds| {
            let attachment =
                sdk::InstanceNetworkInterfaceAttachment::builder().device_index(index).attach_time(at(seconds)).build();
            sdk::InstanceNetworkInterface::builder().attachment(attachment).build()
        };
        let started = sdk::Instance::builder().launch_time(at(900));
        let seconds = |instance: &sdk::Instance| instance_launch(instance).map(|launch| launch.time.as_second());
        assert_eq!(seconds(&started.clone().build()), Some(900), "EC2 shows no interface of a terminated instance");
        let both = started.network_interfaces(interface(1, 500)).network_interfaces(interface(0, 100));
        assert_eq!(seconds(&both.build()), Some(100));
    }
}
